"""What a model of one's own gets where nobody says otherwise."""

import json
from dataclasses import replace

import inprocess
import pytest
from inprocess import result_of
from tiny_models import tiny_model

from rlenv._scripts.config.configs import SftConfig, TrainConfig
from rlenv._scripts.jobs import memory_plan, model_defaults
from rlenv.agents.language import memory
from rlenv.agents.language.memory import Workload
from rlenv.agents.language.sizes import rates_of
from rlenv.tokenizer import character_tokenizer
from rlenv.verifiers import make_verifier

SMALL = ["--episodes", "8", "--episodes-per-update", "8", "--eval-episodes", "4", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model that somebody else has trained."""
    tokenizer = character_tokenizer(make_verifier("arith").alphabet)
    tiny_model("llama", len(tokenizer)).save_pretrained(tmp_path / "own")
    tokenizer.save_pretrained(tmp_path / "own")
    return tmp_path / "own"


def run(*options):
    outcome = inprocess.run("train", "--json", *SMALL, *options)
    return result_of(outcome), outcome.stderr


def test_larger_models_move_less_and_adapters_more():
    assert rates_of(500_000, False) == (3e-4, 2e-3), "the preset tiny"
    assert rates_of(494_000_000, False) == (1e-6, 1e-5)
    assert rates_of(494_000_000, True) == pytest.approx((1e-5, 1e-4))


def test_a_model_of_ones_own_is_not_imitated_away(folder, tmp_path):
    result, said = run("--model", folder, "--log-dir", tmp_path / "run")
    assert result["sft_steps"] == 0
    assert "no steps of warm start" in said and "learning rate 0.0003" in said and "--learning-rate" in said
    assert model_defaults.warm_start_steps(None, "tiny") == model_defaults.STEPS, "presets learn from demonstrations"


def test_supervised_training_names_its_own_rate_and_steps(folder, tmp_path):
    """Three demonstrations in steps of two: each pass takes two steps, and no reward is learned from."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}+{n}=", "answer": "{2 * n}"}}\n' for n in (1, 2, 3)))
    options = ["--model", folder, "--problems", path, "--test-fraction", 0, "--sft-batch-size", 2, "--device", "cpu"]
    options += ["--max-new-tokens", 8, "--sft-learning-rate", 0.004, "--overwrite", "--log-dir", tmp_path / "run"]
    lines = []
    for amount in (["--epochs", "3"], ["--sft-steps", "5"]):
        outcome = inprocess.run("sft", *options, *amount)
        assert outcome.exit_code == 0, outcome.stderr
        lines.append(next(line for line in outcome.stderr.splitlines() if "M parameters" in line))
    assert "0.004" in lines[0] and " 6 steps" in lines[0] and " 5 steps" in lines[1]
    assert "warm start" not in lines[0] and "update" not in lines[0] and "pass per step" in lines[0]
    flags = ["--sft-learning-rate, --epochs, ", "--sft-learning-rate, --sft-steps, "]
    assert all(flag in line for flag, line in zip(flags, lines, strict=True))


def test_passes_of_a_large_model_fit_the_memory_and_are_kept_for_a_repetition(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(model_defaults, "LARGE", 1000)
    free = 3 * 2**20
    monkeypatch.setattr(memory_plan, "available", lambda device: free)
    options = ["--model", folder, "--episodes-per-update", "256", "--episodes", "256"]
    _, said = run(*options, "--log-dir", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    tokens = config["micro_batch_tokens"]
    assert f"{tokens} tokens per pass" in said
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
