"""What a run keeps of its episodes: which ones, and each token's share of the text."""

import json

import pytest
import torch
from _rlenv_scripts import samples
from _rlenv_scripts.samples import contrasting, is_kept, page, problem_of, token_texts
from inprocess import result_of, run

from agents import Agent, Batch, Rollout
from rlenv.task import TextGenTask
from rlenv.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def byte_level():
    """Return a tokenizer that spells every character outside of its texts byte by byte."""
    return train_tokenizer(260, ["plain words"])


@pytest.mark.parametrize("text", ["plain words", "añb", "日本 日", "x🎉🎉y", "� is a character", ""])
def test_the_texts_of_tokens_add_up_to_the_text(byte_level, text):
    ids = byte_level(text)["input_ids"]
    texts = token_texts(byte_level, ids)
    assert len(texts) == len(ids) and "".join(texts) == text


def test_a_character_belongs_to_the_last_of_its_tokens_and_is_unfinished_before(byte_level):
    ids = byte_level("a🎉")["input_ids"]
    assert token_texts(byte_level, [*ids, byte_level.eos_token_id]) == ["a", "", "", "", "🎉", byte_level.eos_token]
    assert token_texts(byte_level, ids[:3]) == ["a", "", "�"]


def test_updates_are_kept_more_and_more_rarely():
    assert [update for update in range(1, 100) if is_kept(update)] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]


def batch_of(returns, groups, status=None):
    n = len(returns)
    rollout = Rollout.of_demonstrations(torch.zeros(n, 1), torch.zeros(n, 1), torch.ones(n, 1, dtype=torch.bool))
    rollout.rewards[:, 0] = torch.tensor(returns)
    rollout.groups = torch.tensor(groups)
    rollout.status = rollout.status if status is None else torch.tensor(status)
    return Batch.of(rollout, advantages=torch.zeros(n, 1), weights=torch.ones(n, 1))


def test_the_best_and_the_worst_episodes_are_of_the_prompt_with_the_widest_spread():
    batch = batch_of([1.0, 1.0, 0.5, 0.0, 0.2, 0.9, 0.0, 0.0], [0, 0, 1, 1, 1, 1, 2, 2])
    assert contrasting(batch) == [5, 2, 4, 3] and contrasting(batch, 2) == [5, 3]
    alone = batch_of([0.1, 0.9, 0.5, 0.3, 0.7], [0, 1, 2, 3, 4], [0, 2, 0, 0, 0])
    assert contrasting(alone, 2) == [4, 0], "without shared prompts of all of the update that have a verdict"


def test_the_problem_of_a_group_is_found_unless_the_groups_are_others():
    words = {"problems": [{"prompt": text} for text in ("abc", "bac")], "tokenizer": "train:262"}
    task = TextGenTask("exact", **words, system_prompt="Say.", test_fraction=0.0)
    (prompt,) = task.prompts([0])
    found = [problem_of(task, group, prompt.tokens) for group in (0, 1)]
    assert found == [prompt.problem, None]
    text = prompt.problem.prompt
    shown = [samples.shown_prompt(task, problem, prompt.tokens) for problem in found]
    assert shown == [text, f"system\nSay.\nuser\n{text}\nassistant\n"], "without control tokens"


def test_the_page_has_a_heading_and_the_reference_beside_each_answer():
    row = {"prompt": "1|1=", "answer": "2", "completion": "`3`", "reward": 0.5, "updates": 7, "split": "test"}
    row |= {"truncated": False, "parts": {}, "status": "ok"}
    text = page([row, row | {"answer": None, "truncated": True}])
    assert text.startswith("# Samples after 7 updates\n")
    assert "| `1\\|1=` | `'3'` | `2` | 0.5 |  |\n| `1\\|1=` | `'3'` |  | 0.5 | `cut off` |\n" in text
    hostile = page([row | {"completion": "\x1b[31m\x9b\u202e\n", "answer": "\ud800"}])
    assert r"`\u001b[31m\x9b\u202e\n`" in hostile and r"`\ud800`" in hostile


@pytest.mark.parametrize("agent", [pytest.param("reinforce-baseline", marks=pytest.mark.slow), "dapo"])
def test_the_reward_of_an_episode_of_training_is_the_verifiers(tmp_path, agent):
    small = ["--sft-steps", 40, "--sft-examples", 8, "--episodes", 32, "--episodes-per-update", 16]
    changed = ["--eval-episodes", 2, "--kl-coef", 1, "--normalize-rewards", "--learning-rate", 0.001, "--group-size", 4]
    place = ["--log-dir", tmp_path / "run", "--device", "cpu", "--json", "--verifier-arg", "digits=1"]
    result_of(run("train", "--agent", agent, *small, *changed, *place))
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row["kind"] == "training"]
    assert {1} <= {row["updates"] for row in trained} <= {1, 2}
    assert [row["reward"] for row in trained] == [float(row["success"]) for row in trained]


def test_samples_that_cannot_be_made_do_not_cost_an_update(tmp_path, monkeypatch):
    def fails(task, group, prompt):
        if task.split == "train":
            raise ValueError("no such problem")

    monkeypatch.setattr(samples, "problem_of", fails)
    small = ["--sft-steps", 2, "--sft-examples", 8, "--episodes", 32, "--episodes-per-update", 8, "--eval-episodes", 2]
    outcome = run("train", *small, "--log-dir", tmp_path / "run", "--device", "cpu")
    assert str(outcome.exception) == "no such problem"
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu").num_updates == 1
