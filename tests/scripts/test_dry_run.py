"""What a run will need, and one line when memory runs out: which setting to lower, with the last checkpoint intact."""

import json
import re

import pytest
import torch
from _rlenv_scripts import memory_plan
from inprocess import run

from agents import Agent

TASK = ["--verifier-arg", "digits=1", "--eval-episodes", 8, "--sft-examples", 8, "--episodes-per-update", 8]
ALLOCATOR = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")


def dry_run(*options, task=TASK):
    return run("train", "--dry-run", *task, *options)


def planned(*options, task=TASK):
    return json.loads(dry_run("--json", *options, task=task).stdout)  # nothing else is printed


def test_the_options_count():
    plain = planned()
    other = planned("--dtype", "bfloat16", "--kl-coef", "0.1", "--sft-steps", 0, "--num-envs", 64)
    assert plain["parameters"] == other["parameters"] > 400_000
    assert other["bytes"]["weights"] * 2 == plain["bytes"]["weights"] == 4 * plain["parameters"]
    assert plain["bytes"]["reference"] == 0 < other["bytes"]["reference"]
    assert "warm start" in plain["peaks"] and "warm start" not in other["peaks"]
    assert other["bytes"]["KV cache"] > 3.9 * plain["bytes"]["KV cache"], "8 times the slots in half the precision"


def test_the_memory_of_a_teacher_is_planned(text_run):
    plan = planned("--agent", "distillation", "--teacher", text_run, task=[])
    alone = planned("--agent", "reinforce", task=[])
    assert plan["bytes"]["reference"] == plan["bytes"]["weights"] and alone["bytes"]["reference"] == 0
    assert plan["peaks"]["training"] - alone["peaks"]["training"] == plan["bytes"]["weights"]


@pytest.mark.parametrize(
    ("options", "free", "advice"),
    [
        (["--sft-steps", 0, "--max-new-tokens", 400], 50, r"\(training\).*; pass --micro-batch-tokens \d+$"),
        (["--sft-steps", 0, "--max-new-tokens", 2000], 20, "--activation-checkpointing, or lower --max-new-tokens"),
        (["--max-new-tokens", 30], 20, r"\(warm start\).*; lower --micro-batch-tokens or --sft-batch-size$"),
        (["--sft-steps", 0, "--num-envs", 5000], 20, r"\(acting\).*; lower --num-envs$"),
    ],
    ids=["micro-batches", "nothing fits", "warm start", "slots"],
)
def test_what_does_not_fit_is_refused_with_the_setting_to_lower(options, free, advice, monkeypatch):
    monkeypatch.setattr(memory_plan, "available", lambda device: free * 2**20)
    outcome = dry_run(*options)
    assert outcome.exit_code == 2 and "peak: training" in outcome.stdout
    (line,) = outcome.stderr.splitlines()
    assert f"and cpu has {free}.0 MiB free" in line
    assert re.search(advice, line), line


@pytest.mark.parametrize("error", [ALLOCATOR, MemoryError(), torch.OutOfMemoryError("CUDA out of memory")], ids=repr)
def test_a_run_that_runs_out_of_memory_says_which_setting_to_lower(error, tmp_path, monkeypatch):
    original, calls = Agent.update, []

    def fails(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            self.updating = True
            raise error
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Agent, "update", fails)
    more = ["--sft-steps", 2, "--save-every-updates", 1, "--eval-every", 0, "--episodes", 24]
    outcome = run("train", *TASK, *more, "--log-dir", tmp_path / "run")
    assert outcome.exit_code == 1, outcome.output
    assert outcome.stderr.splitlines()[-1].startswith("Error: out of memory: lower --micro-batch-tokens (training)")
    assert outcome.stderr.count("out of memory") == 1 and "Traceback" not in outcome.stderr
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu").num_updates == 1
