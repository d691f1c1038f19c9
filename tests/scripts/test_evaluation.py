"""`rlenv evaluate` with samples: figures, the file of completions, several runs, and models without a run."""

import functools
import json
from pathlib import Path

import inprocess
import pytest
import torch
from _rlenv_scripts import completions, subject
from _rlenv_scripts.evaluation_figures import summarize
from inprocess import done, error_of, run

from agents import Reinforce
from agents.estimators.pass_at_k import bootstrap_mean


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch):
    """A tenth of the resamples: how good the intervals are is tested where they are computed."""
    fewer = functools.partial(bootstrap_mean, resamples=200)
    monkeypatch.setattr("_rlenv_scripts.evaluation_figures.bootstrap_mean", fewer)


ROW = {"mode": "sampled", "status": "ok", "reward": 1.0, "truncated": False, "tokens": 1, "level": None}
SETTINGS = {"deterministic": False, "split": "test", "samples": 2, "temperature": 1.0, "top_p": 1.0}


def row(problem, answer, success, **changes):
    return ROW | {"problem": problem, "extracted": answer, "success": success} | changes


def test_completions_without_a_verdict_do_not_count():
    rows = [row(0, "1", True), row(0, "2", False, status="timeout", reward=0.0), row(1, "1", False), row(1, "1", False)]
    figures = summarize(rows, 0, SETTINGS)
    assert (figures["episodes"], figures["failed"], figures["success_rate"]) == (3, 1, 1 / 3)
    at = figures["sampled"]["pass_at_k"]
    assert (at["1"]["value"], at["1"]["problems"]) == (0.5, 2) and at["1"]["low"] <= 0.5 <= at["1"]["high"]
    assert (at["2"]["value"], at["2"]["problems"]) == (0.0, 1)  # the first problem has one verdict only


def test_levels_have_their_own_figures():
    rows = [row(0, "1", True, level=1), row(0, "2", False, level=1), row(1, None, False, level=2)]
    by_level = summarize([*rows, row(1, None, False, level=2)], 0, SETTINGS)["sampled"]["by_level"]
    assert by_level["1"] == {"problems": 1, "pass_at_k": {"1": 0.5, "2": 1.0}, "maj_at_k": {"1": 0.5, "2": 0.5}}
    assert by_level["2"]["maj_at_k"] == {"1": 0.0, "2": 0.0}


# The command.


def result_of(*args):
    return inprocess.result_of(run("evaluate", *args, "--json"))


