"""math: a mathematical answer against the reference, by symbolic comparison (math-verify)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from typing_extensions import override

from ...base import Problem
from ...extras import require
from ...quiet import quiet
from ...registry import register_verifier
from ..plain_numbers import Reading, meanings, read
from ..reference import ReferenceVerifier
from ..text import last_line
from ..wording import changed, denied
from .corpus import EXAMPLES, RIGHT, RIGHT_NUMBERS, WRONG, WRONG_NUMBERS

_LONGEST_LINE = 2_000
_LONGEST_ANSWER = 300
_LEAD = re.compile(r"(?:.*\b(?:answer|result|solution)(?: is)?|therefore|so|thus|hence)\s*[:=,]?\s*", re.IGNORECASE)
_MATHS = re.compile(r"\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_FUNCTIONS = frozenset({"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "inf"})
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9,]*\.?[0-9]*|\.[0-9]+|\\[dt]?frac(?:\{-?[0-9]+\}|[0-9]){2}|[0-9]+/[0-9]+)\\?%?")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z]+\}|\\[A-Za-z]+")
_RELATION = re.compile(r"=|\\(?:approx|cong|equiv|sim|simeq)(?![A-Za-z])")
_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^")  # 9^{9^{9^9}}: sympy would write it out
_EXPLODES = re.compile(r"[0-9][)}]*\s*\^[\s{(]*[-+]?[0-9.]+[\s)}]*\^|\^[\s{(]*[-+]?[0-9]{5}|[0-9]{5}[)}\s]*!|!\s*!")
_DECIMALS = re.compile(r"\.([0-9]+)")
_PLACES, _LEAST = 6, 100
_NAME = re.compile(r"\s*(?:[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|varphi|omega))(?:'?\s*\([A-Za-z]\))?\s*")
_EQUALS = re.compile(r"(=|\\approx(?![A-Za-z]))")
_UNIT = re.compile(r"\s*(?:\\[,; ])*\s*\\(?:text|mathrm)\s*\{([A-Za-z ]+)\}(?:\^\{?[23]\}?)?$")
_MEMBER = re.compile(r"[A-Za-z]\s*\\in\b\s*(.+)", re.DOTALL)
_NAMED = re.compile(r"[A-Za-z]\s*(?:=|\\in\b)\s*(.+)", re.DOTALL)


@register_verifier("math")
class Math(ReferenceVerifier):
    r"""The answer in the last line against the reference, as mathematics; reward 1.0 if they are equal, else 0.0.

    The last line that is not blank holds the answer: in one `\boxed{}`, else in one pair of dollars, else after words
    such as "The answer is", else as the whole line. 1/2, 0.5 and \frac{1}{2} are equal; so are x^2-1 and (x-1)(x+1),
    and sets in any order. A decimal of 6 places or more may be rounded, if correctly: 0.333333 is 1/3, 0.5000004 is not
    1/2. A pair or an interval needs the brackets of the reference. A chain counts if each side is the reference or
    names it: 18+28=46, f(x)=x^2-1, 3\sqrt{2}\approx 4.24. A unit after it in `\text{}` is not read.

    Two boxes, two formulas, "46 or 47", words that are not functions, and an answer that English words beside it deny
    or change ("no answer: 46", "half of $46$") score 0. Where the reference is a plain number, the answer is read as by
    the verifier `numeric`: 46, 46 cm, 4.6e1 and 10^7 are numbers. 2*23 is not 46 and 10^7 not 10000000 if the prompt
    has it so, or the question could be its own answer.

    Prompts and alphabet: those of the listed problems. The parser can take very long (10^10^10^10)
    or crash, so verdicts are reached in worker processes; nothing in a completion is evaluated as Python. What it does
    not catch: an expression that restates the question where the reference is an expression, too; a wrong unit; denials
    in other languages. The working above the last line is not read. Units, equations and words as references cannot be
    compared: their verdicts are errors.

    Args:
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.

    Raises:
        ValueError: if math-verify is not installed, or `inside` is not the name of a tag.
    """

    isolated = True
    needs = {"math_verify": "math"}

    def __init__(self, inside: str | None = None) -> None:
        super().__init__(inside)
        require("math_verify", "math", "verifier 'math'")

    def examples(self) -> list[Problem]:
        """Return problems whose answers are numbers, expressions, sets, tuples and intervals."""
        return [Problem(f"{question}\n", answer, {"equal": equal}) for question, answer, *equal in EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        return (
            "" if _reference(problem.answer)[1] else f"the reference answer cannot be read: {problem.answer[-100:]!r}"
        )

    @quiet()
    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's answer equals the reference."""
        (reference, meant), plain = _reference(problem.answer), _number(problem.answer)
        given = read(text) if plain else None
        if plain and given:
            places = 0 if _is_too_short(given) else given.places
            return any(_is(value, places, plain.value) for value in meanings(given, plain, problem.text))
        formula = _formula(text, with_unit=True)
        if formula is None:
            return False
        member = _MEMBER.fullmatch(formula)
        parts = _EQUALS.split(member[1] if member else formula)
        sides, relations, exact = parts[::2], ["=", *parts[1::2]], False
        for number, (relation, side) in enumerate(zip(relations, sides, strict=True), start=1):
            last, rounded = number == len(sides), exact and relation != "="
            if not last and relation == "=" and _NAME.fullmatch(side):
                continue
            if not self._equals(side, reference, meant, rounded, working=not last):
                return False
            exact = True
        return True

    def _equals(self, answer: str, reference: str, meant: list[Any], rounded: bool, working: bool) -> bool:
        """Tell whether one side of an answer equals the reference: to its own places if it may be rounded."""
        if not answer.strip() or _TOWER.search(answer) or _RELATION.search(answer):
            return False
        if ("%" in answer and "%" not in reference) or _is_too_short(read(answer)):
            return False
        if not working and _NUMBER.fullmatch(_bare(reference)) and not _NUMBER.fullmatch(_bare(answer)):
            return False
        if "," in reference and _brackets(answer) != _brackets(reference):
            return False
        if _EXPLODES.search(answer) and answer != reference:
            return False
        own = max((len(digits) for digits in _DECIMALS.findall(answer)), default=0)
        known = max((len(digits) for digits in _DECIMALS.findall(reference)), default=0)
        places = own if rounded else max(_PLACES, own, known)
        parsed = _parse(answer)
        options = {"float_rounding": places, "numeric_precision": max(15, places + 10), "timeout_seconds": None}
        return bool(parsed) and bool(_library().verify(meant, parsed, **options))

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        """Return the number as a fraction, or the formula without spaces: x+1 and 1+x are two answers here."""
        given = read(text)
        if given is not None:
            return str(given.value)
        formula = final_answer(text)
        return None if formula is None else _bare(formula)

    def spellings(self, problem: Problem) -> list[str]:
        """Return the answer boxed, between dollars, in a sentence, below some working, and what equals it."""
        answer, plain = _reference(problem.answer)[0], _number(problem.answer)
        texts = [form.format(answer) for form in (*RIGHT, *(RIGHT_NUMBERS if plain else ()))]
        if plain and plain.value.denominator == 1 and not plain.percent:
            texts += [
                f"{plain.value - 9}+9={plain.value}",
                f"${2 * plain.value}/2 = {plain.value}$",
                f"{plain.value}e0",
            ]
        return texts + [f"${equal}$" for equal in problem.metadata.get("equal", ())]

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the answer denied, changed, in a wrong equation, and nearly equal."""
        answer, plain = _reference(problem.answer)[0], _number(problem.answer)
        families = {family: [form.format(answer) for form in forms] for family, forms in WRONG.items()}
        if plain and plain.value and not plain.percent:
            families["number-changed"] = [form.format(answer) for form in WRONG_NUMBERS]
            near = [f"{float(plain.value) + 4e-7:.7f}", f"{float(plain.value) - 3e-8:.8f}"]
            families["nearly-equal"] = [form.format(each) for each in near for form in ("{}", "$x={}$")]
        return families


def final_answer(text: str) -> str | None:
    """Return the formula that a completion ends with, None if it has none or several."""
    answer = _formula(text)
    named = _NAMED.fullmatch(answer) if answer else None  # x = 46 says 46; 47 = 46 says nothing
    if named:
        answer = named[1]
    return None if answer is None or _RELATION.search(answer) or _TOWER.search(answer) else answer


def _formula(text: str, with_unit: bool = False) -> str | None:
    """Return the formula that a completion ends with, which may have several sides; and a unit that is left out."""
    line, _ = last_line(text)
    if not line or len(line) > _LONGEST_LINE:
        return None
    boxes = _boxed(line)
    if boxes is None:
        return None
    formulas = boxes or [(found.start(), found[found.lastindex or 0], found.end()) for found in _MATHS.finditer(line)]
    if len(formulas) > 1:
        return None
    lead = _LEAD.match(line)
    start, answer, end = (
        formulas[0] if formulas else (lead.end(), line[lead.end() :], len(line)) if lead else (0, line, 0)
    )
    before, after = line[:start], f"${line[end:]}" if formulas else ""
    if denied(before, after) or changed(before, after):
        return None
    answer = answer.strip(" \t").removesuffix(".").strip(" \t$*")
    unit = _UNIT.search(answer) if with_unit else None
    if unit and not changed("", unit[1]) and not denied(unit[1]):
        answer = answer[: unit.start()]
    unclear = any(word.lower() not in _FUNCTIONS for word in _WORD.findall(_COMMAND.sub(" ", answer)))
    if unclear or not answer.isascii() or not 0 < len(answer) <= _LONGEST_ANSWER or not answer.isprintable():
        return None
    return answer


def _is(value: Fraction, places: int, reference: Fraction) -> bool:
    """Tell whether a number is the reference, or the reference rounded correctly to 6 places or more."""
    return value == reference or (places >= _PLACES and 2 * abs(value - reference) <= Fraction(1, 10**places))


def _is_too_short(given: Reading | None) -> bool:
    """Tell whether a decimal has places, but hardly a digit that is not 0, so that it cannot pass for a rounded one."""
    return given is not None and given.places >= _PLACES and 0 <= abs(given.value) * 10**given.places < _LEAST


def _bare(answer: str) -> str:
    return re.sub(r"\\[!,;]|\\left|\\right|\\(?=[{}])| ", "", answer)


def _brackets(answer: str) -> str:
    """Return what is around a list: curly brackets or none where the order is free, others where it is not."""
    bare = _bare(answer)
    listed = "," in bare and bare[0] in "([" and "\\cup" not in bare
    return bare[0] + bare[-1] if listed else ""


def _boxed(line: str) -> list[tuple[int, str, int]] | None:
    r"""Return the contents of every \boxed{...} with its start and end; None where one is never closed."""
    found, position = [], 0
    while (start := line.find("\\boxed{", position)) >= 0:
        begin = position = start + len("\\boxed{")
        depth = 1
        while depth and position < len(line):
            depth += {"{": 1, "}": -1}.get(line[position], 0)
            position += 1
        if depth:
            return None
        found.append((start, line[begin : position - 1], position))
    return found


def _library() -> Any:
    # Without its own alarm signals it warns at every call; the worker's deadline takes their place.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return require("math_verify", "math", "verifier 'math'")


@lru_cache(maxsize=4096)
def _reference(answer: str) -> tuple[str, list[Any]]:
    """Return the formula that a reference answer ends with, and what math-verify makes of it; it may be nothing."""
    formula = final_answer(answer) or ""
    return formula, _parse(formula) if formula else []


@lru_cache(maxsize=4096)
def _number(answer: str) -> Reading | None:
    """Return the number that a reference answer is, None where it is something else."""
    formula = _reference(answer)[0]
    return read(f"${formula}$") if _NUMBER.fullmatch(_bare(formula)) else None


def _parse(formula: str) -> list[Any]:
    library = _library()
    normal = library.LatexNormalizationConfig(malformed_operators=True, nits=True, boxed="none")  # 3m is not 3
    latex = library.LatexExtractionConfig(normalization_config=normal)  # its other readers end in Python's eval
    return library.parse(f"${formula}$", (latex,), fallback_mode="no_fallback", parsing_timeout=None)
