"""math: a mathematical answer against the reference, by symbolic comparison (math-verify)."""

from __future__ import annotations

import logging
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from typing_extensions import override

from rlenv._checks import require

from ..answer import answer_in, boxes
from ..base import Execution, Problem
from ..numbers import Number, distance, leading_number, only_number, plain
from ..plugins.registry import register_verifier
from ..problem import examples_beside
from ..text import last_line
from .reference import ReferenceVerifier

_LONGEST = 300  # characters of a place
_FUNCTIONS = "sin|cos|tan|ln|log|exp|pi"
_WORD = (  # not \frac, pmatrix, sin
    rf"(?<![\\A-Za-z])(?<!begin\{{)(?<!end\{{)(?!(?:{_FUNCTIONS}|sqrt|and|or)(?![A-Za-z]))"
    r"(?:[A-Za-z]{3,}|(?i:an|as|at|be|by|if|in|is|it|no|of|on|so|to|us|we)(?![A-Za-z(^]))"
)
_UNIT = r"\\(?:text|mbox) ?\{[^{}]*\}(?:\^\{?[23]\}?)?"
_END = re.compile(rf"{_WORD}|{_UNIT}|[.?;:](?!\S)|[$\n]|\\[])]|(?:≈|\\approx(?![A-Za-z])) ?[-0-9.]*")  # of a formula
_LEAD = re.compile(r"(?:[\s*_`\":]|\\?[$€£](?=\s?[-0-9.])|(?:about|exactly)\b)*")
_DELIMITED = re.compile(r"\$\$?(?=[^\s$])([^$]*[^\s$])\$\$?(?![0-9])|\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL)
_JOINED = re.compile(r"\$?\s*(?:\\(?:text|mbox) ?\{|\$)\s*(,?(?: ?(?:and|or))?)\s*[$}]")  # $x = 2$ or $x = 3$
_CHOICE = re.compile(r"(?:^|(?<=\$))\\text(?:bf)? ?\{(\(?[A-Z]\)?)\}(?=\$|$)")  # alone, so no unit
_LETTER = re.compile(r"\\(?:text|mbox|mathrm)(?:bf)? ?\{\(?([A-Z])\)?\}|\(([A-Z])\)")  # a choice, as a reference
_FORMULA = re.compile(r"[0-9\\πθ√∞]|[A-Za-z)] ?[-+*/^(<>=]")
_DANGLING = re.compile(r"[\s*_`\"',;.(-]+$|,? (?:and|or) ?$")
_TEXT = re.compile(r"\\(?:text|mbox|mathrm)(?:bf)? ?\{([^{}]*)\}")
_SAID = re.compile(r"[\w:.,()]+(?: [\w:.,()]+){0,2}")
_BASED = re.compile(r"([0-9A-Za-z]+)_\{?([0-9]+)\}?")
_WORDS = re.compile(r"(?=.*[a-z]{3}|no)[a-z]+(?: [a-z]+){0,2}")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w\}?)?'?(?:\([A-Za-z]\))?")
_LIST = re.compile(r"=[^=]*(?:(?<!\\),|\bor\b|\band\b)[^=]*=")
_HUGE = re.compile(r"\^[\s{(]*[-+]?[0-9.]+[\s)}]*\^|\^[\s{(]*[-+]?[0-9]{4}|[0-9]{4}[)}\s]*!|!\s*!")  # 10^10^10
_RAISED = re.compile("[⁰¹²³⁴-⁹⁻ⁿˣ]+")
_SPACES = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,;:! ]|\s+")
_LATEX = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"\*\*", "^"),
        (r"\\[dt]frac", r"\\frac"),
        (r"\\frac ?(\\pi|[0-9]) ?([0-9])", r"\\frac{\1}{\2}"),
        (r"(?<=[0-9]),\\!(?=[0-9]{3})", ""),
        (r"\s+sqrt|√(?=\()", "sqrt"),
        (rf"(?<![\\A-Za-z])({_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
        ("\N{MINUS SIGN}", "-"),
    )
]
_SPACED = re.compile(r"(?:\s|\\[,;:! ])+(?=\\(?:text|mbox)(?![A-Za-z]))|\\\$ ?(?=-?[0-9.])")  # 5 \, \text{cm}, \$5
_SIGNS = str.maketrans({
    "π": r"\pi ", "θ": r"\theta ", "√": r"\sqrt", "∞": r"\infty ", "±": r"\pm ", "×": r"\times ", "·": r"\cdot ",
    "≤": r"\le ", "≥": r"\ge ", "∪": r"\cup ", "½": r"\frac{1}{2}", "°": "",
})  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """A formula in a text; two are equal if they have the same text.

    Args:
        text: without spaces; of a number its value as a fraction.
        latex: what math-verify reads; empty for words.
        number: the number that it is, if any.
        equation: what math-verify reads of the equation whose last side it is, if any.
    """

    text: str
    latex: str = field(compare=False)
    number: Number | None = field(default=None, compare=False)
    equation: str = field(default="", compare=False)


