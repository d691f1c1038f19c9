"""Environments that say of some episodes only whether they succeeded, or got a verdict: the others are unknown.

Gymnasium fills the columns of a vector environment's infos with 0, False or None where an environment said nothing, and
says so in a mask; those zeros are not failures.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv

from agents import Collector, Rollout
from agents.rollout import ERROR, FAILURES
from agents.rollouts.envs import make_envs
from agents.rollouts.waiting_envs import WaitingVectorEnv
from agents.training.log_entry import drop_empty, record_metrics
from agents.training.metrics import evaluation_metrics, rollout_metrics

LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
EPISODES = 48
CPU = torch.device("cpu")


class Sparing(CountingEnv):
    """Episode i succeeds if i % 3 is 0, fails if i % 4 is 1 or 3, and has level 2 if i % 5 is 2; else says nothing."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info |= {"is_success": True} if self.episode % 3 == 0 else {}
            info |= {"verdict_status": "error", "verdict_reason": "odd"} if self.episode % 4 == 1 else {}
            info |= {"verifier_failed": True} if self.episode % 4 == 3 else {}
            info |= {"level": 2} if self.episode % 5 == 2 else {}
        return obs.copy(), reward, terminated, truncated, info


def envs_of(kind: Any, slots: int, env: type[CountingEnv] = Sparing) -> Any:
    ledger = Ledger(LENGTHS)
    makers = [lambda: env(ledger)] * slots
    if kind == "waiting":
        return WaitingVectorEnv(makers)
    if kind == "stable-baselines3":
        return make_envs(DummyVecEnv(makers), slots, None)
    return SyncVectorEnv(makers, autoreset_mode=kind)


def collected(kind: Any, slots: int, env: type[CountingEnv] = Sparing) -> Rollout:
    return Collector(envs_of(kind, slots, env), CPU).collect(CountingPolicy(), EPISODES)


@pytest.mark.parametrize("slots", [1, 3, 16])
@pytest.mark.parametrize("kind", [*AutoresetMode, "waiting", "stable-baselines3"])
def test_what_an_episode_does_not_say_is_unknown_for_any_number_of_slots(kind: Any, slots: int) -> None:
    rollout = collected(kind, slots)
    number = torch.arange(EPISODES)
    assert torch.equal(rollout.success.nan_to_num(-1), torch.where(number % 3 == 0, 1.0, -1.0))
    assert torch.equal(rollout.ok, number % 2 != 1), "an episode without a status has no failed verdict"
    assert torch.equal(rollout.status == ERROR, ~rollout.ok)
    figures = rollout_metrics(rollout)
    known = (rollout.ok & (number % 3 == 0)).sum() / rollout.ok.sum()
    assert figures["rollout/success_rate"] == figures["rollout/success_rate/level_2"] == 1
    assert figures["rollout/success_known_frac"] == pytest.approx(known.item())
    evaluation = evaluation_metrics(rollout)
    assert evaluation["success_rate"] == 1 and evaluation["success_known"] == pytest.approx(known.item())


def test_an_unknown_status_is_refused() -> None:
    class Vague(CountingEnv):
        def step(self, action: Any) -> Any:
            *step, info = super().step(action)
            return *step, info | {"verdict_status": "failed"}

    with pytest.raises(ValueError, match="verdict_status 'failed'; allowed: ok, timeout, error, not_applicable"):
        collected(AutoresetMode.NEXT_STEP, 1, Vague)


def test_success_that_is_none_or_nan_is_unknown() -> None:
    class Vague(CountingEnv):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = super().step(action)
            info["is_success"] = [True, None, math.nan][self.episode % 3]
            return obs.copy(), reward, terminated, truncated, info

    rollout = collected(AutoresetMode.NEXT_STEP, 1, Vague)
    assert torch.equal(rollout.success.nan_to_num(-1), torch.where(torch.arange(EPISODES) % 3 == 0, 1.0, -1.0))


def test_an_environment_that_never_says_has_no_rate() -> None:
    rollout = collected(AutoresetMode.NEXT_STEP, 4, CountingEnv)
    figures = rollout_metrics(rollout)
    assert "rollout/success_rate" not in figures and figures["rollout/success_known_frac"] == 0
    assert evaluation_metrics(rollout)["success_rate"] is None and "success_known" not in evaluation_metrics(rollout)


def test_the_known_share_is_logged_once_it_is_a_share() -> None:
    for shares, logged in (((0.0, 0.0), None), ((1.0, 1.0), None), ((0.0, 0.5), 0.25), ((1.0, 0.5), 0.75)):
        logger = Logger(None, [])
        for share in shares:
            record_metrics(logger, {"rollout/success_known_frac": share})
        drop_empty(logger, dict.fromkeys(FAILURES, 0), 0)
        assert logger.name_to_value.get("rollout/success_known_frac") == logged
