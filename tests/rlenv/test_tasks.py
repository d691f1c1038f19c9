"""Data sets of the hub, of which nothing is downloaded here, and tasks by name, which pose and judge their problems."""

import json
import shutil
from functools import partial
from pathlib import Path

import datasets
import gymnasium as gym
import pytest
from datasets.packaged_modules.json.json import Json
from huggingface_hub import constants
from local_hub import serve, serve_task
from refused import check_refused
from task_rows import rows_of

import rlenv
from rlenv.problems import load_problems
from rlenv.task import TextGenTask, expanded
from rlenv.tasks import TASKS
from rlenv.verifiers.sandbox.run import unavailable

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
SPLITS = {
    "train": [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(4)],
    "test": [{"question": f"{n}+2=", "answer": str(n + 2)} for n in range(3)],
    "prompt": [{"question": "0+0=", "answer": "0"}],  # of MBPP: examples, neither trained nor tested on
}
NAME, COLUMNS = f"hf:org/sums/main@{COMMIT}", {"prompt": "question"}


def test_a_data_set_has_the_problems_and_splits_of_the_same_rows_in_memory(tmp_path, monkeypatch):
    loaded = serve(monkeypatch, tmp_path, "org/sums/main", SPLITS, COMMIT)
    rows = [row | {"split": split, "prompt": row["question"]} for split in ("train", "test") for row in SPLITS[split]]
    found = load_problems(NAME, COLUMNS)
    assert [(each.prompt, each.answer, each.metadata["split"]) for each in found] == [
        (row["prompt"], row["answer"], row["split"]) for row in rows
    ]
    assert loaded == [f"org/sums/main@{COMMIT}"] and found.place(4) == f"{NAME!r}, row 1 of 'test'"
    test = TextGenTask("exact", problems=NAME, columns=COLUMNS, tokenizer="train:260", split="test", test_fraction=0.0)
    assert {each.prompt for each in test.stream.listed} == {"0+2=", "1+2=", "2+2="}


def test_a_single_split_is_divided_by_the_hash_as_a_file_is(tmp_path, monkeypatch):
    rows = [{"prompt": f"{n}+{n}="} for n in range(40)]
    serve(monkeypatch, tmp_path, "org/sums", {"test": rows})
    datasets.DatasetDict(test=datasets.Dataset.from_list(rows)).save_to_disk(tmp_path / "copy")
    for problems in ("hf:org/sums", tmp_path / "copy"):
        made = {"problems": problems, "tokenizer": "train:260"}
        listed = {split: TextGenTask("exact", **made, split=split).stream.listed for split in ("train", "test")}
        found = {split: [each.prompt for each in problems] for split, problems in listed.items()}
        assert 0 < len(found["test"]) < len(found["train"])
        assert sorted(found["train"] + found["test"]) == sorted(row["prompt"] for row in rows)


IMPOSSIBLE = (
    *("hf:../..", "hf:./sums", "hf:org/..", "hf:org/.sums", "hf:-org/sums", "hf:org/s--ums", "hf:\u00f6rg/sums"),
    *("hf:org/sums/..", "hf:org/sums/*", "hf:/tmp", "hf:org/sums@", "hf:org/sums\n"),
)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((name, (repr(name), "hf:org/name", "./FOLDER")) for name in IMPOSSIBLE),
        ("hf:sums", ("'hf:sums'", "hf:org/name/config")),
        ("hf:org/zums", ("'org/zums' doesn't exist", "'hf:org/zums'")),
        ("hf:org/sums", ("Config name is missing. Please pick one among the available configs: ['main'];", "/CONFIG")),
        (f"hf:org/sums/mian@{COMMIT}", ("'mian' not found. Available: ['main']", "hf:org/name/CONFIG")),
        (f"hf:org/sums/main@{OTHER}", (f"Revision '{OTHER}' doesn't exist",)),
        (NAME, ("no column 'prompt'", "'question'", "--column prompt=")),
    ],
)
def test_what_is_wrong_with_a_name_is_one_line(tmp_path, monkeypatch, name, named):
    loaded = serve(monkeypatch, tmp_path, "org/sums/main", SPLITS, COMMIT)
    check_refused(load_problems, {"path": name}, named)
    assert name not in IMPOSSIBLE or loaded == [], "nothing is loaded before"


def test_a_local_folder_of_the_same_name_is_not_taken_for_a_data_set_of_the_hub(tmp_path, monkeypatch):
    folder = tmp_path / "org" / "sums"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text('{"question": "0+0=", "answer": "0"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name in ("hf:org/sums", f"hf:org/sums@{COMMIT}"):
        check_refused(
            load_problems, {"path": name, "columns": COLUMNS}, (repr(name), "without network", "--problems FOLDER")
        )


def test_without_network_the_cache_is_read_but_no_other_revision(tmp_path, monkeypatch, capfd):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SPLITS["train"]))
    made = Json(str(tmp_path), "sums", "main", hash=COMMIT, data_files=str(path))  # as if it came from the hub
    made.download_and_prepare()
    config = Path(made.cache_dir).parents[1]
    shutil.move(config, tmp_path / "cache" / "org___sums" / "main")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    capfd.readouterr()
    assert [each.answer for each in load_problems(NAME, COLUMNS)] == ["1", "2", "3", "4"]
    check_refused(load_problems, {"path": f"hf:org/sums/main@{OTHER}"}, (OTHER, f"another revision, {COMMIT}"))
    assert capfd.readouterr().err == ""


