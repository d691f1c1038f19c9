"""GDPO from end to end: parts and weights come from the verifier, through every kind of environment; parts by hand."""

import contextlib
import math
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from tabular import make_agent
from updates import N, sample

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._status import ERROR
from rlenv.agents import GDPO, Agent
from rlenv.agents.rollout import join
from rlenv.verifiers import make_verifier

SUM = {"verifier": "weighted", "verifier_kwargs": {"parts": {"arith": 1, "length": {"weight": 0.25, "maximum": 2}}}}
WEIGHTS = {"arith": 1.0, "length": 0.25}
SMALL = {"group_size": 4, "episodes_per_update": 16, "num_envs": 8, "seed": 3, "device": "cpu"}


def made(**settings):
    return GDPO("tiny", "TextGen-v0", **{"env_kwargs": SUM, **SMALL, **settings})


def test_parts_and_weights_are_those_of_the_verifier_in_every_kind_of_environment():
    assert gym.make("TextGen-v0", **SUM).metadata["part_weights"] == WEIGHTS
    assert make_verifier(["arith", "length=0.25"]).part_weights == WEIGHTS
    assert made().weight_of == WEIGHTS
    for more in ({}, {"vectorization_mode": "sync"}, {"verifier_workers": 1}):
        with contextlib.closing(gym.make_vec("TextGen-v0", num_envs=2, **SUM, **more)) as envs:
            assert envs.metadata["part_weights"] == WEIGHTS


def test_parts_stay_with_their_episodes_where_rollouts_are_joined():
    """Several processes join what each has collected."""
    rollout = replace(sample(), extras={"parts/right": torch.rand(N), "parts/tidy": torch.rand(N)})
    agent = made(part_weights={"right": 1.0, "tidy": 0.5})
    whole = agent.advantages(rollout)
    one, two = rollout.select(slice(0, 8)), rollout.select(slice(8, N))
    torch.testing.assert_close(agent.advantages(join([one, two], False)), whole, rtol=0, atol=1e-12)
    del one.extras["parts/tidy"]  # as if none of its verdicts had the part
    lacking = torch.where(torch.arange(N) < 8, torch.nan, rollout.extras["parts/tidy"])
    wanted = agent.advantages(replace(rollout, extras=rollout.extras | {"parts/tidy": lacking}))
    torch.testing.assert_close(agent.advantages(join([one, two], False)), wanted, rtol=0, atol=1e-12)


def test_weights_come_back_from_a_checkpoint(tmp_path):
    agent = made(part_weights={"length": 2.0}).learn(total_episodes=16)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert isinstance(again, GDPO)
    assert again.part_weights == again.weight_of == {"length": 2.0}
    ours, theirs = (next(one.updates(16, reset_num_timesteps=False))[1] for one in (agent, again))
    assert ours == theirs


# Parts in a group.


def gdpo_advantages(rollout, **settings):
    return make_agent(GDPO, 4, **settings).prepare(rollout).advantages[:, 0].tolist()


def with_columns(**columns):
    """Return a rollout of groups of 4 whose verdicts have these parts; NaN for none."""
    rows = len(next(iter(columns.values())))
    rollout = sample().select(torch.arange(rows))
    return replace(rollout, extras={f"parts/{name}": torch.tensor(part) for name, part in columns.items()})


def test_a_part_that_a_verdict_lacks_adds_nothing_and_enters_no_mean():
    nan = float("nan")
    rollout = with_columns(right=[1.0, 0, 1, 0, 1, 0, 1, 0], tidy=[nan, 1.0, 0.0, nan, nan, nan, nan, 5.0])
    right, tidy = 0.5 / (math.sqrt(1 / 3) + 1e-4), 0.5 / (math.sqrt(1 / 2) + 1e-4)
    sums = [right, tidy - right, right - tidy, -right, right, -right, right, -right]
    wanted = [one / math.sqrt(sum(each**2 for each in sums) / 8) for one in sums]
    assert gdpo_advantages(rollout, part_weights={"right": 1, "tidy": 1}) == pytest.approx(wanted, abs=1e-6)


def test_a_part_that_no_verdict_has_is_named_in_the_first_update():
    agent = make_agent(GDPO, 4, part_weights={"right": 1.0, "tody": 1.0})
    with pytest.raises(ValueError, match=r"^part_weights names 'tody', but the verdicts .* the parts right, tidy$"):
        agent.update(with_columns(right=[1.0, 0, 1, 0], tidy=[0.0, 10, 0, 0]))
    with pytest.raises(ValueError, match=r"^part_weights names 'right', but the verdicts .* no named parts$"):
        agent.update(sample())
    failed = replace(sample(), status=torch.full((N,), ERROR))
    assert agent.update(failed)["train/grad_norm"] == 0  # they say nothing of names
