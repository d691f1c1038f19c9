"""The main job and CartPole under torchrun: two processes learn as one does, and measure themselves as one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inprocess import result_of, run
from jobs import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
MEASURED = ("episodes", "mean_reward", "success_rate", "mean_ep_length")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.close()


def learned(jobs: Jobs, seed: int, *options: Any) -> dict[str, Any]:
    """Return the result of a run of two processes, whose last evaluation one process finds the same.

    In control, the rounding of a larger batch may change an action, and with it the rest of an episode.
    """
    command = ["train", "--device", "cpu", "--seed", seed, "--no-report", "--json", "--log-dir", "run"]
    code, out, errors = jobs.run(*command, *options, seconds=3600)
    assert code == 0, errors
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    again = run("evaluate", jobs.folder / "run", "--device", "cpu", "--seed", seed, "--json")
    figures = result_of(again)
    rounds = not result["env"].startswith("TextGen")
    for name in MEASURED:
        found, expected = result["eval"][name], figures[name]
        assert found == (pytest.approx(expected, rel=0.01) if rounds and expected is not None else expected), name
    return result


@pytest.mark.parametrize("seed", range(3))
def test_two_processes_teach_a_language_model_addition(jobs: Jobs, seed: int) -> None:
    result = learned(jobs, seed)
    assert result["initial_eval"]["success_rate"] <= 0.80
    assert result["eval"]["success_rate"] >= 0.90


@pytest.mark.parametrize("seed", range(3))
def test_two_processes_balance_the_pole(jobs: Jobs, seed: int) -> None:
    result = learned(jobs, seed, "--env", "CartPole-v1", "--agent", "reinforce-baseline", "--stop-reward", 475)
    assert result["eval"]["mean_reward"] >= 475
    assert result["timesteps"] <= 100_000
