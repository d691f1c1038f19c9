"""What a run takes from the machine does not grow with its length, but for the log, and that is bounded."""

import gc
import math
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from stable_baselines3.common.logger import configure

import rlenv  # noqa: F401
from rlenv.agents import ReinforceBaseline
from rlenv.agents.training.metrics import thinned
from rlenv.verifiers.sandbox.worker import descendants

MB = 2**20
UPDATES = 10_000
EVENTS_MB = 20  # in 10,000 updates, each logged
TEXT = {"verifier": "length:4", "problems": ["a", "b"], "test_fraction": 0.0, "verifier_workers": 1}  # paid at once
proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what /proc lists")


@pytest.mark.parametrize("updates", [10_000, 10_001, 77_777])
def test_the_log_grows_with_the_logarithm_of_the_updates(updates):
    written = [update for update in range(1, updates + 1) if update % thinned(1, update) == 0]
    assert len(written) <= 10_000 + 5_000 * math.log2(updates / 10_000)
    for last, one in pairwise(written):
        assert one - last <= 2 ** max(0, math.ceil(math.log2(one / 10_000)))
    assert updates - written[-1] < thinned(1, updates)


def size(folder, pattern):
    return sum(path.stat().st_size for path in folder.glob(pattern))


def held():
    """Return what this process holds: open files, threads, processes below it, tensors."""
    gc.collect()
    tensors = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
    return len([*Path("/proc/self/fd").iterdir()]), threading.active_count(), len(descendants(os.getpid())), tensors


@proc
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["control", "text"])
def test_updates_leave_nothing_behind_but_their_entry_in_the_log(kind, tmp_path):
    settings = {"episodes_per_update": 4, "num_envs": 4, "device": "cpu", "learning_rate": 1e-6}  # episodes stay short
    world = {"env": "TextGen-v0", "env_kwargs": TEXT} if kind == "text" else {"env": "CartPole-v1"}
    agent = ReinforceBaseline("auto", **world, **settings)
    agent.set_logger(configure(str(tmp_path), ["csv", "tensorboard"]))
    counts, events, tables = [], [], []
    for _ in range(3):
        agent.learn(total_episodes=80, log_interval=1, reset_num_timesteps=False)
        counts.append(held())
        events.append(size(tmp_path, "events*"))
        tables.append(size(tmp_path, "*.csv"))
    assert agent.num_updates == 60
    assert all(later <= earlier for earlier, later in zip(counts[1], counts[2], strict=True)), counts
    for sizes in (events, tables):
        assert 0 < (sizes[2] - sizes[1]) / 20 * UPDATES <= EVENTS_MB * MB
        assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.2)
    agent.env.close()
    agent.logger.close()
