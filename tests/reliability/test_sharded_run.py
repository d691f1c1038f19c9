"""rlenv train --shard under torchrun: a run that is resumed with shards, and goes on without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inprocess import done, result_of, run
from jobs import Jobs
from transformers import AutoModelForCausalLM

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Agent
from agents.policies.base import weights_digest

TRAIN = [
    "train", "--device", "cpu", "--verifier-arg", "digits=1", "--sft-steps", "60", "--eval-episodes", "8",
    "--eval-every", "0", "--episodes-per-update", "8", "--num-envs", "8", "--lr-schedule", "constant", "--no-report",
    "--kl-coef", "0.01", "--shard", "--save-every-updates", "1",
]  # fmt: skip


def loaded(run: Path) -> tuple[str, int]:
    """Return the hash of a run's weights, read by this process alone, and its number of episodes."""
    agent = Agent.load(run / "checkpoint", device="cpu")
    return weights_digest(agent.policy), agent.num_episodes


@pytest.mark.slow
def test_a_sharded_run_is_resumed_evaluated_and_exported(jobs: Jobs, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    resumed = ["train", "--resume", "half", "--episodes", 32]
    halves = [*TRAIN, "--episodes", 16, "--log-dir", "half"]
    for command in ([*TRAIN, "--episodes", 32, "--log-dir", "straight"], halves, resumed):
        code, out, errors = jobs.run(*command)
        assert code == 0, errors
        assert out.count("Run folder") == 1 and errors.count("after:") == 1, "one voice"
    assert loaded(tmp_path / "half") == loaded(tmp_path / "straight")
    earlier = tmp_path / "half/checkpoint-000003"
    for command in (["export", earlier, "exported"], ["evaluate", earlier, "--episodes", 8]):
        done(*command)
    exported, saved = map(AutoModelForCausalLM.from_pretrained, (tmp_path / "exported", earlier / "policy/model"))
    assert weights_digest(exported) == weights_digest(saved)
    assert list((tmp_path / "half/evaluations").glob("checkpoint-000003-*.jsonl"))
    result_of(run("train", "--resume", "half", "--no-shard", "--episodes", 48, "--json"))
    assert loaded(tmp_path / "half")[1] == 48
