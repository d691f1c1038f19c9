"""The commands make no environment only to ask it something, and read a tokenizer once."""

import json

import gymnasium as gym
import pytest
from counted import counted
from inprocess import result_of, run
from tiny_models import write_chat_model
from transformers import AutoTokenizer

from rlenv.problems import files
from rlenv.text import tokenizer as tokenizers


@pytest.fixture
def made(monkeypatch):
    """Count what is made or read from now on."""
    return counted(
        monkeypatch,
        ("envs", gym, "make_vec"),
        ("tokenizers", tokenizers, "character_tokenizer"),
        ("tokenizers", AutoTokenizer, "from_pretrained"),
        ("files", files, "read_rows"),
    )


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "answer": str(n + n), "split": "test" if n < 3 else "train"} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ("--problems", file, "--verifier", "exact", "--max-new-tokens", 4, "--device", "cpu")


def test_a_run_has_one_to_train_in_and_one_to_evaluate_in(problems, tmp_path, made):
    """The number of held-out problems is known without making the second one."""
    short = ("--episodes", 8, "--sft-steps", 1, "--no-report", "--log-dir", tmp_path / "run", "--json")
    result = result_of(
        run("train", "--agent", "rloo", "--episodes-per-update", 4, "--group-size", 2, *problems, *short)
    )
    assert result["eval"]["episodes"] == 3
    assert made == {"envs": 2, "tokenizers": 1, "files": 2}
    made.clear()
    assert result_of(run("evaluate", tmp_path / "run", "--samples", 2, "--device", "cpu", "--json"))["episodes"] == 3
    assert made == {"envs": 3, "tokenizers": 1, "files": 3}, "of the agent, greedy, sampled; one saved tokenizer"


def test_supervised_training_reads_the_held_out_answers_where_it_is_judged(problems, tmp_path, made):
    short = ("--sft-steps", 1, "--eval-episodes", 3, "--log-dir", tmp_path / "sft", "--json")
    assert result_of(run("sft", *problems, *short))["eval_loss"] > 0
    assert made == {"envs": 2, "tokenizers": 1, "files": 2}


def test_a_model_is_evaluated_with_the_tokenizer_that_was_read_first(problems, tmp_path, made):
    write_chat_model(tmp_path / "own")
    out = ("--out", tmp_path / "out.jsonl", "--split", "test", "--json")
    result_of(run("evaluate", tmp_path / "own", *problems, *out))
    assert made == {"envs": 2, "tokenizers": 1, "files": 2}
