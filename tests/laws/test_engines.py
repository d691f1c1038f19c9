"""Updates from an engine's episodes are those of our own decoder's, and from a program's those of a dialogue's.

Our own decoder plays an update; then an engine writes the very tokens that it drew, through the same environment with
the same seed. Episodes, rewards, gradients and metrics have to be the same, up to the engine's log-probabilities,
which are kept in float32. A program that calls a chat API has the tokens, rewards and gradients of a dialogue.
"""

import sys
from collections import defaultdict

import cloudpickle
import gymnasium as gym
import pytest
import torch
from diagonal import diagonal, slow
from dialogues import LETTERS, Hashing, talking
from fake_engine import FakeEngine
from identity_checks import SLACK
from programs import hashing, user
from tabular import relative_error
from tiny_models import PROMPTS, reward_of, text_envs, tiny_policy

from rlenv import agents
from rlenv.agents.training.callbacks import as_callback
from rlenv.agents.training.metrics import rollout_metrics
from rlenv.agents.training.update import backward
from rlenv.verifiers import Dialogue, Problem, Reply, Verdict, Verifier
from rlenv.verifiers.builtin import Program

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers need not find it

EPISODES = 12
CLOSE = 1e-6
ANCHORED = {"kl_coef": 0.1, "kl_estimator": "k3", "kl_in": "loss"}
AGENTS = {
    "GRPO": (agents.GRPO, ANCHORED),
    "RLOO": (agents.RLOO, {"kl_coef": 0.1}),
    "DAPO": (agents.DAPO, ANCHORED | {"max_rounds": 3, "overlong_buffer": 2}),
    "PPO": (agents.PPO, ANCHORED | {"num_epochs": 1, "num_minibatches": 1}),
    "Distillation": (agents.Distillation, {"reward_coef": 0.5}),
}
LATE = {"late_verdicts": True, "late_replies": True, "verifier_workers": 1}
ENVS = {
    "answers": lambda: text_envs(EPISODES, mixed, group_size=4, max_new_tokens=7, problems=PROMPTS[1:4]),
    "late dialogues": lambda: talking(EPISODES, group_size=4, **LATE),
}


def mixed(prompts, completions):
    """Nothing that is said after one of the prompts makes a difference, so that DAPO needs several rounds."""
    pairs = zip(prompts, completions, strict=True)
    return [0.5 if pair[0] == PROMPTS[1] else reward_of(*pair) for pair in pairs]


class Reciting(FakeEngine):
    """Writes the tokens of a rollout."""

    def __init__(self, policy, rollout):
        super().__init__(policy)
        self.left = defaultdict(list)  # after each context, the tokens of the episodes that came there, in order
        for row, length in enumerate(rollout.lengths.tolist()):
            actions, columns = rollout.actions[row, :length], rollout.columns[row, :length]
            context = rollout.observations["tokens"][row].clone()
            context[columns] = actions
            for action, column in zip(actions.tolist(), columns.tolist(), strict=True):
                self.left[tuple(context[:column].tolist())].append(action)

    def choose(self, context, drawn):
        return self.left[context].pop(0) if self.left[context] else None


def made(name, envs, **settings):
    cls, own = AGENTS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = tiny_policy("llama", envs, 0.7, critic="head" if cls.uses_critic else None)
    settings = {"episodes_per_update": EPISODES, "learning_rate": 0.01, "warmup_updates": 0, **own, **settings}
    agent = cls(policy, envs, **settings)
    agent.anchor.reference = tiny_policy("llama", envs, 0.7, seed=1).frozen_copy()
    return agent


def updated(agent):
    """Return the episodes of an update, its gradient before the first step, and its metrics."""
    rollout = agent.collect_rollout(as_callback(None, agent))
    backward(agent, agent.prepare(rollout))
    gradient = torch.cat([weight.grad.flatten() for weight in agent.policy.parameters() if weight.grad is not None])
    return rollout, gradient, rollout_metrics(rollout) | agent.update(rollout)


def said(rollout):
    """Return what was read and said in each episode and what it earned, in an order of their own."""
    parts = zip(rollout.observations["tokens"], rollout.actions, rollout.rewards, rollout.mask, strict=True)
    return sorted((read.tolist(), acts[own].tolist(), pay[own].tolist()) for read, acts, pay, own in parts)


@diagonal("name, env", list(AGENTS), list(ENVS), rare=["RLOO", "Distillation"])
def test_an_update_is_that_of_our_own_decoder(name, env):
    rollout, wanted, metrics = updated(made(name, ENVS[env]()))
    assert wanted.norm() > 1e-3 and (len(rollout) > EPISODES) == (name == "DAPO" and env == "answers")
    envs = ENVS[env]()
    engine = Reciting(tiny_policy("llama", envs, 0.7), rollout)
    through, found, others = updated(made(name, envs, engine=engine))
    assert said(through) == said(rollout) and not any(engine.left.values())
    assert relative_error(found, wanted) < CLOSE * SLACK
    assert others.keys() - metrics.keys() == {"train/mismatch_kl", "train/mismatch_weight"}
    for figure, value in metrics.items():
        assert others[figure] == pytest.approx(value, rel=CLOSE, abs=CLOSE, nan_ok=True), figure


# A task as a dialogue and as a program.


ASKED = [[user(text)] for text in ("a", "bc", "dad", "bb")]
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
    envs = gym.make_vec("TextGen-v0", 8, verifier=verifier, problems=ASKED, group_size=2, **SHAPE, **kwargs)
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
    return Program(hashing, alphabet=Game.alphabet, **kwargs)


OF_TURNS = {"agent": agents.PPO, "critic": "head", "settings": {"gamma": 0.9, "gae_lambda": 0.8}}
OF_WORKERS = {"verifier_workers": 2, "late_replies": True}


@pytest.mark.parametrize(
    ("episodes", "how", "program"),
    [(16, OF_TURNS, {"verifier_workers": 0}), slow(250, {}, {"verifier_workers": 0}), slow(250, OF_WORKERS, {})],
)
def test_a_dialogue_and_a_program_are_the_same_task(episodes, how, program):
    """With a critic and a discount, each turn has advantages of its own."""
    check_same(trained(Game(), episodes, **how), trained(as_program(), episodes, **how, **program))
