"""A task as a dialogue and as a program that calls a chat API: the same tokens, rewards and gradients."""

import sys

import cloudpickle
import gymnasium as gym
import pytest
import torch
from diagonal import slow
from dialogues import LETTERS, Hashing
from programs import hashing, user
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from rlenv import agents
from rlenv.verifiers import Dialogue, Problem, Reply, Verdict, Verifier

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers need not find it
PROMPTS = [[user(text)] for text in ("a", "bc", "dad", "bb")]
SHAPE = {"max_new_tokens": 4, "max_turns": 3, "max_reply_tokens": 12, "max_prompt_tokens": 8, "test_fraction": 0.0}


class PaidAtTheEnd(Dialogue):
    """`Hashing` as a program plays it: it pays at the end, and its replies end with a stop."""

    def __init__(self, problem):
        self.game, self.total = Hashing(problem), 0.0

    def reply(self, turn):
        reply = self.game.reply(turn)
        self.total += reply.reward
        if reply.verdict is not None:
            return Reply(verdict=Verdict(self.total + reply.verdict.reward, reply.verdict.parts))
        return Reply(f"{reply.content}.")

    def out_of_budget(self):
        return Verdict(self.total + self.game.out_of_budget().reward)


class Game(Verifier):
    alphabet, reward_range = f"{LETTERS}.\n", (0.0, 100.0)

    def dialogue(self, problem: Problem) -> Dialogue:
        return PaidAtTheEnd(problem)


def trained(verifier, episodes, agent=agents.GRPO, critic=None, settings=None, **kwargs):
    """Return the rollouts of an agent, and its weights after two updates."""
    envs = gym.make_vec("TextGen-v0", 8, verifier=verifier, problems=PROMPTS, group_size=2, **SHAPE, **kwargs)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = tiny_policy("gpt2", envs, critic=critic)
    agent = agent(policy, envs, device="cpu", episodes_per_update=episodes, **(settings or {}))
    rollouts = [rollout for rollout, _ in agent.updates(total_episodes=2 * episodes)]
    envs.close()
    return rollouts, torch.cat([each.detach().flatten() for each in policy.model.parameters()])


def check_same(one, other):
    (rollouts, weights), (others, their_weights) = one, other
    assert len(rollouts) == len(others) >= 2
    for ours, theirs in zip(rollouts, others, strict=True):
        for name in ("actions", "rewards", "mask", "columns", "log_probs"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        assert torch.equal(ours.observations["tokens"], theirs.observations["tokens"])
    assert len({int(row) for ours in rollouts for row in ours.rewards.sum(1) * 64}) > 3
    assert torch.equal(weights, their_weights)


def as_program(**kwargs):
    from rlenv.verifiers.builtin import Program

    return Program(hashing, alphabet=Game.alphabet, **kwargs)


OF_TURNS = {"agent": agents.PPO, "critic": "head", "settings": {"gamma": 0.9, "gae_lambda": 0.8}}


@pytest.mark.parametrize(("episodes", "how"), [(16, OF_TURNS), slow(250, {})])
def test_a_dialogue_and_a_program_are_the_same_task(episodes, how):
    """With a critic and a discount, each turn has advantages of its own."""
    dialogue = trained(Game(), episodes, **how)
    check_same(dialogue, trained(as_program(), episodes, verifier_workers=0, **how))


@pytest.mark.slow
def test_worker_processes_and_late_replies_change_nothing():
    dialogue = trained(Game(), 250, verifier_workers=2, late_replies=True)
    check_same(dialogue, trained(as_program(), 250, late_replies=True, verifier_workers=2))
