"""rlenv train under torchrun: one voice, one run folder; a killed process ends the job, and resuming goes on."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from jobs import Jobs, finished, worker
from processes import until

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Agent

pytestmark = pytest.mark.timeout(1800)
SMALL = [
    "train", "--device", "cpu", "--verifier-arg", "digits=1", "--sft-steps", "60", "--eval-episodes", "8",
    "--eval-every", "0", "--episodes-per-update", "8", "--num-envs", "8", "--no-report",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_job_within_30_seconds_and_one_command_goes_on(
    jobs: Jobs, tmp_path: Path, victim: int
) -> None:
    run = tmp_path / "run"
    job = jobs.start(*SMALL, "--episodes", 10**6, "--save-every-updates", 2, "--log-dir", "run")
    chosen = worker(job, victim)
    until((run / "checkpoint").exists, 600)
    chosen.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    code, _, errors = finished(job)
    assert time.monotonic() - killed < 30, errors
    assert code != 0, errors
    before = Agent.load(run / "checkpoint", device="cpu").num_episodes
    code, _, errors = jobs.run("train", "--resume", "run", "--episodes", before + 16)
    assert code == 0, errors
    assert Agent.load(run / "checkpoint", device="cpu").num_episodes == before + 16


@pytest.mark.slow
def test_a_comparison_is_shared_and_evaluations_are_equal(jobs: Jobs, tmp_path: Path) -> None:
    few = ["--episodes", 32, "--sft-steps", 5, "--eval-episodes", 8, "--episodes-per-update", 16, "--no-figures"]
    code, out, errors = jobs.run("compare", "--device", "cpu", "--agents", "rloo,grpo,ppo", "--seeds", 1, *few)
    assert code == 0, errors
    folder = tmp_path / "runs" / "compare-textgen-v0-arith"
    assert out.count("| agent |") == 1
    assert all((folder / name / "seed-0" / "result.json").is_file() for name in ("rloo", "grpo", "ppo"))
    evaluation = ["evaluate", folder / "grpo" / "seed-0", "--device", "cpu", "--episodes", 64, "--samples", 20]
    for processes in (1, 3):
        one = [*evaluation, "--out", f"{processes}.jsonl"]
        assert jobs.run(*one, processes=processes)[0] == 0
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "3.jsonl").read_bytes()


@pytest.mark.slow
def test_a_verifier_that_hangs_in_one_process_ends_the_job(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "sums.csv").write_text("prompt,answer\n1+1=,2\n1+2=,3\n2+2=,4\n1+3=,4\n")
    (tmp_path / "rewards.py").write_text(HANGS)
    options = ["--problems", "sums.csv", "--verifier", "rewards.py:hang", "--sft-steps", 0, "--process-timeout", 10]
    job = jobs.start(*SMALL[:3], *SMALL[7:], *options, "--test-fraction", 0.3, "--log-dir", "run")
    code, _, errors = finished(job)
    assert code != 0
    assert re.findall("^Error: .*--process-timeout", errors, re.MULTILINE), errors


HANGS = """
import os, time

def hang(prompts, completions, **columns):
    while os.environ["RANK"] == "1":
        time.sleep(1)
    return [0.0] * len(prompts)
"""