@lru_cache(maxsize=4096)
def formulas(text: str, several: bool = False) -> tuple[Formula, ...]:
    """Return the formulas of a text of up to 300 characters: the whole text, or the formulas among its words.

    Args:
        text: in LaTeX, Unicode or plain.
        several: whether an equation stays one; else its last side counts, as of x = 4 and f(x) = 2x always.
    """
    text = text.strip(" \t\n*_`")
    if not 0 < len(text) <= _LONGEST:
        return ()
    text = _JOINED.sub(r" \1 ", _CHOICE.sub(r"\1", _SPACED.sub("", text)))
    if not _END.search(text):
        return tuple(filter(None, [_formula(text, "", several)]))
    starts = {0, *(end.end() for end in _END.finditer(text)), *(each.start() for each in _DELIMITED.finditer(text))}
    return tuple(filter(None, (leading_formula(text[start:], several) for start in sorted(starts))))


@lru_cache(maxsize=4096)
def leading_formula(text: str, several: bool = False) -> Formula | None:
    """Return the formula that a text begins with, up to a word, the end of the sentence, or of its `$...$`."""
    text = _SPACED.sub("", text)
    lead = _LEAD.match(text)
    text = text[lead.end() if lead else 0 :]
    if found := _DELIMITED.match(text):
        text = rf"{found[found.lastindex or 0]}\text{{{text[found.end() : found.end() + 20]}}}"
    end = _END.search(text)
    stop = end.start() if end else len(text)
    run = _DANGLING.sub("", text[:stop])
    if found is None and (not _FORMULA.search(run) or run[-1] in "=+/^"):
        return None
    return _formula(run, text[stop:], several)


def words_alone(text: str) -> Formula | None:
    """Return a text of up to three words, in small letters; None for any other text."""
    words = _words(text[: _LONGEST + 1])
    return Formula(words, "") if len(words) <= _LONGEST and _WORDS.fullmatch(words) else None


def _words(text: str) -> str:
    """Return a text in small letters, without LaTeX and the signs around it."""
    return re.sub(r"(?<=,)\s+", "", _TEXT.sub(r"\1", text).strip(" \t\n*_`.$").casefold())


def _said(text: str) -> Formula | None:
    """Return up to three words, numbers or labels from the first `$...$`, else from the first sentence."""
    found = _DELIMITED.search(text[: _LONGEST + 1])
    words = _words(found[found.lastindex or 0] if found else text[:_LONGEST].partition(". ")[0])
    return Formula(words.strip("()"), "") if _SAID.fullmatch(words) else None


def _formula(text: str, behind: str, several: bool) -> Formula | None:
    """Return a run of signs as a formula; `behind` it may stand the unit of a number."""
    text = _RAISED.sub(lambda raised: f"^{{{unicodedata.normalize('NFKC', raised[0])}}}", text)
    for pattern, to in _LATEX:
        text = pattern.sub(to, text)
    first, *others = re.split(r"(?<![\\<>!])=", text)
    equation = text.translate(_SIGNS).strip(" ,.") if len(others) == 1 else ""
    if others and not _LIST.search(text) and (not several or _NAME.fullmatch(first.strip())):
        text = others[-1].strip()
    number = only_number(plain(text).strip())
    if number and not re.search("[0-9][A-Za-z]$", text):  # 2m is a product
        number = leading_number(f"{text}{behind}".strip()) or number
        return Formula(f"{number.value}{'%' if number.percent else ''}", text, number, equation)
    latex = text.translate(_SIGNS).strip(" ,.")
    return Formula(_SPACES.sub("", latex), latex, equation=equation) if latex else None


