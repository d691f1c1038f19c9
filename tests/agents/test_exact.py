"""The exact check: that it sees what is biased, and that it enumerates whatever an agent collects."""

import itertools

import pytest
import torch

from agents import (
    DAPO,
    RLOO,
    Agent,
    Distillation,
    DrGRPO,
    Reinforce,
    ReinforceBaseline,
    ReinforcePlusPlus,
    exact,
)
from agents.estimators import aggregation, returns
from agents.exact import World, check_gradient, true_gradient

SMALL, DIALOGUES = World(2, 2, end=0), World(2, 2, end=0, turns=2)
TWO_PROMPTS = {"episodes": 4, "group_size": 2, "world": SMALL}


class HalfBatchMean(RLOO):
    """A bias that shrinks with the number of episodes, so that the rollout has to be as it is."""

    def advantages(self, rollout):
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - gains.mean() / 2


class ReMax(Agent):
    """REINFORCE against another answer to the same prompt, the greedy one (arXiv:2310.10505)."""

    weights = staticmethod(aggregation.sequence_sum)
    greedy = True

    def advantages(self, rollout):
        return (rollout.returns - self.replay(rollout, self.greedy).returns)[:, None].expand_as(rollout.rewards)


class AgainstADraw(ReMax):
    greedy = False


# The check.


@pytest.mark.parametrize(
    ("cls", "settings", "error", "direction", "meaning"),
    [
        (Reinforce, {"group_size": 1}, 0, 1, "unbiased"),
        (RLOO, TWO_PROMPTS, 0, 1, "unbiased"),
        (RLOO, {"group_size": 2, "gamma": 0.9, "world": DIALOGUES}, 0, 1, "unbiased"),
        (ReMax, {"group_size": 2}, 0, 1, "unbiased"),
        (ReMax, TWO_PROMPTS, 0, 1, "unbiased"),
        (AgainstADraw, {"group_size": 2, "world": SMALL}, 0, 1, "unbiased"),
        (ReinforceBaseline, {"group_size": 1, "baseline": "running-mean"}, 0, 1, "unbiased"),
        (ReinforceBaseline, {"baseline": "batch-mean", "world": SMALL}, 1 / 3, 1, "right direction, scaled by 0.667"),
        (ReinforceBaseline, {"baseline": "batch-mean", **TWO_PROMPTS}, 1 / 4, 1, "0.75"),
        (HalfBatchMean, {"world": SMALL}, 1 / 6, 1, "scaled by 0.833"),
        (DrGRPO, {"group_size": 2}, 3 / 4, 1, "scaled by 0.25"),
        (ReinforceBaseline, {"group_size": 2, "gamma": 0.5}, 0.0825, 0.9967, "4.7° off"),  # leaves out γ^t
        (ReinforcePlusPlus, {"world": SMALL}, 0.7104, 0.9997, "elsewhere, 1.5° off"),
    ],
)
def test_every_rollout_by_itself(cls, settings, error, direction, meaning):
    found = check_gradient(cls, **settings)
    assert (found.error, found.direction) == (pytest.approx(error, abs=6e-4), pytest.approx(direction, abs=6e-4))
    assert found.meaning.endswith(meaning)


@pytest.mark.parametrize(
    ("settings", "noise"),
    [
        ({"baseline": "greedy", "episodes": 2, "group_size": 1, "world": SMALL}, 3.0),
        ({"baseline": "james-stein", "episodes": 6, "group_size": 2, "world": World(2, 1)}, 1.3),  # 1.6: leave-one-out
    ],
    ids=["greedy", "james-stein"],
)
def test_a_baseline_that_looks_beyond_its_group_is_exact(settings, noise):
    found = check_gradient(ReinforceBaseline, **settings)
    assert found.error < 1e-10 and found.noise == pytest.approx(noise, abs=0.05)


def test_noise_is_the_variance_over_all_rollouts():
    """Of one REINFORCE episode, g = R ∇log π: E|g|² - |E g|²."""
    logits = torch.randn(1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    world, gains = World(3, 2, end=0), torch.arange(7) / 8
    scores = torch.autograd.functional.jacobian(world.log_probs, logits[0]).flatten(1)  # [C, S·V]
    pi, true = world.log_probs(logits[0]).exp(), true_gradient(world, logits, world.at_the_end(gains))
    wanted = (pi @ (gains[:, None] * scores).square().sum(1) - true.square().sum()) / true.square().sum()
    assert check_gradient(Reinforce, 1, rewards=gains).noise == pytest.approx(float(wanted), rel=1e-9)


def test_resampling_is_played_to_its_end():
    """A second round comes after three equal answers, so it adds their probability times the first round's gradient."""
    one, two = (check_gradient(DAPO, world=SMALL, max_rounds=rounds) for rounds in (1, 2))
    logits = torch.randn(1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    equal = SMALL.log_probs(logits).exp().pow(3).sum()
    assert (one.rollouts, two.rollouts) == (27, 24 + 3 * 27)
    assert two.scale / one.scale == pytest.approx(1 + float(equal), rel=1e-6)


class Lucky(RLOO):
    """Throws episodes away by a number that no check knows of."""

    draws = itertools.count()

    def collect_rollout(self, callback):
        rollout = super().collect_rollout(callback)
        if next(self.draws) % 3 == 0:
            super().collect_rollout(callback)
        return rollout


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (RLOO, {"episodes": 6}, "100 rollouts"),
        (DAPO, {"world": SMALL}, "100 rollouts.*max_rounds"),
        (RLOO, {"episodes": 4, "world": SMALL}, "group_size=3 does not divide"),
        (RLOO, {"group_size": 2, "rewards": [1] * 7}, "the true gradient is 0"),
        (Distillation, {}, "Distillation learns from a teacher"),
        (Lucky, {"group_size": 2, "world": SMALL}, "Lucky"),
    ],
)
def test_what_cannot_be_checked_is_one_line(cls, settings, message, monkeypatch):
    monkeypatch.setattr(exact, "MOST_ROLLOUTS", 100)
    with pytest.raises(ValueError, match=message):
        check_gradient(cls, **settings)


def test_a_gradient_that_is_not_finite_and_one_that_is_nothing():
    class Nothing(RLOO):
        factor = 0.0

        def advantages(self, rollout):
            return super().advantages(rollout) * self.factor

    assert check_gradient(Nothing, 2, world=SMALL).meaning == "no gradient"
    Nothing.factor = float("nan")
    assert check_gradient(Nothing, 2, world=SMALL).meaning == "not finite"
    Nothing.factor = -1.0
    assert "away" in check_gradient(Nothing, 2, world=SMALL).meaning
