"""Twenty turns with the templates of real families: the tokens that are trained are those that were sampled."""

import gymnasium as gym
import pytest
import torch
from chat_families import FAMILIES
from diagonal import slow
from dialogues import number_of
from tiny_models import norm_in_double, tiny_model

import rlenv  # noqa: F401
from agents import Collector, LanguageModelPolicy
from agents.policies.language.training.reading import _sequences
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

TURNS, EPISODES, SLOTS = 20, 3, 2
OFTEN = ["chatml", "llama3", "llama2", "mistral", "gemma", "phi3"]
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
    envs = gym.make_vec("TextGen-v0", SLOTS, verifier=Talkative(), tokenizer=tokenizer, test_fraction=0.0, **limits)
    model = tiny_model("llama", len(tokenizer), context=envs.task.max_length)
    with torch.no_grad():  # an end token every few steps
        model.lm_head.weight.mul_(0.2)
    norm_in_double(model)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = LanguageModelPolicy(*spaces, model, dtype="float64")
    sampled, turns = {}, {}
    step, reset = envs.step, envs.reset

    def listen(actions):
        before = envs._lengths.tolist()
        out = step(actions)
        for slot, (action, column) in enumerate(zip(actions.tolist(), before, strict=True)):
            if envs_playing[slot]:
                sampled[episode_of[slot]].append((column, action))
        for slot in out[2].nonzero()[:, 0].tolist():
            envs_playing[slot] = False
            turns[episode_of[slot]] = out[4]["turns"][slot]
        return out

    envs_playing, episode_of = [False] * SLOTS, [None] * SLOTS

    def restart(**kwargs):
        mask = (kwargs.get("options") or {}).get("reset_mask", [True] * SLOTS)
        for slot in [slot for slot in range(SLOTS) if mask[slot]]:
            envs_playing[slot], episode_of[slot] = True, len(sampled)
            sampled[len(sampled)] = []
        return reset(**kwargs)

    envs.step, envs.reset = listen, restart
    rollout = Collector(envs, torch.device("cpu")).collect(policy, EPISODES, torch.Generator().manual_seed(0))
    ids, *_, steps, columns, actions = _sequences(rollout)
    assert list(turns.values()) == [TURNS] * EPISODES
    for row in range(EPISODES):
        mine = steps[:, 0] == row
        trained = list(zip((columns[mine] + 1).tolist(), actions[mine].tolist(), strict=True))
        assert trained == sampled[row], "every sampled token, in its column, and nothing else"
        inside = [(column, token) for column, token in trained if column < ids.shape[1]]
        assert [int(ids[row, column]) for column, _ in inside] == [token for _, token in inside]
        assert trained[-1][0] - trained[0][0] >= len(trained) + TURNS - 1, "replies stand in between"
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert (log_probs - rollout.log_probs)[rollout.mask].abs().max() < 1e-12
