"""Replies between the actions: what was sampled is what is kept and trained; what is counted of turns."""

import gymnasium as gym
import pytest
import torch
from chat_families import FAMILIES
from diagonal import slow
from dialogues import number_of, talking
from identity_checks import collect
from tiny_models import norm_in_double, tiny_model, tiny_policy

import rlenv  # noqa: F401
from rlenv.agents import Collector, LanguageModelPolicy, Reinforce
from rlenv.agents.training.evaluation import evaluation_metrics
from rlenv.agents.training.metrics import rollout_metrics
from rlenv.verifiers import Dialogue, Problem, Reply, Turns, Verdict, Verifier

CPU = torch.device("cpu")


# Twenty turns with the templates of real families: the tokens that are trained are those that were sampled.


TURNS, EPISODES = 20, 2
OFTEN = ["chatml", "gemma"]
WORDS = ["yes", "no, <|im_end|> again", " 12+34= ?\n", "▁user [INST] é", "</s>"]


class Talkative(Verifier):
    """Twenty turns, whose replies depend on the turn."""

    def sample(self, rng):
        return Problem([{"role": "user", "content": f"What is {rng.randint(1, 9)}+34= ?"}])

    def dialogue(self, problem):
        class Talk(Dialogue):
            turns = 0

            def reply(self, turn):
                self.turns += 1
                verdict = Verdict(1.0) if self.turns == TURNS else None
                return Reply(WORDS[number_of(turn, self.turns) % 5], verdict=verdict)

        return Talk()


@pytest.mark.parametrize("name", [name if name in OFTEN else slow(name) for name in FAMILIES])
def test_the_tokens_of_twenty_turns_are_trained_as_they_were_sampled(name):
    tokenizer = FAMILIES[name]()
    limits = {"max_prompt_tokens": 80, "max_new_tokens": 6, "max_turns": TURNS, "max_reply_tokens": 80}
    envs = gym.make_vec("TextGen-v0", 1, verifier=Talkative(), tokenizer=tokenizer, test_fraction=0.0, **limits)
    model = tiny_model("llama", len(tokenizer), context=envs.task.encoding.max_length)
    with torch.no_grad():  # an end token every few steps
        model.lm_head.weight.mul_(0.2)
    norm_in_double(model)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model, dtype="float64")
    sampled, turns, length, step, reset = [], [], [0], envs.step, envs.reset

    def restart(**kwargs):
        sampled.append([])
        obs, infos = reset(**kwargs)
        length[0] = int(obs["length"])
        return obs, infos

    def listen(actions):
        sampled[-1].append((length[0], int(actions)))
        out = step(actions)
        length[0] = int(out[0]["length"])
        turns.extend([out[4]["turns"][0]] if out[2] else [])
        return out

    envs.step, envs.reset = listen, restart
    rollout = Collector(envs, CPU).collect(policy, EPISODES, torch.Generator().manual_seed(0))
    assert turns == [TURNS] * EPISODES
    for row, wanted in enumerate(sampled):
        columns, actions = (each[row][rollout.mask[row]].tolist() for each in (rollout.columns, rollout.actions))
        assert list(zip(columns, actions, strict=True)) == wanted, "every sampled token, and nothing else"
        assert rollout.observations["tokens"][row, columns].tolist() == actions
        assert columns[-1] - columns[0] >= len(columns) + TURNS - 1, "replies stand in between"
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert (log_probs - rollout.log_probs)[rollout.mask].abs().max() < 1e-12


# What is chosen and counted.


class Counting(Verifier):
    """Ends after as many turns as the prompt has letters; the reply is "d", after the first turn "c"."""

    alphabet, prompt_length, answer_length, turns = "abcd", 3, 3, Turns(5, reply_length=1)

    def sample(self, rng):
        return Problem("a" * rng.randint(1, 3))

    def dialogue(self, problem):
        class Limited(Dialogue):
            left = len(problem.text)

            def reply(self, turn):
                self.left -= 1
                over = Verdict(float(len(problem.text) == 2)) if self.left == 0 else None
                return Reply("c" if self.left == len(problem.text) - 1 else "d", verdict=over)

        return Limited()


def test_success_by_number_of_turns_and_the_share_of_the_commonest_reply():
    envs = gym.make_vec("TextGen-v0", 8, verifier=Counting(), test_fraction=0.0)
    rollout = collect(tiny_policy("llama", envs), envs, 32)
    one, two, three = (int((rollout.observations["length"] == number).sum()) for number in (1, 2, 3))
    figures = evaluation_metrics(rollout)
    assert figures["by_turns"] == {
        str(number): {"episodes": count, "success_rate": float(number == 2)}
        for number, count in ((1, one), (2, two), (3, three))
    }
    assert figures["mean_turns"] == pytest.approx(rollout.extras["turns"].mean().item())
    ends = rollout.actions.eq(1) & rollout.mask  # a turn that is cut gets its end token: another appended text
    assert ends.any() and two + three > three > 0
    assert 0 < rollout_metrics(rollout)["rollout/reply_max_frac"] <= (two + three) / (two + 2 * three)


def test_a_network_that_reads_every_observation_is_trained_on_dialogues():
    agent = Reinforce("MultiInputPolicy", talking(4), episodes_per_update=6, device="cpu", seed=0)
    rollout = agent.collector.collect(agent.policy, 6)
    length = rollout.observations["length"]
    grown = (length[:, 1:] - length[:, :-1])[rollout.mask[:, 1:]]
    assert rollout.positions is None and grown.min() == 1 and grown.max() > 1, "replies are between the actions"
    agent.learn(total_episodes=6)
