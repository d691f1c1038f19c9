"""What a run will need, and what a model of one's own gets where nobody says otherwise."""

import json
import re
from dataclasses import replace

import pytest
from inprocess import done, result_of, run
from tiny_models import tiny_model, write_chat_model

from rlenv._scripts.config.configs import SftConfig, TrainConfig
from rlenv._scripts.jobs import memory_plan, model_defaults
from rlenv.agents import processes
from rlenv.agents.language import memory
from rlenv.agents.language.memory import Workload
from rlenv.agents.language.sizes import rates_of

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


# What a model of one's own gets where nobody says otherwise.


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model that somebody else has trained."""
    write_chat_model(tmp_path / "own")
    return tmp_path / "own"


def test_larger_models_move_less_and_adapters_more():
    assert rates_of(500_000, False) == (3e-4, 2e-3), "the preset tiny"
    assert rates_of(494_000_000, False) == (1e-6, 1e-5)
    assert rates_of(494_000_000, True) == pytest.approx((1e-5, 1e-4))


def test_supervised_training_names_its_own_rate_and_steps(folder, tmp_path):
    """Three demonstrations in steps of two: each pass takes two steps, and no reward is learned from."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}+{n}=", "answer": "{2 * n}"}}\n' for n in (1, 2, 3)))
    options = ["--model", folder, "--problems", path, "--test-fraction", 0, "--sft-batch-size", 2, "--device", "cpu"]
    options += ["--max-new-tokens", 8, "--sft-learning-rate", 0.004, "--overwrite", "--log-dir", tmp_path / "run"]
    said = [done("sft", *options, *amount).stderr for amount in (["--epochs", 3], ["--sft-steps", 5])]
    lines = [next(line for line in each.splitlines() if "M parameters" in line) for each in said]
    assert "0.004" in lines[0] and " 6 steps" in lines[0] and " 5 steps" in lines[1]
    assert "warm start" not in lines[0] and "update" not in lines[0] and "pass per step" in lines[0]
    flags = ["--sft-learning-rate, --epochs, ", "--sft-learning-rate, --sft-steps, "]
    assert all(flag in line for flag, line in zip(flags, lines, strict=True))


def test_a_model_of_ones_own_is_not_imitated_away_and_passes_of_a_large_one_fit_the_memory(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(model_defaults, "LARGE", 1000)
    monkeypatch.setattr(memory_plan, "available", lambda device: 3 * 2**20)
    options = ["--model", folder, "--episodes-per-update", 256, "--episodes", 256, "--eval-episodes", 4]
    outcome = run("train", *options, "--device", "cpu", "--log-dir", tmp_path / "run", "--json")
    tokens = json.loads((tmp_path / "run" / "config.json").read_text())["micro_batch_tokens"]
    assert result_of(outcome)["sft_steps"] == 0
    for said in ("no steps of warm start", "learning rate 0.0003", "--learning-rate", f"{tokens} tokens per pass"):
        assert said in outcome.stderr
    assert model_defaults.warm_start_steps(None, "tiny") == model_defaults.STEPS, "presets learn from demonstrations"
    facts = json.loads((tmp_path / "run" / "checkpoint" / "agent.json").read_text())
    assert facts["settings"]["micro_batch_tokens"] == tokens
    again = TrainConfig(model=str(folder), sft_steps=0, settings={"micro_batch_tokens": 7})
    monkeypatch.setattr(model_defaults, "workload", lambda config: pytest.fail("the plan is made once"))
    assert model_defaults.passes(again) == 7


def test_runs_at_the_same_time_plan_with_their_share_and_supervised_passes_are_as_long_as_speed_needs(monkeypatch):
    network, free, work = tiny_model("llama").config, 4 * 2**20, Workload(8, 32, 24, episodes=32, slots=4, device="cpu")
    monkeypatch.setattr(model_defaults, "LARGE", 1)
    monkeypatch.setattr(memory_plan, "available", lambda device: free)
    monkeypatch.setattr(model_defaults, "workload", lambda config: (network, work))
    config = TrainConfig(model="someone/model")
    tokens = model_defaults.passes(config, together=3)
    peak = memory.plan(network, replace(work, micro_batch_tokens=tokens)).peak
    assert 0.6 * free < 3 * peak <= 0.8 * free
    assert model_defaults.passes(config) is None, "all in one pass"

    free, work = 2**40, Workload(8, 33, 24, episodes=256, slots=4, device="cpu")
    config = SftConfig(model="someone/model")
    assert model_defaults.passes_of_imitation(config) == 2048
    assert model_defaults.passes(config.into(TrainConfig)) is None, "all in one pass"
    assert model_defaults.passes_of_imitation(config.set(micro_batch_tokens=9000)) == 9000
    assert model_defaults.passes_of_imitation(config.set(micro_batch_size=3)) is None
    free = 2**21
    assert 32 <= model_defaults.passes_of_imitation(config) < 2048
    free, work = 2**40, replace(work, device="cuda")
    assert model_defaults.passes_of_imitation(config) is None, "a GPU is this run's alone"
