"""Public data sets of problems, for `judged`: where their files come from, and rows with right and wrong answers."""

from __future__ import annotations

import gzip
import hashlib
import json
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from rlenv.verifiers import Problem
from rlenv.verifiers.answer import boxes

from .mutants import FIVE, value_of, wrong_choices, wrong_formulas, wrong_numbers, wrong_programs

_POINTER = b"version https://git-lfs"


class Source(NamedTuple):
    """A file of a public repository.

    Args:
        repository: owner and name on GitHub.
        revision: the commit.
        path: of the file in the repository, and below FOLDER/OWNER/NAME.
        blob: Git's name for the file's content.
        licence: that of the repository.
    """

    repository: str
    revision: str
    path: str
    blob: str
    licence: str = "MIT"

    @property
    def url(self) -> str:
        """Return the address of the file."""
        return f"https://raw.githubusercontent.com/{self.repository}/{self.revision}/{self.path}"

    def read(self, folder: Path) -> bytes:
        """Return the file.

        Raises:
            ValueError: if it is missing, a pointer of Git LFS, or another version of the file.
        """
        place = folder / self.repository / self.path
        if not place.is_file():
            raise ValueError(f"{place} is missing")
        content = place.read_bytes()
        if content.startswith(_POINTER):
            raise ValueError(f"{place} is a pointer of Git LFS, not the file")
        if (found := hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()) != self.blob:
            raise ValueError(f"{place} is not that of revision {self.revision[:8]}: Git calls it {found[:8]}")
        return content


class Row(NamedTuple):
    """A problem, and completions of which it is known whether they are right.

    Args:
        problem: as the verifier gets it.
        reference: its answer alone, in a box; None for a program.
        stated: the answer in the last sentence of Minerva's prompts, which many models have learned; of a choice, a
            plain one.
        own: the data set's own solution, if any; of a choice, its label with its text, and its text alone.
        wrong: wrong answers made from the right one.
        echo: the question, if it is a wrong answer.
        labelled: other people's answers, and whether they say that it is right.
        official: for a program, the data set's own tests, as Python.
    """

    problem: Problem
    reference: str | None = None
    stated: str | None = None
    own: Sequence[str] = ()
    wrong: Sequence[str] = ()
    echo: str | None = None
    labelled: Sequence[tuple[str, bool]] = ()
    official: str = ""


class DataSet(NamedTuple):
    """Files, the verifier of their rows, and the function that makes a row."""

    verifier: str
    sources: Sequence[Source]
    rows: Callable[[list[list[dict[str, Any]]]], Iterator[Row]]

    def read(self, folder: Path) -> list[Row]:
        """Return its rows; see `Source.read` about errors."""
        return [*self.rows([_lines(source.read(folder)) for source in self.sources])]


def _lines(content: bytes) -> list[dict[str, Any]]:
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    return [json.loads(line) for line in text.decode("utf-8").split("\n") if line]


def _boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def _posed(problem: Problem, answer: str, own: Sequence[str], wrong: Sequence[str]) -> Row:
    """Return a row whose right and wrong answers stand in a box."""
    stated = f"Final Answer: The final answer is ${answer}$. I hope it is correct."
    return Row(problem, _boxed(answer), stated, own, [*map(_boxed, wrong)], problem.text)


def _drawn(pool: Sequence[Any], seed: str) -> list[Any]:
    """Return some of a pool; the same ones for the same seed, whatever was drawn before."""
    return random.Random(seed).sample(pool, min(3 * FIVE, len(pool)))


