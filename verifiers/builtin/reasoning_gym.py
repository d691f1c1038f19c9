"""reasoning_gym: the procedural tasks of the package reasoning-gym, "reasoning_gym:leg_counting" and a hundred more."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from typing_extensions import override

from rlenv._checks import check_choice, check_count, require

from ..answer import answer_in, document_in
from ..base import Execution, Probes, Problem
from ..dialogues.world import Randomness
from ..plugins.registry import register_verifier
from ..text import WHITESPACE, last_line
from .countdown import ExpressionError, evaluate, expression_in
from .numeric import number_in
from .reference import ReferenceVerifier

SIZE = 10_000
_PROBED = 32  # problems that alphabet and lengths are read off
_LONGEST = 20_000
_STYLED = re.compile(r"\\text(?:bf|it|rm|tt)?\{([^{}]*)\}")
_SAYS = re.compile(r"[=\n]|\b(?:is|are|equals)\b")  # in an answer: "is" does not tell where it begins
_AROUND = ' \t\r\n*`$:"“”'

EXPRESSIONS = frozenset({"simple_integration", "intermediate_integration", "polynomial_multiplication"})  # evaluated
TARGETS = {"puzzle24": 24, "countdown": None}  # any expression of the given numbers; None: the problem says the target

# The scorers of these tasks give the full score for wrong answers too, or evaluate an answer as Python.
SAME = frozenset(  # the reference is the only right answer: no scorer is asked
    {"advanced_geometry", "binary_matrix", "bitwise_arithmetic", "dice", "figlet_font", "fraction_simplification"}
    | {"game_of_life", "game_of_life_halting", "knights_knaves", "letter_jumble", "list_functions", "number_filtering"}
    | {"number_sorting", "pool_matrix", "prime_factorization", "spell_backward", "spiral_matrix", "string_insertion"}
    | {"time_intervals", "word_sequence_reversal", "word_sorting"}
)
ALIKE = frozenset(  # rounded, or one of several: the scorer gets what is written as the reference is
    {"complex_arithmetic", "cryptarithm", "kakurasu", "n_queens", "polynomial_equations", "power_function"}
    | {"quantum_lock", "sokoban", "survo", "tower_of_hanoi"}
)
NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")  # a reference; any other number is wrong
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)  # what comparisons go wrong with
_FRACTION = re.compile(r"\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}")
_PART = re.compile(r"(-?[0-9]{1,40}(?:\.[0-9]{1,40})?)(?![\w.])|\w+|\n|[^\w\s\"'$,]")
_KINDS = str.maketrans(string.digits + string.ascii_uppercase + string.ascii_lowercase, "0" * 10 + "A" * 26 + "a" * 26)
_CALL = "sin|cos|tan|sec|csc|cot|sinh|cosh|tanh|exp|log|ln|sqrt|Abs"
_FORMULA = re.compile(
    rf"(?:\s|[0-9]{{1,12}}(?:\.[0-9]{{1,12}})?+(?![0-9A-Za-z.])|(?:{_CALL}|[A-Za-z])(?![A-Za-z])|[-+*/^()])*+"
)
_HUGE = re.compile(r"(?:\*\*|\^)[\s(+-]*[0-9]{4}|(?:\*\*|\^)[^-+*/]{0,40}(?:\*\*|\^)")  # x**9999, 9**9**9


@register_verifier("reasoning_gym")
class ReasoningGym(ReferenceVerifier):
    """A task of reasoning-gym: its problems, and its scorer for the answer in a place; reward 1.0 for a full score.

    Where the reference is a number, the answer is read as `numeric` reads it, and has to be that number. Of other tasks
    the text in the place goes to the scorer. Its last place is the first fenced block, else the last line, or the whole
    text if the reference has several lines; "is" and "=" lead to no answer where the reference itself has one of them.
    Some thirty tasks whose scorers give the full score for more than the answer are judged by a stricter rule: the same
    numbers, words and signs as the reference, or no other kinds of signs than it has.

    Prompt: the task's question and a newline. Alphabet and lengths are read off 32 problems. Scorers that evaluate
    answers as Python get formulas only; all of them run in worker processes, since some take very long.
    Not caught: what the task's scorer does not, such as yes-or-no tasks that guessing solves half of.

    Args:
        task: its name, such as "leg_counting".
        inside: the tag whose section is the answer, such as "answer"; "/think" for what follows `</think>`.
        size: how many problems the task has.
        place: where the answer stands; see docs/verifiers.md.
        settings: further settings of the task, such as min_digits.

    Raises:
        ValueError: if reasoning-gym is not installed, for an unknown task (with the closest match), or settings that
            the task does not take.
    """

    execution = Execution(isolated=True, needs={"reasoning_gym": "reasoning-gym"})

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
        self.size = check_count("reasoning_gym: size", size, 1, 10**9)
        self._dataset = self._make()
        rng = random.Random(0)
        probed = [self.sample(rng) for _ in range(min(_PROBED, self.size))]
        answers = [self.demonstration(problem) for problem in probed]
        used = set().union(*(problem.text for problem in probed), *answers)
        self.alphabet = string.printable + "".join(sorted(used - set(string.printable)))
        self.prompt_length = 2 * max(len(problem.text) for problem in probed)
        self.answer_length = 2 * max(map(len, answers)) or None

    def sample(self, rng: random.Random) -> Problem:
        """Return one of the task's problems; `answer` is empty if the task has no reference answer."""
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
    def probes(self, problem: Problem) -> Probes:
        return Probes()  # some scorers read a reference, such as one with a sign in front, in its own form only

    @override
    def matches(self, problem: Problem, text: str) -> bool:
        answer, reference, entry = self.answer_in(problem, text), problem.answer, problem.metadata["entry"]
        if answer is None or answer == reference:
            return answer is not None
        foreign = "".join(set(answer) - set(entry["question"]) - set(reference))
        if not foreign.isascii() or _NO_NUMBER.fullmatch(answer):  # many scorers read digits of every script
            return False
        if self.task in TARGETS:
            return is_solution(answer, entry["metadata"]["numbers"], TARGETS[self.task] or entry["metadata"]["target"])
        if self.task in SAME or is_number(self.task, reference):
            return is_same(answer, reference)
        if (self.task in ALIKE and not is_alike(answer, reference)) or (
            self.task in EXPRESSIONS and not is_formula(answer)
        ):
            return False
        try:
            return float(self._dataset.score_answer(answer, entry)) >= 1.0
        except Exception:  # scorers raise whatever their parsers do
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
        check_choice("task of reasoning_gym", self.task, sorted(library.factory.DATASETS))
        try:
            return library.create_dataset(self.task, size=self.size, seed=0, **self.settings)
        except (AssertionError, TypeError, ValueError) as error:  # how it refuses settings
            given = ", ".join(f"{name}={value!r}" for name, value in {"size": self.size, **self.settings}.items())
            raise ValueError(f"reasoning_gym:{self.task} refuses {given}: {error}") from error