@register_verifier("math")
class Math(ReferenceVerifier):
    r"""The formula in the place of the answer against the reference, as mathematics; reward 1.0 if equal, else 0.0.

    The place of the answer is that of `verifiers/answer.py`. What follows "=" or "is" is read up to the next word, the
    end of the sentence or of the `$...$`; a reference that is a list or an equation ("x = 3, y = 2") is looked for in
    the last line instead. Formulas may be LaTeX, Unicode (9π, x², √3) or plain (sqrt(3)/2, x^2). Of x = 4 and
    18 + 28 = 46 the last side counts.

    If the reference is a number, the answer has to be a number, exactly equal (18 + 28 is not 46), in the unit of the
    reference or without one. Other formulas are compared by math-verify: x^2-1 is (x-1)(x+1), \sqrt{18} and 4.242641
    are 3\sqrt{2}, sets have any order. A reference of up to three words has to be these words. Nothing is paid for a
    formula that repeats the first one of the question in another form than the reference (6/8 for "Simplify 6/8."),
    for an integral, derivative, limit, sum or product still to be done where the reference has none, for more than 300
    characters, or for powers such as 10^10^10.

    A reference that cannot be read is the verdict "error". Verdicts are reached in worker processes, with a time
    limit, because math-verify can take very long; nothing in a completion is evaluated as Python.

    Args:
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
        place: where the answer is: "any", "boxed", "hash", "tag", "stated" or "last". A majority vote uses it too.

    Raises:
        ValueError: if math-verify is not installed, `inside` is not the name of a tag, or for another `place`.
    """

    execution = Execution(isolated=True, needs={"math_verify": "math"})
    examples = examples_beside(__file__)

    def __init__(self, inside: str | None = None, place: str = "any") -> None:
        super().__init__(inside, place)
        if place == "last":
            self.does_not_catch = {"place-repeated": "only the last line counts"}
        require("math_verify", "math", "verifier 'math'")

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        reference = reference_of(problem.answer)
        if reference and _is_read(reference):
            return ""
        return f"the reference answer cannot be read: {problem.answer[-100:]!r}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's answer equals the reference."""
        found, reference = self.formula_in(problem, text), reference_of(problem.answer)
        if found is None or reference is None or _is_repeated(found, reference, problem.text):
            return False
        if reference.number:
            return found.number is not None and distance(found.number, reference.number, problem.text) == 0
        if not (found.latex and reference.latex):
            return found.text == reference.text
        given, wanted = _equations(found.equation, reference.equation)
        if not given:
            base, other = _BASED.fullmatch(reference.text), _BASED.fullmatch(found.text)
            if found.text == reference.text:
                return True
            if base and other:
                return base.groups() == other.groups()
            given, wanted = _parsed(found.latex), _parsed(reference.latex)
        options = {"allow_set_relation_comp": True, "timeout_seconds": None}
        return not _is_undone(given, wanted) and bool(_library().verify(wanted, given, **options))

    def formula_in(self, problem: Problem, text: str) -> Formula | None:
        """Return the formula, or the words, in the place of the answer."""
        reference = reference_of(problem.answer)
        if reference and not reference.latex:
            spoken = words_alone if _WORDS.fullmatch(reference.text) else _said
            return answer_in(text, self.place, _said, spoken, lambda text: spoken(last_line(text)), problem.text)
        several = reference is not None and re.search(r"[=,]|\\pm", reference.text) is not None

        def read(text: str, which: int = 0) -> Formula | None:
            found = formulas(text, several)
            return found[which] if found else None

        def begins(text: str) -> Formula | None:
            return None if several else leading_formula(text)

        return answer_in(text, self.place, read, begins, lambda text: read(last_line(text), -1), problem.text)

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        found = self.formula_in(problem, text)
        return found.text if found else None


@lru_cache(maxsize=4096)
def reference_of(text: str) -> Formula | None:
    """Return a reference answer: the last box of a text, else the text itself."""
    text = [text, *boxes(text)][-1]
    if letter := _LETTER.fullmatch(text.strip(" $.")):
        return Formula(str(letter[1] or letter[2]).casefold(), "")
    found = words_alone(text) or next(iter(formulas(text, several=True)), None)
    if _TEXT.search(text) and not (found and _is_read(found)):  # \text{June 20}
        return _said(text) or found
    return found


def _is_read(formula: Formula) -> bool:
    """Tell whether a formula can be compared with others."""
    return bool(formula.number or not formula.latex or _parsed(formula.latex))


def _is_repeated(found: Formula, reference: Formula, prompt: str) -> bool:
    """Tell whether a formula is the first one of the question, and not as the reference has it."""
    first = next(iter(formulas(prompt)), None)
    one, other, wanted = (each and _SPACES.sub("", each.latex) for each in (found, first, reference))
    return one == other != wanted


def _is_undone(answer: list[Any], reference: list[Any]) -> bool:
    """Tell whether an answer, as parsed, has an operation to be done, such as an integral, and the reference none."""
    sympy = require("sympy", "math", "verifier 'math'")
    kinds = sympy.Integral, sympy.Derivative, sympy.Limit, sympy.Sum, sympy.Product
    one, other = (any(each.has(*kinds) for each in parsed) for parsed in (answer, reference))
    return one and not other


def _equations(one: str, other: str) -> tuple[list[Any], list[Any]]:
    """Return two equations in the same variables, as parsed; nothing of all others, whose last sides count."""
    parsed = (_parsed(one), _parsed(other)) if one and other and one != other else ([], [])
    symbols = [each[0].free_symbols for each in parsed if each]
    return parsed if len(symbols) == 2 and symbols[0] == symbols[1] else ([], [])


def _parsed(latex: str) -> list[Any]:
    """Return math-verify's reading of a formula; nothing where it cannot read it."""
    if _HUGE.search(latex):
        return []
    library = _library()
    normal = library.LatexNormalizationConfig(malformed_operators=True, nits=True, boxed="none")  # 3m is not 3
    config = library.LatexExtractionConfig(normalization_config=normal)  # its other readers end in Python's eval
    return library.parse(f"${latex}$", (config,), fallback_mode="no_fallback", parsing_timeout=None)


def _library() -> Any:
    # Without its own alarm signals it warns at every call; the worker's deadline takes their place.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return require("math_verify", "math", "verifier 'math'")
