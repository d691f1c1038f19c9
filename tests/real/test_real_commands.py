"""The commands with SmolLM2: a run that is exported, dealt out to two processes, and planned."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from inprocess import done, result_of, run
from runs import table
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlenv.agents.policies import tokenizer_of

# The longer, the better: every update has a gradient. Passes are given: else they are what fits the free memory.
LENGTH = [f"--verifier-arg={name}" for name in ("minimum=60", "maximum=90", "margin=60")]
SETTINGS = [
    "train", "--model", "smollm2", "--verifier", "length", *LENGTH, "--agent", "rloo", "--group-size", 4,
    "--max-new-tokens", 8, "--episodes-per-update", 8, "--num-envs", 8, "--eval-episodes", 4, "--eval-every", 0,
    "--log-interval", 1, "--save-every-updates", 1, "--micro-batch-tokens", 4096, "--device", "cpu", "--no-report",
    "--json",
]  # fmt: skip
ADAPTER = ["--lora-rank", 8, "--learning-rate", 1e-3, "--episodes", 24]


def updates_of(folder):
    """Return the figures of the updates of a run."""
    return [row for row in table(folder) if row["train/grad_norm"]]


@pytest.fixture(scope="module")
def straight(problems, tmp_path_factory):
    """Return the folder of a run of three updates without a break."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    done(*SETTINGS, *ADAPTER, "--problems", problems, "--log-dir", folder)
    assert all(float(row["train/grad_norm"]) > 0 for row in updates_of(folder)), "there must be something to learn"
    return folder


def test_an_export_writes_the_text_that_the_run_was_evaluated_with(straight, tmp_path):
    answers = tmp_path / "answers.jsonl"
    result_of(run("evaluate", straight, "--episodes", 4, "--device", "cpu", "--out", answers, "--json"))
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    greedy = [row for row in rows if row["mode"] == "greedy"]
    done("export", straight, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert len(greedy) == 4
    for row in greedy:
        ids = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_tensors="pt")["input_ids"]
        made = model.generate(ids, max_new_tokens=8)[0, ids.shape[1] :]
        assert tokenizer.decode(made, skip_special_tokens=True) == row["completion"]


def test_two_processes_that_share_the_weights_train_them_and_one_reads_them(jobs, problems):
    """All weights are trained; the second update acts with those that the first one left in two parts."""
    command = [*SETTINGS, "--shard", "--learning-rate", 1e-5, "--episodes", 16, "--policy-arg", "pack_weights=false"]
    code, out, errors = jobs.run(*command, "--problems", problems, "--log-dir", "run")
    assert code == 0, errors
    rows = updates_of(jobs.folder / "run")
    assert len(rows) == 2
    assert all(float(row["train/logp_gap_max"]) <= 1e-4 and float(row["train/grad_norm"]) > 0 for row in rows)
    result = json.loads(out.strip().splitlines()[-1])["eval"]
    alone = result_of(run("evaluate", jobs.folder / "run", "--device", "cpu", "--json"))
    assert alone["mean_reward"] > 0
    assert result["mean_reward"] == pytest.approx(alone["mean_reward"], rel=1e-6)
    kept = load_file(jobs.folder / "run/checkpoint/policy/model/model.safetensors")
    given = load_file(Path(tokenizer_of("smollm2") or "") / "model.safetensors")
    assert kept.keys() == given.keys()
    assert all((weight != given[name]).any() for name, weight in kept.items() if weight.dim() == 2)


def test_the_first_command_reads_the_file_once_without_a_network(problems, tmp_path):
    """As on a machine that has nothing but the package; it says one line, beside transformers' bar, and then none."""
    place = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [*SETTINGS, "--problems", problems, "--dry-run"]
    said = [
        subprocess.run(
            [sys.executable, "-m", "rlenv", *map(str, command)],
            env={**os.environ, **place}, capture_output=True, text=True, check=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    line, *bar = said[0].stderr.splitlines()
    assert all("GGUF tensors" in each for each in bar if each)
    [made] = (tmp_path / "home" / "rlenv").iterdir()
    assert line == f"reading SmolLM2-135M-Instruct.Q4_1.gguf once (98 MB, about 20 s per 100 MB): kept as {made}"
    assert said[1].stderr == ""
    first, second = (json.loads(each.stdout) for each in said)
    assert first["peaks"] == second["peaks"] and first["parameters"] == 134_515_008