def rows_in(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a run folder with an untrained policy on two levels of sums."""
    kwargs = {"verifier": "arith", "verifier_kwargs": {"digits": 2, "levels": 2}}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=kwargs, episodes_per_update=4, device="cpu")
    path = tmp_path_factory.mktemp("runs") / "sums"
    agent.save(path / "checkpoint")
    return path


SAMPLED = ("--episodes", 6, "--samples", 4, "--temperature", 0.8, "--top-p", 0.9, "--device", "cpu")


def test_samples_add_their_figures_and_every_completion_is_kept(folder):
    figures = result_of(folder, *SAMPLED)
    assert figures["episodes"] == 6 and figures["deterministic"] and set(figures["success_by_level"]) <= {"1", "2"}
    sampled = figures["sampled"]
    assert (sampled["episodes"], sampled["samples"], sampled["temperature"], sampled["top_p"]) == (24, 4, 0.8, 0.9)
    assert list(sampled["pass_at_k"]) == list(sampled["maj_at_k"]) == ["1", "2", "4"]
    rows = rows_in(figures["completions"])
    assert [(one["mode"], one["problem"], one["sample"]) for one in rows] == [
        *(("greedy", problem, 0) for problem in range(6)),
        *(("sampled", problem, sample) for problem in range(6) for sample in range(4)),
    ]
    assert {one["prompt"] for one in rows[:6]} == {one["prompt"] for one in rows[6:]}
    assert all(eval_sum(one["prompt"]) == one["answer"] for one in rows)
    assert all(one["success"] == (one["completion"] == one["answer"]) for one in rows)
    assert all(one["tokens"] >= len(one["completion"]) + (not one["truncated"]) for one in rows)  # one token each
    assert len({one["completion"] for one in rows[6:]}) > 6


def eval_sum(prompt):
    return str(sum(map(int, prompt.rstrip("=").split("+"))))


def test_a_file_that_was_cut_off_is_continued_as_if_it_had_not_been(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(completions, "BLOCK", 8)
    whole = tmp_path / "whole.jsonl"
    expected = result_of(folder, *SAMPLED, "--out", whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    assert len(lines) == 30
    facts = json.loads(whole.with_suffix(".json").read_text())
    for kept in (3, 17, 30):  # in the first block, in another one, after the last
        part = tmp_path / f"part-{kept}.jsonl"
        part.write_bytes(b"".join(lines[:kept]) + (lines[kept][:9] if kept < 30 else b""))
        part.with_suffix(".json").write_text(json.dumps({"settings": facts["settings"]}))
        found = result_of(folder, *SAMPLED, "--out", part)
        assert part.read_bytes() == whole.read_bytes(), kept
        assert {**found, "completions": ""} == {**expected, "completions": ""}


def test_a_finished_evaluation_is_reused_and_other_settings_have_another_file(folder, monkeypatch):
    first = result_of(folder, *SAMPLED)
    other = result_of(folder, *SAMPLED, "--seed", 1)
    assert other["completions"] != first["completions"]
    greedy = result_of(folder, "--episodes", 6, "--device", "cpu")
    assert greedy == {name: first[name] for name in greedy}

    def load(*_):
        raise AssertionError("loaded again")

    monkeypatch.setattr(subject.Subject, "load", load)
    assert result_of(folder, *SAMPLED) == first
    outcome = run("evaluate", folder, *SAMPLED)
    assert "evaluated before" in outcome.stderr and "| pass@4" in outcome.stdout
    assert isinstance(run("evaluate", folder, *SAMPLED, "--overwrite").exception, AssertionError)


def test_a_changed_checkpoint_is_evaluated_again(folder, tmp_path):
    agent = Reinforce.load(folder / "checkpoint", device="cpu")
    agent.save(tmp_path / "run" / "checkpoint")
    before = result_of(tmp_path / "run", *SAMPLED)
    with torch.no_grad():
        for weight in agent.policy.parameters():
            weight.mul_(1.5)
    agent.save(tmp_path / "run" / "checkpoint")
    after = result_of(tmp_path / "run", *SAMPLED)
    assert after["completions"] != before["completions"]


def test_a_model_folder_is_evaluated_with_a_verifier_and_problems(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = folder / "checkpoint" / "policy" / "model"
    problems = [{"prompt": f"{n}+{n}=", "answer": str(2 * n), "split": "test"} for n in range(10, 14)]
    (tmp_path / "sums.json").write_text(json.dumps(problems))
    task = ("--verifier", "exact", "--problems", "sums.json", "--max-prompt-tokens", 6, "--max-new-tokens", 4)
    figures = result_of(model, *task, *SAMPLED)
    assert figures["problems"] == 4  # no problem twice, although --episodes is 6
    assert figures["completions"].startswith("evaluations")
    rows = rows_in(figures["completions"])
    assert {one["prompt"] for one in rows} == {one["prompt"] for one in problems}
    again = result_of(folder, *task, *SAMPLED, "--overwrite")  # the same model, and the same verifier, of a run
    assert again["sampled"] == figures["sampled"]


def test_a_folder_without_the_right_to_write_keeps_no_completions(folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("_rlenv_scripts.evaluation_place.Lock", refuse)
    outcome = done("evaluate", folder, "--episodes", 4, "--json", "--device", "cpu")
    assert "the completions are not kept" in outcome.stderr and "--out" in outcome.stderr


def test_nothing_is_kept_of_an_evaluation_without_any_verdict(folder, tmp_path):
    out = tmp_path / "all.jsonl"
    problems = tmp_path / "words.json"
    problems.write_text(json.dumps([{"prompt": "1+1=", "answer": "=", "split": "test"}]))
    task = ("--verifier", "numeric", "--problems", problems, "--max-prompt-tokens", 6, "--max-new-tokens", 4)
    outcome = run("evaluate", folder, *task, "--out", out, "--episodes", 2)
    assert outcome.exit_code == 1 and "reached no verdict on all 1 episodes" in outcome.stderr
    assert not out.exists() and not out.with_suffix(".json").exists()


def test_a_file_of_other_settings_is_left_alone(folder, tmp_path):
    out = tmp_path / "mine.jsonl"
    result_of(folder, "--out", out, "--episodes", 2)
    assert "holds another evaluation" in error_of(run("evaluate", folder, "--out", out, "--episodes", 3))