# Tasks.


PROGRAM = "Put the program between two lines of three backticks."
BOXED = "Put the answer in \\boxed{}."
STEPS = f"\nReason step by step. {BOXED}"
# The first problem of the rows as a model reads it, a right answer and a wrong one.
FIRST = {
    "gsm8k": (
        f"Ann has 2 bags of 4 nuts and eats 3 nuts. How many nuts are left?{STEPS}",
        "2 * 4 - 3 = 5, so \\boxed{5}",
        "\\boxed{8}",
    ),
    "math": (f"Solve $2x = 1$.{STEPS}", "$x = \\boxed{0.5}$", "\\boxed{2}"),
    "math500": (f"Solve $2x = 1$.{STEPS}", "\\boxed{\\frac12}", "\\boxed{1}"),
    "dapo-math": (f"Find the remainder of $0$ divided by 5.{STEPS}", "\\boxed{0}", "\\boxed{5}"),
    "aime": (f"Evaluate $0^2$.{STEPS}", "The answer is 0.", "The answer is 1."),
    "aime25": (f"Evaluate $0^2 + 1$.{STEPS}", "The answer is 1.", "The answer is 0."),
    "countdown": (
        "Reach 21 with the numbers [3, 7, 11], each used exactly once, and with + - * / and parentheses. "
        "Put the expression in \\boxed{}.",
        "\\boxed{3 + 7 + 11}",
        "\\boxed{3 * 7}",  # reaches it, without 11
    ),
    "ifeval": ("Describe the number 0 in at least 1 words, without commas.", "Nothing", "Nothing, or none"),
    "mbpp": (
        "Write a function add that adds 0 to a number. It has to pass these tests:\n\n"
        "assert add(1) == 1\nassert add(5) == 5\nassert add(-2) == -2\n\nWrite the whole program. " + PROGRAM,
        "```\ndef add(x):\n    return x\n```",
        "```\ndef add(x):\n    return 1\n```",
    ),
    "humaneval": (
        f'```python\ndef add0(x):\n    """Return x + 0."""\n```\nWrite the whole of this function. {PROGRAM}',
        "```python\ndef add0(x):\n    return x\n```",
        "    return x + 1\n",
    ),
}
CHARACTERS = "train:260"


@pytest.fixture
def served(tmp_path, monkeypatch):
    return partial(serve_task, monkeypatch, tmp_path)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_poses_its_rows_and_tells_right_from_wrong(served, name):
    if TASKS[name].verifier == "code" and unavailable():
        pytest.skip("no sandbox here: programs are refused")
    loaded = served(name)
    split = "test" if TASKS[name].test_fraction == 1 else "train"
    task = TextGenTask(**expanded(name), tokenizer=CHARACTERS, split=split, trust=False)  # as of a checkpoint
    rows = {split: len(rows) for split, rows in rows_of(name).items()}
    assert sum(task.stream.sizes.values()) == 20 and loaded == [TASKS[name].problems.removeprefix("hf:")]
    if len(rows) > 1:
        assert task.stream.sizes == rows
    if split == "test":
        assert task.stream.sizes == {"train": 0, "test": 20}
    problem = task.encoding.listed[0]
    asked, right, wrong = FIRST[name]
    assert task.encoding.encoder.asked(problem.prompt) == asked + "\nSolution:" * (name != "ifeval")
    rewards = [verdict.reward for verdict in task.judge([problem, problem], [right, wrong])]
    assert rewards == [1.0, 0.0] and task.encoding.max_new_tokens == TASKS[name].max_new_tokens


def test_arguments_replace_those_of_the_task(served):
    served("gsm8k")
    given = {"tokenizer": CHARACTERS, "max_new_tokens": 7, "problems": [{"prompt": "1+1=", "answer": "2"}]}
    env = gym.make("TextGen-v0", task="gsm8k", **given)
    assert env.unwrapped.task.encoding.max_new_tokens == 7 and env.reset(seed=0)[1]["prompt"] == "1+1="


def test_another_verifier_takes_neither_arguments_nor_request(served):
    served("gsm8k")
    given = expanded("gsm8k", verifier=lambda completions: [0.0], columns={"answer": "question"})
    task = TextGenTask(**given, tokenizer=CHARACTERS)
    problem = task.encoding.listed[0]
    assert problem.text.startswith(problem.answer) and problem.answer.startswith("Ann")
    assert task.encoding.encoder.asked(problem.prompt) == problem.prompt


def table():
    """Return the rows of the table in docs/problems.md."""
    lines = []
    for name, row in TASKS.items():
        source, _, revision = row.problems.removeprefix("hf:").partition("@")
        alike = f" `{row.lm_eval.name}`" if row.lm_eval else ""
        lines.append(f"| `{name}` | {source} | {revision[:7]} | `{row.verifier}` | {row.rows} |{alike} |")
    return "\n".join(lines)


def test_the_table_of_the_docs_is_that_of_the_code():
    page = (Path(rlenv.__file__).resolve().parents[1] / "docs" / "problems.md").read_text(encoding="utf-8")
    assert f"\n|---|---|---|---|---|---|\n{table()}\n" in page
