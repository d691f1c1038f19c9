"""Replies between the actions: what was sampled is what is trained, what is counted of turns, and `reply_coef`."""

from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from chat_families import FAMILIES
from diagonal import slow
from dialogues import calling, number_of, talking
from identity_checks import collect, contexts
from tiny_models import norm_in_double, text_envs, tiny_model, tiny_policy

import rlenv  # noqa: F401
from rlenv._status import ERROR
from rlenv.agents import GRPO, RLOO, SDPO, Collector, LanguageModelPolicy, Reinforce, Rollout
from rlenv.agents.training.evaluation import evaluation_metrics
from rlenv.agents.training.metrics import rollout_metrics
from rlenv.verifiers import Dialogue, Problem, Reply, Verdict, Verifier

CPU = torch.device("cpu")


# Twenty turns with the templates of real families: the tokens that are trained are those that were sampled.


TURNS = 20
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
    sampled, act = [], policy.act

    def listen(obs, *given, **more):
        acted = act(obs, *given, **more)
        sampled.append((int(obs["length"]), int(acted[0])))
        return acted

    policy.act = listen
    rollout = Collector(envs, CPU).collect(policy, 1, torch.Generator().manual_seed(0))
    assert rollout.extras["turns"].tolist() == [TURNS]
    columns, actions = (each[0][rollout.mask[0]].tolist() for each in (rollout.columns, rollout.actions))
    assert list(zip(columns, actions, strict=True)) == sampled, "every sampled token, and nothing else"
    assert rollout.observations["tokens"][0, columns].tolist() == actions
    assert columns[-1] - columns[0] >= len(columns) + TURNS - 1, "replies stand in between"
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert (log_probs - rollout.log_probs)[rollout.mask].abs().max() < 1e-12


# What is chosen and counted.


def test_success_by_number_of_turns_and_the_share_of_the_commonest_reply():
    """Replies stand between the columns of actions: 8 after the first turn of both episodes, then 7 and 9."""
    tokens = torch.tensor([[5, 1, 8, 1, 7, 9, 1], [5, 2, 8, 2, 0, 0, 0], [5, 1, 0, 0, 0, 0, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    columns = torch.tensor([[1, 3, 6], [1, 3, 3], [1, 1, 1]])
    seen = {"tokens": tokens, "length": torch.ones(3, dtype=torch.long)}
    rollout = Rollout.of_demonstrations(seen, tokens.gather(1, columns), mask, columns)
    rollout.extras, rollout.success = {"turns": torch.tensor([3.0, 2.0, 2.0])}, torch.tensor([1.0, 0.0, 1.0])
    assert rollout_metrics(rollout)["rollout/reply_max_frac"] == 2 / 3
    figures = evaluation_metrics(rollout)
    assert figures["mean_turns"] == pytest.approx(7 / 3)
    by_turns = {"2": {"episodes": 2, "success_rate": 0.5}, "3": {"episodes": 1, "success_rate": 1.0}}
    assert figures["by_turns"] == by_turns


def test_a_network_that_reads_every_observation_is_trained_on_dialogues():
    agent = Reinforce("MultiInputPolicy", talking(4), episodes_per_update=6, device="cpu", seed=0)
    rollout = agent.collector.collect(agent.policy, 6)
    length = rollout.observations["length"]
    grown = (length[:, 1:] - length[:, :-1])[rollout.mask[:, 1:]]
    assert rollout.positions is None and grown.min() == 1 and grown.max() > 1, "replies are between the actions"
    agent.learn(total_episodes=6)


# `reply_coef`: the cross-entropy of the environment's tokens, which are never actions, and nothing else.


DOUBLE = {"rtol": 0, "atol": 1e-10}
COEF = 0.3
TERMS = {"ent_coef": 0.1, "kl_coef": 0.2, "kl_estimator": "exact", "kl_in": "loss"}


def made(cls, envs, **settings):
    settings = {"episodes_per_update": 8, "device": "cpu", "seed": 3, "learning_rate": 0.01, **settings}
    agent = cls(tiny_policy("llama", envs), envs, **settings)
    agent.anchor.freeze_reference(tiny_policy("llama", envs, seed=1))
    return agent


def played(agent, episodes=8):
    rollout = collect(agent.policy, agent.env, episodes)
    rewards = torch.zeros_like(rollout.rewards, dtype=torch.float64)
    rewards[:, 0] = (torch.arange(episodes) % 3 == 0).to(rewards)
    rollout.status[5] = ERROR
    return replace(rollout, rewards=rewards, success=rewards[:, 0], log_probs=rollout.log_probs.double())


def gradients(loss, policy):
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)])


def by_hand(policy, rollout):
    """Return the mean of -log π over the tokens of replies, from plain forward passes over each episode."""
    surprise = []
    for row, (tokens, columns) in enumerate(contexts(rollout)):
        law = policy.model(torch.tensor([tokens])).logits[0, :, : policy.vocab_size].log_softmax(-1)
        replies = sorted({*range(columns[0], len(tokens))} - {*columns})
        surprise += [-law[column - 1, tokens[column]] for column in replies if rollout.ok[row]]
    return torch.stack(surprise).mean()


@pytest.mark.parametrize(
    ("cls", "env", "settings"),
    [(RLOO, talking, {}), slow(GRPO, calling, TERMS), slow(SDPO, talking, {"teacher_weights": "start"})],
)
def test_the_gradient_is_the_agents_own_and_that_of_the_mean_over_reply_tokens(cls, env, settings):
    plain, more = (made(cls, env(8, group_size=4), reply_coef=coef, **settings) for coef in (0.0, COEF))
    rollout = played(plain)
    own = gradients(plain.loss(plain.prepare(rollout))[0], plain.policy)
    said = by_hand(more.policy, rollout)
    prepared = more.prepare(rollout)
    parts = [more.loss(part) for part in prepared.split(3)]
    found = gradients(sum(loss for loss, _ in parts), more.policy)
    torch.testing.assert_close(found, own + COEF * gradients(said, more.policy), **DOUBLE)
    assert sum(float(figures["train/reply_loss"]) for _, figures in parts) == pytest.approx(float(said.detach()))
    assert own.abs().max() > 1e-3 < COEF * gradients(by_hand(more.policy, rollout), more.policy).abs().max()


def test_the_parts_of_a_pass_average_to_the_whole():
    agent = made(GRPO, talking(8, group_size=4), reply_coef=COEF, num_epochs=1, num_minibatches=3)
    prepared = agent.prepare(played(agent))
    whole = gradients(agent.loss(prepared)[0], agent.policy)
    parts = [gradients(agent.loss(batch)[0], agent.policy) for batch in agent.batches(prepared)]
    torch.testing.assert_close(sum(parts) / 3, whole, **DOUBLE)


def test_without_replies_the_update_is_the_same():
    plain, more = (made(RLOO, text_envs(8, group_size=4), reply_coef=coef) for coef in (0.0, COEF))
    rollout = played(plain)
    plain.update(rollout), more.update(rollout)
    for one, other in zip(plain.policy.parameters(), more.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, **DOUBLE)
