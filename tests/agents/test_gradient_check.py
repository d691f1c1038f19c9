"""The exact check: that it finds what is wrong, and that it enumerates whatever an agent collects."""

import itertools
import threading

import pytest
import torch
from diagonal import slow
from planted import PLANTED

from rlenv import agents
from rlenv.agents import AGENTS, DAPO, GRPO, RLOO, Agent, Reinforce, ReinforceBaseline, gradient_check
from rlenv.agents.estimators import aggregation
from rlenv.agents.exact import World, true_gradient
from rlenv.agents.gradient_check import check_gradient

SMALL, DIALOGUES = World(2, 2, end=0), World(2, 2, end=0, turns=2)
ONE_PAIR, ONE_PROMPT = {"episodes": 2, "world": SMALL}, {"episodes": 3, "group_size": 3, "world": SMALL}


class ReMax(Agent):
    """REINFORCE against another answer to the same prompt, the greedy one (arXiv:2310.10505)."""

    weights = staticmethod(aggregation.sequence_sum)
    greedy = True

    def advantages(self, rollout):
        return (rollout.returns - self.replay(rollout, self.greedy).returns)[:, None].expand_as(rollout.rewards)


class AgainstADraw(ReMax):
    greedy = False


class SummedA2C(agents.A2C):
    weights = staticmethod(aggregation.sequence_sum)


# The expected gradient.


@pytest.mark.parametrize(
    ("cls", "settings", "error", "direction", "meaning"),
    [
        (Reinforce, {"group_size": 1, "episodes": 1}, 0, 1, "unbiased"),
        (RLOO, {"world": DIALOGUES, "gamma": 0.9, "episodes": 2}, 0, 1, "unbiased"),
        (ReMax, {"world": SMALL, "episodes": 2}, 0, 1, "unbiased"),
        (AgainstADraw, {"world": SMALL, "episodes": 1, "group_size": 1}, 0, 1, "unbiased"),
        (ReinforceBaseline, {"baseline": "james-stein", "episodes": 6, "world": World(2, 1)}, 0, 1, "unbiased"),
        (SummedA2C, {"world": DIALOGUES, "gae_lambda": 0.3, "episodes": 1, "group_size": 1}, 0, 1, "unbiased"),
        (ReinforceBaseline, {"baseline": "batch-mean", **ONE_PROMPT}, 1 / 3, 1, "right direction, scaled by 0.667"),
        (ReinforceBaseline, {**ONE_PAIR, "gamma": 0.5}, 0.1538, 0.9892, "8.4° off"),  # leaves out γ^t
        (agents.ReinforcePlusPlus, ONE_PAIR, 1.3877, -0.9984, "176.8° off"),
    ],
)
def test_every_rollout_by_itself(cls, settings, error, direction, meaning):
    found = check_gradient(cls, updates=False, **settings)
    assert (found.error, found.direction) == (pytest.approx(error, abs=6e-4), pytest.approx(direction, abs=6e-4))
    assert found.meaning.endswith(meaning)


def test_noise_is_the_variance_over_all_rollouts():
    """Of one REINFORCE episode, g = R ∇log π: E|g|² - |E g|²."""
    logits = torch.randn(1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    world, gains = World(3, 2, end=0), torch.arange(7) / 8
    scores = torch.autograd.functional.jacobian(world.log_probs, logits[0]).flatten(1)  # [C, S·V]
    pi, true = world.log_probs(logits[0]).exp(), true_gradient(world, logits, world.at_the_end(gains))
    wanted = (pi @ (gains[:, None] * scores).square().sum(1) - true.square().sum()) / true.square().sum()
    assert check_gradient(Reinforce, 1, 1, world, gains, updates=False).noise == pytest.approx(float(wanted), rel=1e-9)


def test_resampling_is_played_to_its_end():
    """A second round comes after two equal answers, so it adds their probability times the first round's gradient."""
    one = check_gradient(DAPO, **ONE_PAIR, updates=False, max_rounds=1)
    two = check_gradient(DAPO, updates=False, max_rounds=2)  # its world is smaller by default
    logits = torch.randn(1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    equal = SMALL.log_probs(logits).exp().square().sum()
    assert (one.rollouts, two.rollouts) == (9, 6 + 3 * 9) and not two.prompts
    assert two.scale / one.scale == pytest.approx(1 + float(equal), rel=1e-6)


class Lucky(RLOO):
    """Throws episodes away by a number that no check knows of."""

    draws = itertools.count()

    def collect_rollout(self, callback):
        rollout = super().collect_rollout(callback)
        if next(self.draws) % 3 == 0:
            super().collect_rollout(callback)
        return rollout


class Locked(RLOO):
    """Holds what has no copy."""

    def setup(self, env, group_size):
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (DAPO, {"max_rounds": 2}, "30 rollouts.*max_rounds"),
        (RLOO, {"episodes": 3, "world": SMALL}, "group_size=2 does not divide"),
        *((RLOO, {"world": World(*size)}, "prefixes; take fewer") for size in ((10**9, 1), (10, 9))),
        *((RLOO, each, "30 rollouts") for each in ({"episodes": 10**18}, {"world": World(2, 99, end=0)})),
        (RLOO, {"rewards": [1] * 4}, "the true gradient is 0"),
        (RLOO, {"rewards": [0, 1]}, "4 answers.*got 2"),
        (agents.Distillation, {}, "Distillation learns from a teacher"),
        (Lucky, ONE_PAIR, "Lucky"),
        (Locked, ONE_PAIR, "Locked cannot be copied, .*lock"),
    ],
)
def test_what_cannot_be_checked_is_one_line(cls, settings, message, monkeypatch):
    monkeypatch.setattr(gradient_check, "MOST_ROLLOUTS", 30)
    with pytest.raises(ValueError, match=message):
        check_gradient(cls, **settings)


