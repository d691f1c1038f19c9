"""What a run will need, and one line when memory runs out: which setting to lower, with the last checkpoint intact."""

import json
import re

import pytest
import torch
from inprocess import run

from rlenv._scripts.jobs import memory_plan
from rlenv.agents import Agent, processes

TASK = ["--verifier-arg", "digits=1", "--eval-episodes", 8, "--sft-examples", 8, "--episodes-per-update", 8]


def dry_run(*options, task=TASK):
    return run("train", "--dry-run", *task, *options)


def planned(*options, task=TASK):
    return json.loads(dry_run("--json", *options, task=task).stdout)  # nothing else is printed


def test_the_memory_of_a_teacher_is_planned(text_run):
    plan = planned("--agent", "distillation", "--teacher", text_run, task=[])
    alone = planned("--agent", "reinforce", task=[])
    assert plan["bytes"]["reference"] == plan["bytes"]["weights"] and alone["bytes"]["reference"] == 0
    assert plan["peaks"]["training"] - alone["peaks"]["training"] == plan["bytes"]["weights"]


def test_a_critic_is_planned_for_the_settings_that_need_one():
    own = ["--agent", "reinforce-baseline", "--baseline"]
    critic = ["--policy-arg", "critic=separate"]
    without, with_one = planned(*own, "none"), planned(*own, "value", *critic)
    assert without["parameters"] < with_one["parameters"] == planned("--agent", "ppo", *critic)["parameters"]


LONG, MANY = "--max-new-tokens", ["--episodes-per-update", 64]
AGAIN = "plan again with"  # other options, since nothing fits
EVERY = "acting", "training", "optimizer step"


@pytest.mark.usefixtures("true_sizes")
@pytest.mark.parametrize(
    ("options", "free", "phases"),
    [
        ([LONG, 400], 50, {"training": "--micro-batch-tokens"}),
        ([LONG, 2000], 20, {"acting": "--num-envs", "training": AGAIN}),
        (["--num-envs", 5000], 20, {"acting": "--num-envs"}),
        ([*MANY, "--kl-coef", 0.1], 8, dict.fromkeys(EVERY, "--kl-coef 0, ")),
        (MANY, 5, dict.fromkeys(EVERY, "--shard or")),
    ],
    ids=["micro-batches", "long answers", "slots", "reference", "weights"],
)
def test_every_phase_that_does_not_fit_is_named_with_what_makes_it_fit(options, free, phases):
    machine = ["--plan-memory", f"{free}M", "--device", "cpu"]
    outcome = dry_run("--json", *options, *machine)
    plan, (line,) = json.loads(outcome.stdout), outcome.stderr.splitlines()
    assert outcome.exit_code == 2 and f"{free}.0 MiB" in line
    assert [*plan["remedies"]] == [name for name, size in plan["peaks"].items() if size > free * 2**20]
    assert plan["remedies"].keys() == phases.keys()
    for phase, said in phases.items():
        remedy = plan["remedies"][phase]
        assert f"{phase} (" in line and said in remedy and remedy in line
        if AGAIN not in remedy:
            again = dry_run("--json", *options, *machine, *re.findall(r"--[a-z-]+|\d+", remedy))
            assert json.loads(again.stdout)["peaks"][phase] <= free * 2**20


@pytest.mark.usefixtures("true_sizes")
def test_what_a_run_does_already_is_not_proposed():
    options = ["--lora-rank", 4, "--dtype", "bfloat16", "--activation-checkpointing"]
    remedies = json.loads(dry_run("--json", *MANY, *options, "--plan-memory", "1M").stdout)["remedies"].values()
    assert {*remedies} == {f"{AGAIN} fewer --max-new-tokens, --shard or a smaller --model"}


def test_a_plan_for_processes_is_that_of_the_processes(monkeypatch):
    """Weights are divided by --shard alone; slots, episodes and the free memory of a CPU always."""
    monkeypatch.setattr(memory_plan, "available", lambda device: 2**33)
    one, four = planned(*MANY, "--device", "cpu"), planned(*MANY, "--device", "cpu", "--plan-processes", 4)
    shards = planned(*MANY, "--device", "cpu", "--plan-processes", 4, "--shard")
    held = ("weights", "gradients", "optimizer")
    assert [four["bytes"][name] for name in held] == [one["bytes"][name] for name in held]
    assert [shards["bytes"][name] * 4 for name in held] == [one["bytes"][name] for name in held]
    assert four["bytes"]["KV cache"] * 4 == one["bytes"]["KV cache"] and four["processes"] == 4
    assert four["available"] * 4 == one["available"] == 2**33
    gpu = planned(*MANY, "--plan-memory", "1.5G")
    assert gpu["available"] == 1.5 * 2**30 and gpu["peaks"]["acting"] < one["peaks"]["acting"], "nothing is packed"
    monkeypatch.setattr(processes, "size", lambda: 4)
    monkeypatch.setattr(processes, "rank", lambda: 0)
    real = planned(*MANY, "--device", "cpu", "--shard")
    assert real | {"available": 0} == shards | {"available": 0}


def test_a_run_that_runs_out_of_memory_says_which_setting_to_lower(tmp_path, monkeypatch):
    original, calls = Agent.update, []

    def fails(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            self.updating = True
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Agent, "update", fails)
    more = ["--sft-steps", 2, "--save-every-updates", 1, "--eval-every", 0, "--episodes", 24]
    outcome = run("train", *TASK, *more, "--log-dir", tmp_path / "run")
    assert outcome.exit_code == 1, outcome.output
    assert outcome.stderr.splitlines()[-1].startswith("Error: out of memory: lower --micro-batch-tokens (training)")
    assert outcome.stderr.count("out of memory") == 1 and "Traceback" not in outcome.stderr
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu").num_updates == 1
