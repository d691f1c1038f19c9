"""rlenv train --shard under torchrun: a run that is resumed with shards, and goes on without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Agent
from agents.policies.base import weights_digest

TRAIN = [
    "train", "--device", "cpu", "--verifier-arg", "digits=1", "--sft-steps", "60", "--eval-episodes", "8",
    "--eval-every", "0", "--episodes-per-update", "8", "--num-envs", "8", "--lr-schedule", "constant", "--no-report",
    "--kl-coef", "0.01", "--shard",
]  # fmt: skip


def rlenv_on(processes: int, folder: Path, *args: Any) -> str:
    """Run rlenv on so many processes; return what it prints on standard error."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    start = [*command, "-m", "rlenv"] if processes > 1 else [sys.executable, "-m", "rlenv"]
    done = subprocess.run(
        [*start, *map(str, args)], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def loaded(run: Path) -> tuple[str, int]:
    """Return the hash of a run's weights, read by this process alone, and its number of episodes."""
    agent = Agent.load(run / "checkpoint", device="cpu")
    return weights_digest(agent.policy), agent.num_episodes


@pytest.mark.slow
def test_a_sharded_run_is_resumed_evaluated_and_exported(tmp_path: Path) -> None:
    train = [*TRAIN, "--save-every-updates", "1"]
    rlenv_on(2, tmp_path, *train, "--episodes", 32, "--log-dir", "straight")
    rlenv_on(2, tmp_path, *train, "--episodes", 16, "--log-dir", "half")
    rlenv_on(2, tmp_path, "train", "--resume", "half", "--episodes", 32)
    assert loaded(tmp_path / "half") == loaded(tmp_path / "straight")
    earlier = tmp_path / "half/checkpoint-000003"
    rlenv_on(1, tmp_path, "export", earlier, "exported")
    exported, saved = map(AutoModelForCausalLM.from_pretrained, (tmp_path / "exported", earlier / "policy/model"))
    assert weights_digest(exported) == weights_digest(saved)
    rlenv_on(1, tmp_path, "evaluate", earlier, "--episodes", 8)
    assert list((tmp_path / "half/evaluations").glob("checkpoint-000003-*.jsonl"))
    rlenv_on(1, tmp_path, "train", "--resume", "half", "--no-shard", "--episodes", 48)
    assert loaded(tmp_path / "half")[1] == 48
