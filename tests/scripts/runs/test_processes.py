"""Processes of torchrun: which one speaks, a run that is started again, a torch without processes."""

import os
import subprocess
import sys

import pytest
import torch.distributed as dist
from _rlenv_scripts.runs import torchrun
from _rlenv_scripts.runs.torchrun import join
from inprocess import error_of, run


@pytest.mark.parametrize(("rank", "local", "said"), [(0, 0, "no file"), (1, 1, ""), (8, 0, "no file"), (9, 1, "")])
def test_an_error_before_the_processes_meet_is_printed_once_per_machine(rank, local, said, monkeypatch):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local))
    assert torchrun.said_once("no file") == said


def test_an_error_is_printed_once_and_none_that_follows_from_it(monkeypatch):
    monkeypatch.setattr(torchrun, "_store", dist.HashStore())
    errors = ["no file", "no file", torchrun.LOST, "no memory"]
    assert [torchrun.said_once(each) for each in errors] == ["no file", "", "", "no memory"]
    monkeypatch.setattr(torchrun, "_store", dist.HashStore())
    assert [torchrun.said_once(torchrun.LOST) for _ in range(2)] == [torchrun.LOST, ""]


def test_a_new_run_that_torchrun_starts_again_is_not_begun_anew(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "--resume RUN" in error_of(run("train", "--overwrite", "--log-dir", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_what_several_processes_cannot_do_is_said(monkeypatch, capfd):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("doctor", "run").exit_code == 2 and "doctor runs in one process" in capfd.readouterr().err
    with pytest.raises(ValueError, match="cuda:0 names one device"):
        join("cuda:0", None)
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


def cartpole_without_processes(folder, **environment):
    """Run a short training in a Python whose torch has no torch.distributed."""
    short = ["--episodes", "32", "--episodes-per-update", "16", "--eval-episodes", "4", "--no-report"]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PROCESSES, "train", "--env", "CartPole-v1", *short, "--log-dir", "run"],
        cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_one_process_trains_with_a_torch_without_processes(tmp_path):
    done = cartpole_without_processes(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "after:  mean reward" in done.stderr