def test_a_gradient_that_is_not_finite_and_one_that_is_nothing():
    class Nothing(RLOO):
        factor = 0.0

        def advantages(self, rollout):
            return super().advantages(rollout) * self.factor

    assert check_gradient(Nothing, **ONE_PAIR, updates=False).meaning == "no gradient"
    Nothing.factor = float("nan")
    assert check_gradient(Nothing, **ONE_PAIR, updates=False).meaning == "not finite"


# What a gradient at a ratio of 1 does not show.


@pytest.fixture
def few(monkeypatch):
    """Fewer rollouts than usual."""
    monkeypatch.setattr(gradient_check, "LOOKED_AT", 2)
    monkeypatch.setattr(gradient_check, "WORLDS", (SMALL,))


RARE = {"ForgetsTheDiscount", "NeverClips", "ForgottenWeights", "OwnReward", "Whitens"}
MISTAKES = [slow(*pair) if pair[0].__name__ in RARE else pair for pair in PLANTED.items()]


@pytest.mark.parametrize(("cls", "said"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_found_and_named(cls, said, few):
    found = check_gradient(cls, world=World(2, 1))
    assert said in found.verdict
    assert bool(found.faults) == (said.split(":")[0] in "".join(found.faults))


CLIPPED = {"reinforce-plus-plus", "ppo", "vapo", "grpo", "dr-grpo", "dapo", "gspo", "luspo", "gmpo", "maxrl", "gdpo"}
UNLIKE_PPO = {"gspo", "luspo", "gmpo", "sapo", "vespo", "topr", "kl-cov", "clip-cov"}  # inside the clip range
SAY_NOTHING_OF_DISCOUNTS = {"reinforce-plus-plus", "a2c", "ppo", "vapo", "dapo", "delightful"}


OWN = {"ppo", "clip-cov"}  # the others are slow
CHECKED = [name for name, cls in AGENTS.items() if not cls.needs_teacher]


@pytest.mark.parametrize("name", [name if name in OWN else slow(name) for name in CHECKED])
def test_ours_have_no_fault_and_the_ratio_that_their_papers_say(name, few):
    settings = {"dapo": {"max_rounds": 2}, "clip-cov": {"share": 0.3, "min_covariance": 0.0}}.get(name, {})
    found = check_gradient(AGENTS[name], episodes=2, world=SMALL, seed=5, **settings)
    update = found.update
    assert not found.faults and bool(found.discount) == (name not in SAY_NOTHING_OF_DISCOUNTS)
    if update.steps > 1:
        assert (update.inside > 1e-6) == (name in UNLIKE_PPO) and update.has_penalty == (name == "kl-cov")
        assert (update.stops[0] == "all") == (name in CLIPPED) and update.stops[1] == "none"
        assert update.reached[0] < 0.99 and update.reached[1] > 1.01
    if name in CLIPPED - UNLIKE_PPO:
        assert update.off_ppo < 1e-6


def test_passes_and_a_range_of_your_own(few):
    found = check_gradient(GRPO, **ONE_PAIR, num_epochs=3, num_minibatches=1, clip_range=0.1, max_ratio=1.3)
    assert (found.update.steps, found.update.clip_range, found.update.stops) == (3, (0.9, 1.1), ("all", "none"))
    assert any("3 steps" in said for said in found.checked) and "a second prompt" in found.unchecked
    one = check_gradient(GRPO, world=World(2, 1), episodes=2, num_epochs=1, num_minibatches=1)
    assert one.update.steps == 1 and any("ratios" in said for said in one.unchecked)
