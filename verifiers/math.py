"""math: a mathematical answer against the reference, by symbolic comparison (math-verify)."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from .base import Problem
from .extras import require
from .reference import ReferenceVerifier
from .registry import register_verifier
from .text import last_line

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
_NAMED = re.compile(r"[A-Za-z]\s*(?:=|\\in\b)\s*(.+)", re.DOTALL)


@register_verifier("math")
class Math(ReferenceVerifier):
    r"""The answer in the last line against the reference, as mathematics; reward 1.0 where they are equal, else 0.0.

    The last line that is not blank holds the answer: in one `\boxed{}`, else in one pair of dollars, else after words
    such as "The answer is", else as the whole line. 1/2, 0.5 and \frac{1}{2} are equal; so are x^2-1 and (x-1)(x+1),
    and sets in any order; decimals are compared to 6 places. A pair or an interval needs the brackets of the reference.
    Two boxes, two formulas, "46 or 47" and words that are no functions score 0. Where the reference is a plain number,
    so has to be the answer: 2*23 is not 46, or the question could be its own answer.

    Prompts and alphabet: those of the problems, which come from elsewhere. The parser can take very long (10^10^10^10)
    or crash, so verdicts are reached in worker processes; nothing in a completion is evaluated as Python. What it does
    not catch: an expression that restates the question where the reference is an expression, too. Neither the words
    around a box or dollars nor the working above the last line are read. Units, equations and words as references
    cannot be compared: their verdicts are errors.

    Args:
        inside: the tag whose section is judged instead of the whole completion, such as "answer".

    Raises:
        ValueError: if math-verify is not installed, or `inside` is no name of a tag.
    """

    isolated = True
    needs = {"math_verify": "math"}

    def __init__(self, inside: str | None = None) -> None:
        super().__init__(inside)
        require("math_verify", "math", "verifier 'math'")

    def examples(self) -> list[Problem]:
        """Return problems whose answers are numbers, expressions, sets, tuples and intervals."""
        return [Problem(f"{question}\n", answer, {"equal": equal}) for question, answer, *equal in _EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        return (
            "" if _reference(problem.answer)[1] else f"the reference answer cannot be read: {problem.answer[-100:]!r}"
        )

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's answer equals the reference."""
        answer, (reference, meant) = final_answer(text), _reference(problem.answer)
        if answer is None or ("%" in answer and "%" not in reference):
            return False
        if _NUMBER.fullmatch(_bare(reference)) and not _NUMBER.fullmatch(_bare(answer)):
            return False
        if "," in reference and _brackets(answer) != _brackets(reference):
            return False
        if _EXPLODES.search(answer) and answer != reference:
            return False
        parsed = _parse(answer)
        return bool(parsed) and bool(_library().verify(meant, parsed, timeout_seconds=None))

    def spellings(self, problem: Problem) -> list[str]:
        """Return the answer boxed, between dollars, in a sentence, below some working, and what equals it."""
        answer = problem.answer
        texts = [f"\\boxed{{{answer}}}", f"The answer is ${answer}$.", f"Answer: ${answer}$", f"First 3.\n\n${answer}$"]
        return texts + [f"${equal}$" for equal in problem.metadata.get("equal", ())]


def final_answer(text: str) -> str | None:
    """Return the formula that a completion ends with, None where there is none or where it is unclear which."""
    line, _ = last_line(text)
    if not line or len(line) > _LONGEST_LINE:
        return None
    boxes = _boxed(line)
    if boxes is None:
        return None
    formulas = boxes or [next(filter(None, found)) for found in _MATHS.findall(line)]
    if len(formulas) > 1:
        return None
    lead = _LEAD.match(line)
    answer = formulas[0] if formulas else line[lead.end() :] if lead else line
    answer = answer.strip(" \t").removesuffix(".").strip(" \t$*")
    unclear = any(word.lower() not in _FUNCTIONS for word in _WORD.findall(_COMMAND.sub(" ", answer)))
    if unclear or not answer.isascii() or not 0 < len(answer) <= _LONGEST_ANSWER or not answer.isprintable():
        return None
    named = _NAMED.fullmatch(answer)  # x = 46 says 46; 47 = 46 says nothing
    if named:
        answer = named[1]
    return None if _RELATION.search(answer) or _TOWER.search(answer) else answer


def _bare(answer: str) -> str:
    return re.sub(r"\\[!,;]|\\left|\\right|\\(?=[{}])| ", "", answer)


def _brackets(answer: str) -> str:
    """Return what is around a list: curly brackets or none where the order is free, others where it is not."""
    bare = _bare(answer)
    listed = "," in bare and bare[0] in "([" and "\\cup" not in bare
    return bare[0] + bare[-1] if listed else ""


def _boxed(line: str) -> list[str] | None:
    r"""Return the contents of every \boxed{...}; None where one is never closed."""
    found, rest = [], line
    while (start := rest.find("\\boxed{")) >= 0:
        rest, depth, end = rest[start + len("\\boxed{") :], 1, 0
        while depth and end < len(rest):
            depth += {"{": 1, "}": -1}.get(rest[end], 0)
            end += 1
        if depth:
            return None
        found.append(rest[: end - 1])
        rest = rest[end:]
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


def _parse(formula: str) -> list[Any]:
    library = _library()
    normal = library.LatexNormalizationConfig(malformed_operators=True, nits=True, boxed="none")  # 3m is not 3
    latex = library.LatexExtractionConfig(normalization_config=normal)  # its other readers end in Python's eval
    return library.parse(f"${formula}$", (latex,), fallback_mode="no_fallback", parsing_timeout=None)


_EXAMPLES = [
    ("What is 18 + 28?", "46", "46.0", "x=46"),
    ("What is 3 divided by 4?", "\\frac{3}{4}", "0.75", "3/4"),
    ("Factor x^2 - 1.", "(x-1)(x+1)", "x^2-1", "(x+1)(x-1)"),
    ("What is the length of the diagonal of a square of side 3?", "3\\sqrt{2}", "\\sqrt{18}"),
    ("Solve x^2 = 4.", "\\{-2,2\\}", "\\{2,-2\\}"),
    ("At which point do y=x+1 and y=3-x meet?", "(1,2)"),
    ("What is the derivative of x^3?", "3x^2", "3*x^2"),
    ("For which x is x^2 < 1?", "(-1,1)"),
    ("What is the area of a circle of radius 2?", "4\\pi", "\\pi*4"),
    ("What is 2 to the power of 20?", "1048576"),
    ("What is 5 minus 12?", "-7", "-7.0"),
    ("What is sin(pi/3)?", "\\frac{\\sqrt{3}}{2}", "\\sqrt{3}/2"),
]
