"""Tasks by name on the command line: what --task stands for, and who replaces what."""

import json

import pytest
from huggingface_hub import constants
from inprocess import done, error_of, result_of, run
from local_hub import serve_task
from task_rows import rows_of
from tiny_models import write_chat_model

from rlenv.tasks import TASKS
from rlenv.verifiers.sandbox.run import unavailable

SMALL = ["--model", "tiny", "--tokenizer", "train:260", "--sft-steps", 0, "--episodes", 4, "--episodes-per-update", 4]
SMALL += ["--eval-episodes", 2, "--max-new-tokens", 4, "--no-report", "--json"]
EACH = [name if name == "gsm8k" else pytest.param(name, marks=pytest.mark.slow) for name in TASKS]


def options(run_folder):
    return json.loads((run_folder / "config.json").read_text())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EACH)
def test_a_task_is_trained_on_and_evaluated_by_its_name(folder, monkeypatch, name):
    row = TASKS[name]
    if row.verifier == "code" and unavailable():
        pytest.skip("no sandbox here: programs are refused")
    serve_task(monkeypatch, folder, name)
    alone = [] if ", " in row.rows else ["--test-fraction", 0.4]  # of twenty rows, not of thousands
    trained = result_of(run("train", "--task", name, *alone, *SMALL, "--log-dir", "run"))
    kept = json.loads((folder / "run" / "checkpoint" / "agent.json").read_text())["env_kwargs"]
    for found in (options(folder / "run"), kept):
        assert found["problems"] == row.problems and found["verifier"] == row.verifier and "task" not in found
    assert kept.get("columns", {}) == row.columns and kept.get("prompt_template") == row.prompt_template
    played = ["--max-new-tokens", 4, "--episodes", 2, "--json"]
    for asked in ([], ["--task", name, *alone]):
        found = result_of(run("evaluate", "run", *asked, *played))
        assert ("instruction_success" in found) == (name == "ifeval")
        assert {key: value for key, value in found.items() if key != "instruction_success"} == trained["eval"]
    if name == "gsm8k":  # with lm-eval's prompts, to which the run adds no cue of its own
        done("evaluate", "run", "--task", name, "--lm-eval", "--max-new-tokens", 3, "--out", "own.jsonl", "--trust")
        asked = json.loads((folder / "own.json").read_text())["settings"]["env_kwargs"]
        assert (asked["ask"], asked["cue"], asked["stop_strings"]) == (False, None, ["Q:"])


def test_what_is_given_replaces_what_a_task_says(folder, monkeypatch):
    serve_task(monkeypatch, folder, "gsm8k")
    (folder / "own.json").write_text(json.dumps({"task": "gsm8k", "verifier_arg": {"place": "last"}, "ask": False}))
    (folder / "copy.jsonl").write_text(json.dumps({"question": "What is 1+1?", "answer": "#### 2"}) + "\n")
    given = ["--config", "own.json", "--column", "hint=answer", "--problems", "copy.jsonl"]
    done("train", *given, *SMALL, "--log-dir", "run")
    found = options(folder / "run")
    assert found["problems"] == str(folder / "copy.jsonl") and found["max_new_tokens"] == 4 and not found["ask"]
    assert found["columns"] == {"prompt": "question", "hint": "answer"}
    assert found["verifier"] == "numeric" and found["verifier_kwargs"] == {"place": "last"}


def test_the_tasks_are_listed_and_one_is_shown_with_its_first_prompt(folder, monkeypatch):
    listed = done("tasks").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(TASKS) and TASKS["gsm8k"].problems in listed[0]
    serve_task(monkeypatch, folder, "gsm8k")
    row = rows_of("gsm8k")["train"][0]
    (folder / "copy.jsonl").write_text(json.dumps(row) + "\n")
    for copy in ([], ["--problems", "copy.jsonl"]):
        found = result_of(run("tasks", "gsm8k", *copy, "--json"))
        assert found["prompt"] == f"{row['question']}\nReason step by step. Put the answer in \\boxed{{}}.\nSolution:"
        assert found["answer"] == row["answer"]
    (folder / "moved.jsonl").write_text(json.dumps({"asked": row["question"], "answer": "1"}) + "\n")
    assert "--column prompt=" in error_of(run("tasks", "gsm8k", "--problems", "moved.jsonl"))
    moved = result_of(run("tasks", "gsm8k", "--problems", "moved.jsonl", "--column", "prompt=asked", "--json"))
    assert moved == found | {key: moved[key] for key in ("problems", "columns", "answer")} and "rows" not in moved
    shown = done("tasks", "gsm8k")
    assert f"prompt           {found['prompt']}\n" in shown.stdout and "max_new_tokens   512\n" in shown.stdout
    assert "no file or folder" in error_of(run("tasks", "gsm8k", "--problems", "none.jsonl"))


def test_a_task_without_its_data_is_shown_with_one_line_about_them(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shown = done("tasks", "gsm8k")
    assert TASKS["gsm8k"].problems in shown.stdout and "prompt " not in shown.stdout
    (line,) = shown.stderr.splitlines()
    assert "no prompt to show" in line and "--problems FOLDER" in line


def test_a_model_is_evaluated_on_a_task_with_the_prompts_of_lm_eval(folder, monkeypatch):
    serve_task(monkeypatch, folder, "gsm8k")
    write_chat_model(folder / "model", context=300)
    asked = ["evaluate", "model", "--task", "gsm8k", "--max-new-tokens", 3, "--out", "own.jsonl", "--overwrite"]
    done(*asked)
    first = {row["prompt"] for row in map(json.loads, (folder / "own.jsonl").read_text().splitlines())}
    questions = {row["question"] for row in rows_of("gsm8k")["test"]}
    assert first == {f"{each}\nReason step by step." for each in questions}
    said = done(*asked, "--lm-eval").stderr
    assert "lm-eval's gsm8k_cot_zeroshot without examples" in said and "flexible-extract" in said
    rows = [json.loads(line) for line in (folder / "own.jsonl").read_text().splitlines()]
    assert {row["prompt"] for row in rows} == {f"Q: {each}\nA: Let's think step by step." for each in questions}
    kept = json.loads((folder / "own.json").read_text())["settings"]["env_kwargs"]
    assert kept["stop_strings"] == ["Q:"] and not kept.keys() & {"ask", "cue"}, "nothing is added to the prompt"
    copy = rows_of("gsm8k")["train"]  # names no split, and the model has not read it: all of it is asked
    (folder / "copy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in copy))
    assert result_of(run(*asked, "--problems", "copy.jsonl", "--json"))["episodes"] == len(copy)
