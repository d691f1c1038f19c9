"""reasoning_gym: the procedural tasks of the package reasoning-gym, "reasoning_gym:leg_counting" and a hundred more."""

from __future__ import annotations

import ast
import random
import re
import string
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from typing_extensions import override

from ..answer import answer_in, document_in
from ..base import Execution, Problem
from ..dialogues.world import Randomness
from ..plugins.arguments import hint, require, whole_number
from ..plugins.registry import register_verifier
from ..text import WHITESPACE, last_line
from .countdown import ExpressionError, evaluate, expression_in
from .numeric import number_in
from .quiet import quiet
from .reference import ReferenceVerifier

SIZE = 10_000
_PROBED = 32  # problems that alphabet and lengths are read off
_LONGEST = 20_000
_STYLED = re.compile(r"\\text(?:bf|it|rm|tt)?\{([^{}]*)\}")
_SAYS = re.compile(r"[=\n]|\b(?:is|are|equals)\b")  # in an answer: "is" does not tell where it begins
_AROUND = ' \t\r\n*`$:"“”'

# These scorers evaluate the answer as Python, directly or through sympy: only harmless answers may reach them.
LITERALS = frozenset({"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"})
EXPRESSIONS = frozenset(
    {"simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown"}
)

# These scorers give the full score for wrong answers too; an answer also has to pass these checks.
SAME = frozenset(  # any number close by, words that begin alike, lists with more in them
    {"advanced_geometry", "game_of_life", "list_functions", "number_filtering", "number_sorting", "pool_matrix"}
    | {"figlet_font", "game_of_life_halting", "letter_jumble", "spell_backward", "word_sequence_reversal"}
    | {"word_sorting"}
)
NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")  # a reference; any other number is wrong
TARGETS = {"puzzle24": 24, "countdown": None}  # any four numbers, with a fraction cut off; None: the problem says it
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)  # what comparisons go wrong with
_CLAIM = "[A-Za-z]+ is an? [a-z]+"
_CLOCK = r"[0-9]{1,4}:[0-5][0-9]"
FORMS = {
    task: re.compile(form)
    for task, form in {
        "bitwise_arithmetic": "-?0x[0-9a-f]+",
        "complex_arithmetic": r"[-+0-9.() ]+[ij]?\)?",
        "cryptarithm": "[A-Z] ?= ?[0-9](?:, ?[A-Z] ?= ?[0-9])*",
        "dice": "[0-9]+/[0-9]+",
        "fraction_simplification": r"\$?(?:\\d?frac\{[0-9]+\}\{[0-9]+\}|[0-9]+ ?/ ?[0-9]+)\$?",
        "kakurasu": r"[01\s]+",
        "knights_knaves": rf"{_CLAIM}(?:(?:, and |,? and |, |\. ){_CLAIM})*\.?",
        "polynomial_equations": r"-?[0-9]+(?:\.[0-9]+)?(?:, ?-?[0-9]+(?:\.[0-9]+)?)*",
        "power_function": "[-+0-9.,eE]{1,400}",
        "prime_factorization": "[0-9]+(?: ?× ?[0-9]+)*",
        "quantum_lock": r"[A-C](?: ?→ ?[A-C])*",
        "rubiks_cube": r"[A-Za-z]'?(?:\s+[A-Za-z]'?)*",
        "rush_hour": r"[A-Z][+-][0-9](?:\s+[A-Z][+-][0-9])*",
        "sokoban": "[LRUD]+",
        "survo": r"[0-9\s]+",
        "tower_of_hanoi": r"Move disk [0-9]+ from Peg [0-9]+ to Peg [0-9]+(?:\nMove disk [0-9]+ from Peg [0-9]+ to Peg "
        r"[0-9]+)*",
    }.items()
}
_DURATIONS = {  # of time_intervals, by its kind of question
    "date": "[0-9]{1,9}(?: days)?|1 day",
    "time": rf"{_CLOCK}(?::00)?",
    "time_seconds": rf"{_CLOCK}(?::[0-5][0-9])?",
    "time_ms": rf"{_CLOCK}(?::[0-5][0-9](?:\.[0-9]{{3}})?)?",
}
_DATETIME = rf"[0-9]{{1,9}} days, {_CLOCK}(?::[0-5][0-9])?"