def is_formula(text: str) -> bool:
    """Tell whether a text is made of numbers, single letters, known functions, operators and brackets, and is short."""
    return len(text) <= 500 and not _HUGE.search(text) and _FORMULA.fullmatch(text) is not None


def is_solution(text: str, numbers: Sequence[int], target: int) -> bool:
    """Tell whether an expression has each of these numbers once, and the target as its value."""
    try:
        value, found = evaluate(text)
    except ExpressionError:
        return False
    return value == target and sorted(found) == sorted(numbers)


def is_number(task: str, reference: str) -> bool:
    """Tell whether the right answer is one number only; "power_function" takes rounded ones."""
    return task != "power_function" and NUMBER.fullmatch(reference) is not None


def is_same(answer: str, reference: str) -> bool:
    """Tell whether two texts have the same numbers, words and signs in the same lines.

    Quotes, dollars, commas and a last full stop do not count, and a fraction is the same in TeX.
    """
    texts = [_FRACTION.sub(r"\1/\2", text).rstrip(".") for text in (answer, reference)]
    one, other = ([Fraction(part[1]) if part[1] else part[0] for part in _PART.finditer(text)] for text in texts)
    return one == other


def is_alike(answer: str, reference: str) -> bool:
    """Tell whether an answer has only kinds of signs of a reference: capitals, small letters, digits, each mark."""
    return set(answer.translate(_KINDS)) <= {*reference.translate(_KINDS), *WHITESPACE}
