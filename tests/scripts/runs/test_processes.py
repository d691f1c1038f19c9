"""Processes of torchrun: who speaks before they have met, where a restarted job goes on, a torch without processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from _rlenv_scripts.runs.torchrun import processes
from _rlenv_scripts.runs.torchrun.processes import begun, join, keep_begun, said_once


@pytest.mark.parametrize(
    ("rank", "local", "said"), [(0, 0, "no such file"), (1, 1, ""), (8, 0, "process 8: no such file"), (9, 1, "")]
)
def test_an_error_before_the_processes_meet_is_printed_once_per_machine(
    rank: int, local: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local))
    assert said_once("no such file") == said


def test_a_restarted_job_goes_on_in_the_folder_that_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    monkeypatch.setattr(processes, "_store", dist.PrefixStore("rlenv/0", store))
    keep_begun(tmp_path)
    (tmp_path / "compare.json").touch()
    assert begun("compare.json") is None, "nothing was restarted"
    monkeypatch.setattr(processes, "_store", dist.PrefixStore("rlenv/1", store))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert begun("compare.json") == tmp_path
    assert begun("config.json") is None, "it was not written yet"


def test_several_processes_need_a_torch_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"2 processes, but this PyTorch was built without torch\.distributed"):
        join("cpu", None)


WITHOUT_PROCESSES = """
import sys
import torch.distributed

torch.distributed.is_available = lambda: False
parts = ["tensor", "device_mesh", "fsdp", "checkpoint", "distributed_c10d", "algorithms", "elastic", "rpc"]
for name in [*(f"torch.distributed.{part}" for part in parts), *sys.modules]:
    if name.startswith("torch.distributed."):
        sys.modules[name] = None

from _rlenv_scripts.main import main

main()
"""


def cartpole_without_processes(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a short training in a Python whose torch has no torch.distributed."""
    short = ["--episodes", "32", "--episodes-per-update", "16", "--eval-episodes", "4", "--no-report"]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PROCESSES, "train", "--env", "CartPole-v1", *short, "--log-dir", "run"],
        cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_one_process_trains_with_a_torch_without_processes(tmp_path: Path) -> None:
    done = cartpole_without_processes(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "after:  mean reward" in done.stderr
    refused = cartpole_without_processes(tmp_path, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    assert refused.returncode == 2
    [line] = refused.stderr.strip().splitlines()
    assert line.startswith("Error: torchrun started 2 processes, but this PyTorch was built without torch.distributed")
