"""Tasks by name: each poses its data set's problems, and its verifier tells right from wrong."""

from functools import partial
from pathlib import Path

import gymnasium as gym
import pytest
from local_hub import serve_task
from task_rows import rows_of

import rlenv
from rlenv.task import TextGenTask, expanded
from rlenv.tasks import TASKS
from rlenv.verifiers.sandbox.run import unavailable

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
