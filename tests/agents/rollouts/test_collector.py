"""What an episode that was cut off was looking at, when finished slots restart, and what a policy is told of it."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger
from diagonal import diagonal
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from identity_checks import collect
from time_limits import CutOff
from tiny_models import text_envs, tiny_policy

from agents import Collector, Rollout

CPU = torch.device("cpu")
LENGTHS = [1 + (7 * i * i + 3 * i) % 9 for i in range(200)]
modes = pytest.mark.parametrize("mode", list(AutoresetMode))
shapes = pytest.mark.parametrize(("episodes", "slots"), [(12, 4), (11, 3), (3, 5), (7, 7), (2, 1)])


class FreshEnv(CountingEnv):
    """Returns a new observation every time: Gymnasium keeps the last one of an episode without copying it."""

    def _observation(self) -> Any:
        return super()._observation().copy()


class DictEnv(FreshEnv):
    """The same, key by key; one of them counts in whole numbers."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.observation_space = spaces.Dict(
            episode=spaces.Box(-1, 1e6, (1,), np.float64), t=spaces.Box(0, 100, (), np.int64)
        )

    def _observation(self) -> Any:
        return {"episode": np.array([self.episode], dtype=np.float64), "t": np.array(self.t)}


class DictPolicy(CountingPolicy):
    def act(self, obs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return (obs["episode"][:, 0] + obs["t"]).long() % 3, torch.zeros(len(obs["t"])), None


class Mine(gym.Wrapper):
    """A wrapper without `state_dict`."""


def envs_of(env: type[CountingEnv], slots: int, mode: AutoresetMode) -> VectorEnv:
    ledger = Ledger(LENGTHS)
    return SyncVectorEnv([lambda: env(ledger)] * slots, copy=False, autoreset_mode=mode)


def odd(episodes: int) -> torch.Tensor:
    """Return which episodes of a `CountingEnv` are cut off [N]."""
    return torch.arange(episodes) % 2 == 1


@modes
@shapes
def test_final_observations_are_in_the_rows_of_their_episodes(mode: AutoresetMode, episodes: int, slots: int) -> None:
    env = FreshEnv if mode is AutoresetMode.SAME_STEP else CountingEnv  # which reuses its buffer
    rollout = Collector(envs_of(env, slots, mode), CPU).collect(CountingPolicy(), episodes)
    cut = odd(episodes)
    assert torch.equal(rollout.truncated & ~rollout.terminated, cut)
    wanted = torch.stack([torch.arange(episodes), torch.tensor(LENGTHS[:episodes])], 1) * cut[:, None]
    assert torch.equal(rollout.final_observations, wanted.float())


@modes
@shapes
def test_final_observations_are_kept_key_by_key(mode: AutoresetMode, episodes: int, slots: int) -> None:
    rollout = Collector(envs_of(DictEnv, slots, mode), CPU).collect(DictPolicy(), episodes)
    cut = odd(episodes)
    assert set(rollout.final_observations) == {"episode", "t"}
    number, t = rollout.final_observations["episode"], rollout.final_observations["t"]
    assert torch.equal(number, (torch.arange(episodes) * cut).float()[:, None])
    assert torch.equal(t, torch.tensor(LENGTHS[:episodes]) * cut)
    assert rollout.observations["t"].dtype == t.dtype == torch.int64
    assert rollout.observations["episode"].dtype == number.dtype == torch.float32


@modes
def test_final_observations_of_text_are_prompt_and_completion(mode: AutoresetMode) -> None:
    envs = CutOff(text_envs(4, autoreset_mode=mode))
    rollout = collect(tiny_policy("gpt2", envs), envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12, "some episodes are cut off and some are not"
    tokens, lengths = rollout.final_observations["tokens"], rollout.final_observations["length"]
    prompts = rollout.observations
    assert torch.equal(lengths, (prompts["length"] + 12) * cut)
    for i in cut.nonzero()[:, 0].tolist():
        prompt = prompts["tokens"][i, : prompts["length"][i]]
        assert torch.equal(tokens[i, : lengths[i]], torch.cat([prompt, rollout.actions[i]]))
    assert not tokens[~cut].any()


@modes
def test_the_verdict_on_text_that_ran_out_of_budget_is_final(mode: AutoresetMode) -> None:
    envs = text_envs(4, autoreset_mode=mode)
    rollout = collect(tiny_policy("gpt2", envs), envs, 12)
    assert rollout.truncated.any() and rollout.terminated.all()
    assert rollout.final_observations is None


@pytest.mark.parametrize(("wrapper", "lost"), [(gym.wrappers.NormalizeReward, []), (Mine, ["Mine"])])
def test_a_wrapper_of_ones_own_that_says_nothing_of_its_state_is_named_once(wrapper: Any, lost: list[str]) -> None:
    collector = Collector(SyncVectorEnv([lambda: wrapper(gym.make("CartPole-v1"))] * 2), CPU)
    collector.state_dict()
    with warnings.catch_warnings(record=True, action="always") as found:
        collector.warn_of_loss()
        collector.warn_of_loss()
    assert [str(each.message).partition(" can ")[0] for each in found] == [f"nothing of the wrapper {n}" for n in lost]


# When finished slots restart.


def play(envs: VectorEnv, episodes: int) -> tuple[Rollout, list[tuple[list[int], list[int], int]]]:
    """Collect; return the rollout and, of each step, who plays, who restarts after it and who ended with it."""
    policy, gather, steps = tiny_policy("gpt2", envs), Collector(envs, CPU), []
    act, reset, step = policy.act, envs.reset, envs.step

    def listen(*args: Any, playing: torch.Tensor, **kwargs: Any) -> Any:
        assert playing.device.type == "cpu" and playing.dtype is torch.bool
        steps.append((playing.nonzero()[:, 0].tolist(), [], []))
        return act(*args, playing=playing, **kwargs)

    def restart(**kwargs: Any) -> Any:
        if steps:
            steps[-1][1].extend(np.flatnonzero(kwargs["options"]["reset_mask"]).tolist())
        return reset(**kwargs)

    def count(actions: torch.Tensor) -> Any:
        made = step(actions)
        steps[-1][2].extend((made[2] | made[3]).nonzero()[:, 0].tolist())
        return made

    policy.act, envs.reset, envs.step = listen, restart, count  # type: ignore[method-assign]
    gather.seed(0)
    rollout = gather.collect(policy, episodes, torch.Generator().manual_seed(0))
    assert rollout is not None
    return rollout, steps


@diagonal("mode, slots", list(AutoresetMode), [16, 40])
def test_a_policy_knows_which_slots_take_a_step(mode: AutoresetMode, slots: int) -> None:
    rollout, steps = play(text_envs(slots, autoreset_mode=mode), 25)
    if mode is AutoresetMode.DISABLED:
        assert sum(len(playing) for playing, *_ in steps) == int(rollout.mask.sum()), "the others wait"
        restarts = [len(restarted) for _, restarted, _ in steps if restarted]
        assert all(slots / 8 <= number for number in restarts[:-1]), "several at a time"
    else:
        resting = [0, *(len(ended) for *_, ended in steps)] if mode is AutoresetMode.NEXT_STEP else [0] * len(steps)
        assert all(len(playing) == slots - rests for (playing, *_), rests in zip(steps, resting, strict=False))
    with torch.no_grad():
        log_probs = tiny_policy("gpt2", text_envs(1)).evaluate(rollout)["log_probs"]
    gap = (log_probs - rollout.log_probs).abs().max()
    assert gap < 1e-12, "a slot that takes no step may have got any token"