def gsm8k(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield GSM8K's rows: the number after #### is the reference."""
    rows = [row for file in files for row in file]
    answers = [row["answer"].rpartition("#### ")[2].strip() for row in rows]
    values = [Fraction(answer.replace(",", "")) for answer in answers]
    for index, (row, answer, value) in enumerate(zip(rows, answers, values, strict=True)):
        wrong = wrong_numbers(value, _drawn(values, f"gsm8k {index}"))
        yield _posed(Problem(row["question"], row["answer"]), answer, [row["answer"]], wrong)


def gsm8k_models(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield the answers of OpenAI's four models to GSM8K's test rows, with OpenAI's labels."""
    for row in files[0]:
        answer = row["ground_truth"].rpartition("A: ")[2]
        told = [each for each in row.values() if isinstance(each, dict)]
        yield Row(Problem(row["question"], answer), labelled=[(each["solution"], each["is_correct"]) for each in told])


def tora(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield ToRA's answers to GSM8K's test rows; right are those whose extracted number is the reference."""
    for row in (row for file in files for row in file):
        labelled = [(code, _same(pred, row["gt"])) for code, pred in zip(row["code"], row["pred"], strict=True)]
        yield Row(Problem(row["question"], row["gt"]), labelled=labelled)


def _same(one: str, other: str) -> bool:
    try:
        return abs(float(one.replace(",", "")) - float(other.replace(",", ""))) < 1e-3
    except ValueError:
        return False


def math(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield rows of MATH: the last box of the solution is the reference."""
    rows = [row for file in files for row in file]
    answers = [row.get("answer") or boxes(row["solution"])[-1] for row in rows]
    values = [value_of(answer) for answer in answers]
    numbers = [value for value in values if value is not None]
    words, formulas = (
        [a for a, value in zip(answers, values, strict=True) if value is None and _is_words(a) == kind]
        for kind in (True, False)
    )
    for index, (row, answer, value) in enumerate(zip(rows, answers, values, strict=True)):
        seed = f"math {index}"
        if value is not None:
            wrong = wrong_numbers(value, _drawn(numbers, seed))
        else:
            wrong = wrong_formulas(answer, _drawn(words if _is_words(answer) else formulas, seed))
        problem = Problem(row["problem"], row.get("answer") or row["solution"])
        yield _posed(problem, answer, [row["solution"]], wrong)


def _is_words(answer: str) -> bool:
    return answer.startswith((r"\text", r"\mbox"))


def aime(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield rows of AIME, whose answers are whole numbers."""
    values = [Fraction(row["answer"]) for row in files[0]]
    for index, (row, value) in enumerate(zip(files[0], values, strict=True)):
        wrong = wrong_numbers(value, _drawn(values, f"aime {index}"))
        yield _posed(Problem(row["problem"], row["answer"]), row["answer"], [row["solution"]], wrong)


def math_models(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield Qwen2.5-Math's eight answers to each of 100 problems, with the labels of its authors."""
    for row in files[0]:
        yield Row(
            Problem(row["question"], row["gt"]), labelled=[*zip(row["code"], map(bool, row["score"]), strict=True)]
        )


def choices(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield rows of MMLU: the label is the reference, and the label with the choice's text is its own solution."""
    for row in files[0]:
        texts, right = [str(each) for each in row["choices"]], int(row["answer"])
        label = "ABCD"[right]
        listed = "\n".join(f"({name}) {text}" for name, text in zip("ABCD", texts, strict=True))
        prompt = f"{row['question']}\n{listed}"
        own = [f"The answer is ({label}) {texts[right]}", *[_boxed(texts[right])] * (texts.count(texts[right]) == 1)]
        posed = _posed(Problem(prompt, label, {"choices": texts}), label, own, wrong_choices(texts, right))
        yield posed._replace(stated=f"The answer is ({label}).")


def _humaneval_problem(row: dict[str, Any]) -> Problem:
    prompt = row["prompt"]
    tests = {"test": row["test"], "entry_point": row["entry_point"]}
    return Problem(f"```python\n{prompt}```\nWrite the whole of this function.", metadata=tests)


def humaneval(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield rows of HumanEval; the canonical solution is its own."""
    for index, row in enumerate(files[0]):
        program = row["prompt"] + row["canonical_solution"]
        wrong = wrong_programs(program, random.Random(f"humaneval {index}"))
        official = f"{row['test']}\ncheck({row['entry_point']})"
        yield Row(_humaneval_problem(row), own=[_fenced(program)], wrong=[*map(_fenced, wrong)], official=official)


def program_models(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield the programs of GPT-4 from Reflexion, with its labels; rows as in HumanEval."""
    for row in (row for file in files for row in file):
        yield Row(_humaneval_problem(row), labelled=[(row["solution"], bool(row["is_solved"]))])


def mbpp(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield rows of MBPP; the data set's program is its own solution."""
    for index, row in enumerate(files[0]):
        program = row["code"].replace("\r\n", "\n")
        wrong = wrong_programs(program, random.Random(f"mbpp {index}"))
        official = "\n".join([row["test_setup_code"], *row["test_list"]])
        yield Row(
            Problem(row["text"], metadata={"tests": row["test_list"]}),
            own=[_fenced(program)],
            wrong=[*map(_fenced, wrong)],
            official=official,
        )


def _fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def countdown(files: list[list[dict[str, Any]]]) -> Iterator[Row]:
    """Yield 256 drawn rows in the form of Countdown-Tasks-3to4: three or four numbers below 100, a target below 100."""
    rng = random.Random("countdown")
    drawn: list[tuple[list[int], int, str]] = []
    while len(drawn) < 256:
        numbers = [rng.randint(1, 99) for _ in range(rng.choice((3, 4)))]
        target, expression = numbers[0], str(numbers[0])
        for number in numbers[1:]:
            sign, apply = rng.choice((("+", operator.add), ("-", operator.sub), ("*", operator.mul)))
            target, expression = apply(target, number), f"({expression} {sign} {number})"
        if 10 <= target < 100:
            drawn.append((rng.sample(numbers, len(numbers)), target, expression))
    for (numbers, target, expression), (_, _, other) in zip(drawn, drawn[1:] + drawn[:1], strict=True):
        wrong = [str(target), f"{target} = {target}", f"{expression} + 1", other, f"{expression} + 7 - 7"]
        prompt = f"Reach {target} with the numbers {numbers}, each used once, and with + - * / and parentheses."
        problem = Problem(prompt, expression, {"numbers": numbers, "target": target})
        own = [f"{expression} = {target}", _boxed(f"{target} = {expression}")]
        yield _posed(problem, expression, own, wrong)


_OPENAI = "openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c"
_TORA = "microsoft/ToRA", "213c1c995038c73fab10343814df7a42f990f026"
_QWEN = "QwenLM/Qwen2.5-Math", "a45202bd16f1ec06f433442dc1152d0074773465"
_REFLEXION = "noahshinn/reflexion", "218cf0ef1df84b05ce379dd4a8e47f17766733a0"
_HUMANEVAL = "openai/human-eval", "6d43fb980f9fee3c892a914eda09951f772ad10d"
_DEEPSEEK = "deepseek-ai/DeepSeek-Coder", "2f9fd85927c669dae3c0fbb2d607274023af243e"
_SIMPLE = "hkust-nlp/simpleRL-reason", "cf1c7858bfc145a27aa733e75d930d34f0d318a6"
_GSM, _EVAL, _RUNS = "grade_school_math/data", "evaluation/data", "programming_runs/root"
_OUTPUTS = "src/outputs/llm-agents/tora-{}-v1.0/gsm8k/test_tora_-1_seed0_t0.0_s0_e1319.jsonl"

DATA = {
    "GSM8K": DataSet(
        "numeric",
        [
            Source(*_OPENAI, f"{_GSM}/train.jsonl", "7d97154b91aef28d01c3301741c81ce90039a4b1"),
            Source(*_OPENAI, f"{_GSM}/test.jsonl", "e4c2ff4942b9a78bd74f04141224c11e28d12dc9"),
        ],
        gsm8k,
    ),
    "GSM8K, OpenAI's four models": DataSet(
        "numeric",
        [Source(*_OPENAI, f"{_GSM}/example_model_solutions.jsonl", "95472c66429c88ca96d09031d9624fece293081a")],
        gsm8k_models,
    ),
    "GSM8K, ToRA": DataSet(
        "numeric",
        [
            Source(*_TORA, _OUTPUTS.format("70b"), "122ddce1d1597f5aa78729e0116bd7b16bb15b8f"),
            Source(*_TORA, _OUTPUTS.format("code-34b"), "9acb9443da02ac451bb5af092b41abef548a9f46"),
        ],
        tora,
    ),
    "AIME 2024": DataSet(
        "numeric",
        [Source(*_QWEN, f"{_EVAL}/aime24/test.jsonl", "bb72e176e8d30c09cd67037e17cfc41e6ff48f70")],
        aime,
    ),
    "MATH, test": DataSet(
        "math", [Source(*_TORA, "src/data/math/test.jsonl", "87d7931a3fa757e3bac4602e5bed86d223944e59")], math
    ),
    "MATH-500": DataSet(
        "math",
        [
            Source(
                *_SIMPLE,
                "examples/simplelr_math_eval/data/math500/test.jsonl",
                "2376b9a194b46c0790e197c91b7249e5f88ac09b",
            )
        ],
        math,
    ),
    "MATH, Qwen2.5-Math": DataSet(
        "math",
        [
            Source(
                *_QWEN,
                f"{_EVAL}/eval_rm_maj_example/math_cot_100.jsonl",
                "f20a69f66d6e97a1238613274295082fb92942c8",
            )
        ],
        math_models,
    ),
    "MMLU STEM": DataSet(
        "choice",
        [Source(*_QWEN, f"{_EVAL}/mmlu_stem/test.jsonl", "855b0a4be48552631f5da8dfd15f19bdd6dd8d9b")],
        choices,
    ),
    "countdown, drawn": DataSet("countdown", [], countdown),
    "HumanEval": DataSet(
        "code", [Source(*_HUMANEVAL, "data/HumanEval.jsonl.gz", "998d25196e17af24daf9b6cb3a975fe752528e46")], humaneval
    ),
    "HumanEval, Reflexion": DataSet(
        "code",
        [
            Source(
                *_REFLEXION,
                f"{_RUNS}/simple_human_eval_py_logging/humaneval-py..gz_simple_1_gpt-4_pass_at_k_1_py.jsonl",
                "3c6c876356f600cb9a0cb7fa97d84e7753dd85c7",
            ),
            Source(
                *_REFLEXION,
                f"{_RUNS}/reflexion_humaneval_py_pass_at_1/reflexion_humaneval_py_pass_at_1.jsonl",
                "fcd2f88a1ef7328d278a1887565ad12ddf89654b",
            ),
        ],
        program_models,
    ),
    "MBPP": DataSet(
        "code",
        [Source(*_DEEPSEEK, "Evaluation/MBPP/data/mbpp.jsonl", "96e2dc2f7dd95b7b87b38dc46e42cbed444251bb")],
        mbpp,
    ),
    "MBPP, Reflexion": DataSet(
        "code",
        [
            Source(
                *_REFLEXION,
                f"{_RUNS}/simple_mbpp_py/mbpp-py._simple_1_gpt-4_pass_at_k_1_py.jsonl",
                "4310e147fda55ee1478691e7721a8896a4fc59c6",
            ),
            Source(
                *_REFLEXION,
                f"{_RUNS}/reflexion_mbpp_py/mbpp-py._reflexion_5_gpt-4_pass_at_k_1_py.jsonl",
                "b847f6e2556a694aa5ef74b3c2f4452a33d462d4",
            ),
        ],
        program_models,
    ),
}