_CALLS = frozenset(
    {"sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "Abs"}
)
_PART = re.compile(r"(-?[0-9]{1,40}(?:\.[0-9]{1,40})?)(?![\w.])|\w+|\n|[^\w\s\"']")
_TOKEN = re.compile(r"\s+|[0-9]{1,12}(?:\.[0-9]{1,12})?(?![0-9A-Za-z.])|[A-Za-z]+|\*\*|[-+*/^()]")
_HUGE = re.compile(r"(?:\*\*|\^)[\s(+-]*[0-9]{4}|(?:\*\*|\^)[^-+*/]{0,40}(?:\*\*|\^)")  # x**9999, 9**9**9


@register_verifier("reasoning_gym")
class ReasoningGym(ReferenceVerifier):
    """A task of reasoning-gym: its problems, and its scorer for the answer in a place; reward 1.0 for a full score.

    Where the reference is a number, the answer is read as `numeric` reads it, and has to be that number. Of other tasks
    the text in the place goes to the scorer. Its last place is the first fenced block, else the last line, or the whole
    text if the reference has several lines; "is" and "=" lead to no answer where the reference itself has one of them.
    Some twenty tasks whose scorers give the full score for more than the answer are judged by a stricter rule: the same
    numbers and words, the given numbers, the form that the question asks for.

    Prompt: the task's question and a newline. Alphabet and lengths are read off 32 problems. Scorers that evaluate
    answers as Python get literals and formulas only; all of them run in worker processes, since some take very long.
    Not caught: what the task's scorer does not, such as yes-or-no tasks that guessing solves half of.

    Args:
        task: its name, such as "leg_counting".
        inside: the tag whose section is the answer, such as "answer"; "/think" for what follows `</think>`.
        size: how many problems the task has.
        place: where the answer stands; see docs/verifiers.md.
        settings: further settings of the task, such as min_digits.

    Raises:
        ValueError: if reasoning-gym is not installed, for an unknown task (with the closest matches), or settings that
            the task does not take.
    """

    execution = Execution(isolated=True)
    needs = {"reasoning_gym": "reasoning-gym"}

    def __init__(
        self,
        task: str,
        inside: str | None = None,
        size: int = SIZE,
        place: str = "any",
        **settings: Any,
    ) -> None:
        super().__init__(inside, place, "reasoning_gym")
        self.task, self.settings = task, settings
        self.size = whole_number("reasoning_gym", "size", size, 1, 10**9)
        self._dataset = self._make()
        rng = random.Random(0)
        probed = [self.sample(rng) for _ in range(min(_PROBED, self.size))]
        answers = [self.demonstration(problem) for problem in probed]
        used = set().union(*(problem.text for problem in probed), *answers)
        self.alphabet = string.printable + "".join(sorted(used - set(string.printable)))
        self.prompt_length = 2 * max(len(problem.text) for problem in probed)
        self.answer_length = 2 * max(map(len, answers)) or None

    def sample(self, rng: random.Random) -> Problem:
        """Return one of the task's problems; those without a reference answer have an empty one."""
        index = rng.randrange(self.size)
        with Randomness(index)():  # a few tasks draw from global randomness, or reseed it
            entry = self._dataset[index]
        return Problem(f"{entry['question']}\n", entry["answer"] or "", {"entry": entry})

    def examples(self) -> list[Problem]:
        """Return a few of the task's problems; some tasks take a second to make one."""
        rng = random.Random(0)
        return [self.sample(rng) for _ in range(8)]

    @override
    def fault(self, problem: Problem) -> str:
        return ""  # tasks without a reference have a scorer

    @override
    def paraphrases(self, problem: Problem) -> list[str]:
        return []  # some scorers read a reference, such as one with a sign in front, in its own form only

    @override
    @quiet()
    def matches(self, problem: Problem, text: str) -> bool:
        answer, reference, entry = self.answer_in(problem, text), problem.answer, problem.metadata["entry"]
        if answer is None:
            return False
        if answer != reference and not is_harmless(self.task, answer):
            return False
        if answer != reference and not is_strict(self.task, answer, reference, entry):
            return False
        if self.task in SAME:
            return True
        try:
            return float(self._dataset.score_answer(answer, entry)) >= 1.0
        except Exception:  # scorers raise whatever their parsers do; only the right answer is one they have to read
            if answer == reference:
                raise
            return False

    def answer_in(self, problem: Problem, text: str) -> str | None:
        """Return the answer that a text gives; a number that is equal to the reference as the reference writes it."""
        text = text.strip(WHITESPACE)
        if not 0 < len(text) <= max(_LONGEST, 2 * len(problem.answer)):
            return None
        reference = problem.answer
        if text == reference and self.place in ("any", "last"):
            return text
        question = problem.text.strip()
        text = text.replace(question, " ") if question else text  # who repeats the question has not answered it
        if self.task in TARGETS:
            return expression_in(text, self.place, problem.metadata["entry"]["metadata"]["numbers"])
        if is_number(self.task, reference):
            number = number_in(text, self.place)
            if number is None or number.value == Fraction(reference):
                return None if number is None else reference
            return str(number.value)

        def read(part: str) -> str | None:
            return _STYLED.sub(r"\1", part).strip(_AROUND + "." * (not reference.endswith("."))) or None

        def last(said: str) -> str | None:
            found = document_in(said)
            return read(found if found != said or "\n" in reference else last_line(said))

        return answer_in(text, self.place, read, (lambda part: None) if _SAYS.search(reference) else read, last)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_dataset"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._dataset = self._make()

    def _make(self) -> Any:
        library = require("reasoning_gym", "reasoning-gym", "verifier 'reasoning_gym'")
        tasks = sorted(library.factory.DATASETS)
        if self.task not in tasks:
            raise ValueError(f"reasoning_gym: unknown task {self.task!r}; {hint(self.task, tasks)}")
        try:
            return library.create_dataset(self.task, size=self.size, seed=0, **self.settings)
        except (AssertionError, TypeError, ValueError) as error:  # how it refuses settings
            given = ", ".join(f"{name}={value!r}" for name, value in {"size": self.size, **self.settings}.items())
            raise ValueError(f"reasoning_gym:{self.task} refuses {given}: {error}") from error


def is_harmless(task: str, answer: str) -> bool:
    """Tell whether a task's scorer may read this answer, given what it does with it."""
    if task in EXPRESSIONS:
        return is_formula(answer)
    return task not in LITERALS or is_literal(answer)


def is_formula(text: str) -> bool:
    """Tell whether a text is made of numbers, single letters, known functions, operators and brackets, and is short."""
    if len(text) > 500 or _HUGE.search(text):
        return False
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (token[0].isalpha() and len(token[0]) > 1 and token[0] not in _CALLS):
            return False
        position = token.end()
    return True


def is_literal(text: str) -> bool:
    """Tell whether a text is a Python literal, and neither long nor deep."""
    if len(text) > 5_000 or max(map(text.count, "([{")) > 50:
        return False
    try:
        ast.literal_eval(text)
    except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return False
    return True


def is_number(task: str, reference: str) -> bool:
    """Tell whether the right answer is one number only; "power_function" takes rounded ones."""
    return task != "power_function" and NUMBER.fullmatch(reference) is not None


def is_same(answer: str, reference: str) -> bool:
    """Tell whether two texts have the same numbers, words and signs in the same lines, whatever their quotes."""
    one, other = (
        [Fraction(part[1]) if part[1] else part[0] for part in _PART.finditer(text)] for text in (answer, reference)
    )
    return one == other


def is_strict(task: str, answer: str, reference: str, entry: Mapping[str, Any]) -> bool:
    """Tell whether an answer that is not the reference may have the full score."""
    foreign = set(answer) - set(entry["question"]) - set(reference)
    if not "".join(foreign).isascii() or _NO_NUMBER.fullmatch(answer):  # many scorers read digits of every script
        return False
    if task in SAME or is_number(task, reference):
        return is_same(answer, reference)
    if task == "time_intervals":
        return re.fullmatch(_DURATIONS.get(entry["metadata"]["task_type"], _DATETIME), answer) is not None
    if task in TARGETS:
        target = entry["metadata"]["target"] if TARGETS[task] is None else TARGETS[task]
        try:
            value, numbers = evaluate(answer)
        except ExpressionError:
            return False
        return value == target and sorted(numbers) == sorted(entry["metadata"]["numbers"])
    return task not in FORMS or FORMS[task].fullmatch(answer) is not None
