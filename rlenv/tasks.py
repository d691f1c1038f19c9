"""Tasks by name: a data set of the hub, the columns of its problems, their verifier, and lm-eval's prompts for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rlenv._checks import check_choice


class LmEval(NamedTuple):
    """How a task of lm-eval (0.4.13) poses a problem without examples.

    Attributes:
        name: of that task.
        metric: of its metrics the nearest to the share of successes.
        prompt_template: its prompt; empty for the row's own.
        until: texts that end an answer.
    """

    name: str
    metric: str
    prompt_template: str = ""
    until: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """A row of arguments of `rlenv.task.TextGenTask`, which say more about each.

    Args:
        problems: the data set, with its revision.
        rows: how many, for people.
        verifier: that judges.
        max_new_tokens: of a completion.
        columns: what holds what.
        prompt_template: of the prompts, if they are not a column.
        verifier_kwargs: arguments of the verifier.
        ask: whether prompts end by asking for the place of the answer.
        cue: what prompts without a chat template end with.
        test_fraction: share of the test split if the data set has no splits; 1.0 if it is for evaluation alone.
        lm_eval: the task of lm-eval on the same rows, if any.
    """

    problems: str
    rows: str
    verifier: str
    max_new_tokens: int
    columns: Mapping[str, str] = field(default_factory=dict)
    prompt_template: str | None = None
    verifier_kwargs: Mapping[str, Any] = field(default_factory=dict)
    ask: bool = True
    cue: str | None = "\nSolution:"
    test_fraction: float | None = None
    lm_eval: LmEval | None = None


_STEPS = "{prompt}\nReason step by step."  # before the request for the place of the answer

TASKS = {
    "gsm8k": Task(
        "hf:openai/gsm8k/main@740312add88f781978c0658806c59bc2815b9866",
        "7,473 train, 1,319 test",
        "numeric",
        512,
        columns={"prompt": "question"},
        prompt_template=_STEPS,
        lm_eval=LmEval(
            "gsm8k_cot_zeroshot", "flexible-extract", "Q: {question}\nA: Let's think step by step.", ("Q:",)
        ),
    ),
    "math": Task(
        "hf:DigitalLearningGmbH/MATH-lighteval/default@0530c78699ea5e8eb5530600900e1f328b48acad",
        "7,500 train, 5,000 test",
        "math",
        1024,
        columns={"prompt": "problem", "answer": "solution"},
        prompt_template=_STEPS,
        lm_eval=LmEval("minerva_math", "math_verify", "Problem:\n{problem}\n\nSolution:", ("Problem:",)),
    ),
    "math500": Task(
        "hf:HuggingFaceH4/MATH-500@6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        "500 test",
        "math",
        1024,
        columns={"prompt": "problem"},
        prompt_template=_STEPS,
        test_fraction=1.0,
        lm_eval=LmEval("minerva_math500", "math_verify", "Problem:\n{problem}\n\nSolution:", ("Problem:",)),
    ),
    "dapo-math": Task(
        "hf:open-r1/DAPO-Math-17k-Processed/en@31dd309567e3da778038cc87d868b6097a3ccf68",
        "14,116 train",
        "numeric",
        4096,
        columns={"answer": "solution"},
        prompt_template=_STEPS,
        test_fraction=0.05,
    ),
    "aime": Task(
        "hf:Maxwell-Jia/AIME_2024@8d88b2876a82a080e2f172cc9b25d0d9d2cb4792",
        "30 test",
        "numeric",
        4096,
        columns={"prompt": "Problem", "answer": "Answer"},
        prompt_template=_STEPS,
        test_fraction=1.0,
        lm_eval=LmEval("aime24", "exact_match", "Question: {Problem}\nAnswer:", ("Question:",)),
    ),
    "aime25": Task(
        "hf:math-ai/aime25@563bb8404243c5f09de6ec262f2db674fe5bce9b",
        "30 test",
        "numeric",
        4096,
        columns={"prompt": "problem"},
        prompt_template=_STEPS,
        test_fraction=1.0,
        lm_eval=LmEval("aime25", "exact_match", "Question: {problem}\nAnswer:", ("Question:",)),
    ),
    "countdown": Task(
        "hf:Jiayi-Pan/Countdown-Tasks-3to4@408f70d177020686d34a56bba5952feb45aaaee4",
        "490,364 train",
        "countdown",
        1024,
        columns={"numbers": "nums"},
        prompt_template="Reach {target} with the numbers {numbers}, each used exactly once, "
        "and with + - * / and parentheses.",
        verifier_kwargs={"use_all": True},
        test_fraction=0.01,
    ),
    "ifeval": Task(
        "hf:google/IFEval@966cd89545d6b6acfd7638bc708b98261ca58e84",
        "541 test",
        "ifeval",
        1280,
        ask=False,
        cue=None,
        test_fraction=1.0,
        lm_eval=LmEval("ifeval", "prompt_level_strict_acc"),
    ),
    "mbpp": Task(
        "hf:google-research-datasets/mbpp/full@4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        "374 train, 590 test",
        "code",
        512,
        columns={"tests": "test_list", "answer": "code"},
        prompt_template="{text} It has to pass these tests:\n\n{tests}\n\nWrite the whole program.",
    ),
    "humaneval": Task(
        "hf:openai/openai_humaneval@7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        "164 test",
        "code",
        512,
        columns={"answer": "canonical_solution"},
        prompt_template="```python\n{prompt}```\nWrite the whole of this function.",
        test_fraction=1.0,
        lm_eval=LmEval("humaneval", "pass@1", "{prompt}", ("\nclass", "\ndef", "\n#", "\nif", "\nprint")),
    ),
}


def find_task(name: str) -> Task:
    """Return the row of a task.

    Raises:
        ValueError: for an unknown name, with the closest one.
    """
    return TASKS[check_choice("task", name, TASKS)]


def arguments_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's arguments of `rlenv.task.TextGenTask`, replaced by the given ones; mappings are merged.

    The task's arguments of its verifier, and the place that it asks for, are not for another verifier; its columns and
    prompt template are for files.

    Raises:
        ValueError: for an unknown name, with the closest one.
    """
    row = find_task(name)
    own = {key: value for key, value in vars(row).items() if key not in ("rows", "lm_eval") and value not in (None, {})}
    if given.get("verifier", row.verifier) != row.verifier:
        own = {key: value for key, value in own.items() if key not in ("verifier_kwargs", "ask", "cue")}
    if not isinstance(given.get("problems", ""), (str, Path)):  # which are made: they have no columns
        own = {key: value for key, value in own.items() if key not in ("columns", "prompt_template")}
    merged = {key: {**own[key], **given[key]} for key in own if isinstance(own[key], Mapping) and given.get(key)}
    return {**own, **given, **merged}


def find_lm_eval(name: str) -> LmEval:
    """Return the task of lm-eval on the rows of a task.

    Raises:
        ValueError: for an unknown name, or a task that lm-eval has not.
    """
    alike = find_task(name).lm_eval
    if alike is None:
        known = ", ".join(task for task, row in TASKS.items() if row.lm_eval is not None)
        raise ValueError(f"lm-eval poses no task {name!r}; it has {known}")
    return alike


def as_lm_eval(name: str) -> dict[str, Any]:
    """Return the arguments that pose a task's problems as lm-eval does; see `find_lm_eval` about errors."""
    alike = find_lm_eval(name)
    prompt = {"prompt_template": alike.prompt_template} if alike.prompt_template else {}
    return {"ask": False, "cue": None, "stop_strings": alike.until, **prompt}
