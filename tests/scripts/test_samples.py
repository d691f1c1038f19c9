"""What a run keeps of its episodes: each token's share of the text, the table, the rewards of the verifier."""

import json

import pytest
from inprocess import result_of, run

from rlenv._scripts.run import samples
from rlenv._scripts.run.log import markdown
from rlenv._scripts.run.samples import token_texts
from rlenv.agents import Agent
from rlenv.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def byte_level():
    """Return a tokenizer that spells every character outside of its texts byte by byte."""
    return train_tokenizer(260, ["plain words"])


def test_a_character_belongs_to_the_last_of_its_tokens_and_is_unfinished_before(byte_level):
    ids = byte_level("a🎉")["input_ids"]
    assert token_texts(byte_level, [*ids, byte_level.eos_token_id]) == ["a", "", "", "", "🎉", byte_level.eos_token]
    assert token_texts(byte_level, ids[:3]) == ["a", "", "�"]
    text = "añb 日本 x🎉🎉y"
    assert "".join(token_texts(byte_level, byte_level(text)["input_ids"])) == text


def test_no_text_breaks_out_of_its_cell_in_the_table():
    row = {"prompt": "1|1=", "answer": "\ud800", "completion": "`\x1b[31m\x9b\u202e\n", "reward": 0.5}
    text = markdown(*samples.table([row | {"truncated": False, "parts": {}, "status": "ok"}]))
    assert r"| `1\|1=` | `'\u001b[31m\x9b\u202e\n` | `\ud800` | 0.5 |  |" in text


def test_the_reward_of_an_episode_of_training_is_the_verifiers(tmp_path):
    small = ["--sft-steps", 8, "--sft-examples", 8, "--episodes", 32, "--episodes-per-update", 16]
    changed = ["--eval-episodes", 2, "--kl-coef", 1, "--normalize-rewards", "--learning-rate", 0.001, "--group-size", 4]
    place = ["--log-dir", tmp_path / "run", "--device", "cpu", "--json", "--verifier-arg", "digits=1"]
    result_of(run("train", "--agent", "dapo", *small, *changed, *place))
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row["kind"] == "training"]
    assert trained and [row["reward"] for row in trained] == [float(row["success"]) for row in trained]


def test_samples_that_cannot_be_made_do_not_cost_an_update(tmp_path, monkeypatch):
    def fails(task, group, prompt):
        if task.split == "train":
            raise ValueError("no such problem")

    monkeypatch.setattr(samples, "problem_of", fails)
    small = ["--sft-steps", 2, "--sft-examples", 8, "--episodes", 32, "--episodes-per-update", 8, "--eval-episodes", 2]
    outcome = run("train", *small, "--log-dir", tmp_path / "run", "--device", "cpu")
    assert str(outcome.exception) == "no such problem"
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu").num_updates == 1
