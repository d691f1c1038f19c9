"""The formula that a completion gives, and the one that a reference answer is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ...reading.extraction import BOXED, LAST, STATED
from ...reading.numbers.asked import same
from ...reading.numbers.claims import reader as number_reader
from ...reading.numbers.quantities import Quantity, normal, numbers_in, quantities
from ...reading.statements.stated import Claim, Unclear, boxed, boxed_result, stated
from ...reading.statements.statements import statements
from ...reading.statements.wording import changed, denied
from ...reading.text import last_line
from ..numeric.verifier import quantity_in
from .answers import TEXT, Answer, answer_of, bare, name_of, sides, words_of
from .claims import as_words, is_aim, is_formula, reader, without_dollars
from .equal import equal, letters_in, parsed_reference
from .formulas import formulas
from .latex import latex

_LONGEST_LINE = 2_000
_LONGEST_ANSWER = 300
_LEAD = re.compile(r"(?:.*\b(?:answer|result|solution)(?: is)?|therefore|so|thus|hence)\s*[:=,]?\s*", re.IGNORECASE)
_MATHS = re.compile(r"\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z*]+\}|\\(?:text|mathrm|operatorname|mathbb)\s*\{[^{}]*\}|\\[A-Za-z]+")
_PLAIN_OR = re.compile(r"(?<![A-Za-z\\{ ])\s+(?:or|and)\s+|\?")
_KNOWN_WORDS = frozenset({
    "yes", "no", "true", "false", "even", "odd", "neither", "none", "undefined", "infinity", "prime", "composite",
    "increasing", "decreasing", "convergent", "divergent", "converges", "diverges", "no solution", "no solutions",
    "no real solution", "no real solutions", "does not exist", "dne", "all real numbers", "infinitely many",
})  # fmt: skip
_SHORT_WORDS = frozenset({
    "a", "an", "the", "is", "no", "yes", "not", "of", "or", "and", "to", "in", "on", "so", "it", "as", "at", "by", "if",
    "we", "us", "my", "all", "one", "two", "six", "ten", "dne", "any", "odd", "even", "see",
})  # fmt: skip
_LONGEST_PRODUCT = 3


class Reference(NamedTuple):
    """A reference answer.

    Args:
        formula: as it is written, without what is around it.
        answer: as it is compared.
        quantity: the number that it is, None where it is something else.
        letters: those in it.
    """

    formula: str
    answer: Answer
    quantity: Quantity | None
    letters: frozenset[str]


def reference_of(text: str) -> Reference | None:
    """Return a reference answer: the whole text, else what its last line or its sentences give; None without one."""
    formula = _unwrapped(text)
    for candidate in (formula, _of_last_line(text, _products(text))):
        found = _as_reference(candidate) if candidate else None
        if found:
            return found
    answer = given(text, STATED, _products(text), in_words=False)
    return _as_reference(", ".join(answer.parts)) if answer and answer.parts else None


def _as_reference(formula: str) -> Reference | None:
    if len(formula) > _LONGEST_ANSWER or "\n" in formula:
        return None
    words = _words(formula)
    if words:
        return Reference(formula, words, None, frozenset())
    if _PLAIN_OR.search(formula) and "=" not in formula:
        return None
    answer = answer_of([formula])
    letters = _products(latex(formula))
    if answer is None or not all(is_formula(part, letters) for part in answer.parts):
        return None
    if not all(parsed_reference(sides(part)[0][-1]) for part in answer.parts):
        return None
    quantity = _quantity(formula) if len(answer.parts) == 1 else None
    return Reference(formula, answer, quantity, frozenset().union(*map(letters_in, answer.parts)))


def _unwrapped(text: str) -> str:
    """Return a formula without the dollars and the box around it."""
    formula = text.strip()
    found = re.fullmatch(r"\$\$?([^$]+)\$\$?|\\\((.+)\\\)|\\\[(.+)\\\]", formula, re.DOTALL)
    formula = (found[found.lastindex or 0] if found else formula).strip()
    box = boxed(formula) if formula.startswith("\\boxed") else []
    return (box[0].text if len(box) == 1 and not box[0].after.strip(" .") else formula).strip().removesuffix(".")


def _words(formula: str) -> Answer | None:
    r"""Return a reference in \text{}, or one of the words that mathematics answers with."""
    return as_words(formula) if TEXT.fullmatch(formula) or words_of(formula) in _KNOWN_WORDS else None


def _products(text: str) -> frozenset[str]:
    """Return the letters of a reference if those side by side are products: xy, mv^2, abcd; none if they are words."""
    runs = _WORD.findall(_COMMAND.sub(" ", text))
    for run in runs:
        known = run.lower() in _SHORT_WORDS or (len(run) > _LONGEST_PRODUCT and list(run) != sorted(set(run)))
        if known:
            return frozenset()
    return letters_in(text)


def _quantity(formula: str) -> Quantity | None:
    """Return the number that a formula is, with its unit; None where it is more."""
    if re.search(r"[0-9][A-Za-z]$", formula):
        return None  # 2m is a product
    chain, _ = sides(latex(formula))
    if len(chain) > 1 and not name_of(latex(formula)):
        return None
    text = normal(chain[-1] if len(chain) > 1 else formula)
    found = quantities(text)
    covered = len(found) == 1 and not (text[: found[0].start] + text[found[0].end :]).strip(" $.")
    return found[0] if covered else None


def number_or_formula(
    text: str, prompt: str, rule: str, letters: frozenset[str], in_words: bool = False
) -> Quantity | Answer | None:
    """Return what a completion answers with: a number if it is one, as `numeric` reads it; see `given`."""
    if rule != STATED:
        return quantity_in(text, prompt, rule) or given(text, rule, letters, in_words, prompt)
    read_number, known = number_reader(prompt), numbers_in(prompt)
    read_formula = reader(letters, in_words, _in_prompt(prompt, letters))

    def read(claim: Claim) -> Quantity | Answer | Unclear | None:
        number = None if is_aim(claim) else read_number(without_dollars(claim))
        if isinstance(number, Quantity):
            return number
        formula = read_formula(claim)
        return number if formula is None else formula

    def agree(one: Quantity | Answer, other: Quantity | Answer) -> bool:
        if isinstance(one, Quantity) and isinstance(other, Quantity):
            return same(one, other, prompt)
        return _same(_as_formula(one), _as_formula(other))

    def repeats(result: Quantity | Answer) -> bool:
        return isinstance(result, Quantity) and result.value in known

    result: Quantity | Answer | None = stated(text, read, agree, repeats)  # type: ignore[misc]
    return result


def _as_formula(result: Quantity | Answer) -> Answer:
    return Answer((str(result.value),), result.units) if isinstance(result, Quantity) else result


def given(text: str, rule: str, letters: frozenset[str], in_words: bool, prompt: str = "") -> Answer | None:
    """Return what a completion answers with, None if with nothing, or if it is unclear with what.

    Args:
        text: the completion.
        rule: what is taken for the answer; see `Math`.
        letters: those of the reference.
        in_words: whether the reference is words.
        prompt: the question, whose formulas are not an answer to it.
    """
    read = reader(letters, in_words, _in_prompt(prompt, letters))
    if rule == STATED:
        return stated(text, read, _same)
    if rule == BOXED:
        return boxed_result(text, read, _same)
    if rule == LAST:
        last = next((each for part in reversed(statements(text)) for each in reversed(formulas(part, letters))), None)
        return answer_of([last.text]) if last else None
    formula = _of_last_line(text, letters)
    return None if formula is None else answer_of([formula])


@lru_cache(maxsize=1024)
def _in_prompt(prompt: str, letters: frozenset[str]) -> frozenset[str]:
    return frozenset(bare(latex(each.text)) for each in formulas(prompt[-_LONGEST_LINE:], letters))


def repeats(answer: Answer, reference: Reference, prompt: str) -> bool:
    """Tell whether an answer only repeats a formula of the question: 6/8, if the task is to simplify it to 3/4."""
    known = _in_prompt(prompt, reference.letters)
    return len(answer.parts) == 1 and bare(answer.parts[0]) in known and bare(latex(reference.formula)) not in known


def _same(one: Answer, other: Answer) -> bool:
    return one == other or voted_formula(one) == voted_formula(other) or equal(one, other, lenient=True)


def voted_formula(answer: Answer) -> str:
    """Return an answer as a text without spaces and names."""
    return answer.words or ",".join(sorted(bare(sides(part)[0][-1]) for part in answer.parts))


def _of_last_line(text: str, letters: frozenset[str]) -> str | None:
    """Return the formula that the last line of a completion gives, None if it has none or several."""
    line, _ = last_line(text)
    if not line or len(line) > _LONGEST_LINE:
        return None
    boxes = _boxes(line)
    if boxes is None:
        return None
    found = boxes or [(each.start(), each[each.lastindex or 0], each.end()) for each in _MATHS.finditer(line)]
    if len(found) > 1:
        return None
    lead = _LEAD.match(line)
    start, answer, end = found[0] if found else (lead.end(), line[lead.end() :], len(line)) if lead else (0, line, 0)
    before, after = line[:start], f"${line[end:]}" if found else ""
    if denied(before, after) or changed(before, after):
        return None
    answer = answer.strip(" \t").removesuffix(".").strip(" \t$*")
    read = answer_of([answer])
    readable = read is not None and all(is_formula(part, letters) for part in read.parts)
    return answer if readable and len(answer) <= _LONGEST_ANSWER else None


def _boxes(line: str) -> list[tuple[int, str, int]] | None:
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
