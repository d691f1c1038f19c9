"""The figures of a rollout and of an evaluation."""

import gymnasium as gym
import pytest
import torch

import rlenv  # noqa: F401
from agents import Reinforce, VerifierError
from agents.rollout import ERROR, OK, Batch, Rollout
from agents.training.metrics import critic_metrics, is_logged, rollout_metrics


def nothing(prompts, completions, **columns):
    return [None] * len(completions)


def alternating(prompts, completions, **columns):
    return [None if i % 2 else 1.0 for i in range(len(completions))]


def evaluate(function, episodes):
    env = gym.make_vec(
        "TextGen-v0", num_envs=episodes, verifier=function, problems=["ab"], test_fraction=0.0, max_new_tokens=1
    )
    return Reinforce("tiny", env, device="cpu").evaluate(env, episodes, seed=0)[0]


def test_an_evaluation_without_a_single_verdict_is_a_fault_and_no_zero():
    with pytest.raises(VerifierError, match="the verifier reached no verdict on all 4 episodes"):
        evaluate(nothing, 4)


def test_failed_verdicts_count_for_nothing():
    figures = evaluate(alternating, 10)
    assert (figures["episodes"], figures["mean_reward"], figures["success_rate"]) == (5, 1.0, 1.0)


def batch_of(values, targets, **changes):
    """Return a batch of one episode per row, whose critic said `values` and is fitted to `targets` [N, T]."""
    shape = torch.tensor(targets).shape
    ones = torch.ones(shape)
    ends = torch.ones(shape[0], dtype=torch.bool)
    rollout = Rollout(
        observations=ones, actions=ones, log_probs=ones, rewards=ones, mask=ones.bool(), terminated=ends,
        truncated=~ends, groups=torch.arange(shape[0]), status=(~ends).long(), success=torch.zeros(shape[0]),
        values=None if values is None else torch.tensor(values),
    )  # fmt: skip
    return Batch.of(rollout, advantages=ones, weights=ones, value_targets=torch.tensor(targets), **changes)


@pytest.mark.parametrize(
    ("values", "explained"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], 1.0),
        ([[6.0, 7.0], [8.0, 9.0]], 1.0),  # a constant error is not of the variance
        ([[5.0, 5.0], [5.0, 5.0]], 0.0),
        ([[-1.0, -2.0], [-3.0, -4.0]], -3.0),
    ],
)
def test_the_share_of_the_variance_that_a_critic_explains(values, explained):
    batch = batch_of(values, [[1.0, 2.0], [3.0, 4.0]])
    assert critic_metrics(batch)["train/explained_variance"] == pytest.approx(explained)


def test_nothing_is_explained_without_a_critic_or_a_spread():
    assert critic_metrics(batch_of(None, [[1.0, 2.0]])) == {}
    assert critic_metrics(batch_of([[1.0, 2.0]], [[3.0, 3.0]])) == {}


def test_episodes_without_a_verdict_do_not_count_in_it():
    batch = batch_of([[1.0], [2.0], [9.0]], [[1.0], [2.0], [-9.0]], status=torch.tensor([OK, OK, ERROR]))
    assert critic_metrics(batch)["train/explained_variance"] == 1.0


@pytest.mark.parametrize(("interval", "logged"), [(1, [1, 2, 3, 4, 5, 6]), (3, [1, 3, 6]), (100, [1])])
def test_the_first_update_is_logged_and_every_nth(interval, logged):
    assert [update for update in range(1, 7) if is_logged(interval, update)] == logged


def test_a_part_of_the_reward_is_one_column_whatever_its_name():
    rollout = batch_of([[0.0], [0.0]], [[1.0], [1.0]])
    rollout.extras = {'parts/a,"b"\n': torch.tensor([1.0, 3.0]), "parts/half right": torch.ones(2)}
    metrics = rollout_metrics(rollout)
    assert metrics["rollout/parts/a__b__"] == 2.0 and metrics["rollout/parts/half right"] == 1.0


def test_the_share_of_sampled_tokens_that_are_in_no_text():
    rollout = batch_of(None, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [9.0, 9.0, 9.0]])
    rollout.actions = torch.tensor([[0, 5, 1], [3, 1, 0], [0, 0, 0]])
    rollout.mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    rollout.status = torch.tensor([OK, OK, ERROR])
    assert rollout_metrics(rollout, hidden=(0, 3))["rollout/special_tokens"] == 2 / 5
    assert "rollout/special_tokens" not in rollout_metrics(rollout)
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, device="cpu", episodes_per_update=64)
    assert 0 < agent.learn(total_episodes=64).last_metrics["rollout/special_tokens"] < 0.3
