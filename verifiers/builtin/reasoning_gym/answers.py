"""Finds the answer to a task of reasoning-gym in what a chat model writes, in the form that the task's scorer reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ...reading.extraction import BOXED, LAST
from ...reading.statements.documents import split
from ...reading.statements.stated import UNCLEAR, Claim, Rank, Unclear, boxed, stated
from ...reading.statements.statements import statements
from ...reading.statements.wording import denied
from ...reading.text import WHITESPACE, conclusion
from ...reading.written import expression_of
from ..json_schema.reading import find_document
from ..numeric.verifier import quantity_in
from .shapes import (
    DOCUMENTS,
    EXPRESSIONS_OF,
    FACTORS,
    JSON,
    LISTS,
    NUMERIC,
    SAYS_YES,
    SOMETIMES_NUMERIC,
    SPELLED,
    VERBAL,
    is_opposed,
    pattern_of,
)

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?(?:[eE][-+]?[0-9]+)?°?")
_LONGEST_PLACES = 400
_QUOTES = " \t\r\n\"'`“”‘’*$"
_PLAIN = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"\\(?:text(?:bf|it|rm|tt)?|math(?:bf|rm|tt|it)|boxed) ?\{([^{}]*)\}", r"\1"),
        (r"\\(?:left|right)(?![a-z])|\\[,:; !]|[$`]|\\[()\[\]]", ""),
        (r"\\(?:times|cdot)(?![a-z])|(?<=[0-9]) ?[*·] ?(?=[0-9])", " × "),
        (r"\\(?:rightarrow|to)(?![a-z])|[-=]>", "→"),
        (r"[\N{MINUS SIGN}\N{EN DASH}]", "-"),
        (r"\\[dt]?frac ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}", r"\1/\2"),
        (r"\^ ?\{? ?\\circ ?\}?|\\degree", "°"),
    )
]
_NOT = re.compile(r"\b(?:not(?! only)|cannot|never|no|impossible|unable|without|fails? to)\b|n't\b", re.IGNORECASE)
_BOLD_LINE = re.compile(r"(?<=[.!)])[ \t]*\n\s*\*\*([^*\n]+)\*\*\s*$")  # under sentences
_ROW = re.compile(r"[0-9](?:[ <>]+[0-9])+")
_BY_DIGITS = re.compile(  # working: 1 2 3 2 3, or 1 × 256 + 2 × 64
    r"[0-9]{1,4}(?: [0-9]{1,4}){3,}\W*$|[0-9] × [0-9^{}]+ *[+] *[0-9]+ × [0-9]"
)
_AGREES = re.compile(r"[\W_]*[,;:.!—–](?!.*(?:\b(?:wrong|incorrect)\b|\?))", re.DOTALL)  # No, nothing tells us
_OR = re.compile(r"[^.;]{0,20}\bor\b[^.;]{0,20}", re.IGNORECASE)
_POLITE = re.compile(r"\W*(?:certainly|absolutely|of course|sure thing|hello|thanks|thank you|done|good luck)\W*", re.I)
_STUCK = re.compile(r" *[+*/^|]|[(\[_]")  # what makes more of the answer that it follows
_LEADING = re.compile(
    r"[\W_]*(?:(?:a|an|the|at|in|on|by|about|approximately|exactly|word|list|sequence|button|pegs?) ?)*[\W_]*",
    re.IGNORECASE,
)


def answer_in(task: str, entry: Mapping[str, Any], completion: str, rule: str) -> str | None:
    """Return the answer that a completion gives to a problem; None if it gives none, or several that differ.

    Args:
        task: the name of the task.
        entry: the problem as reasoning-gym made it; its reference answer says only what an answer looks like.
        completion: any text.
        rule: "stated", "last" or "boxed"; see `verifiers.reading.extraction`.
    """
    reference, prompt = str(entry["answer"] or ""), entry["question"]
    if prompt.strip():  # who repeats the question answers nothing by that
        completion = completion.replace(prompt.strip(), " ")
    if completion.strip(WHITESPACE) == reference:
        return reference
    if task in EXPRESSIONS_OF:
        metadata = entry["metadata"]
        target = EXPRESSIONS_OF[task]
        target = int(metadata["target"]) if target is None else target
        found = expression_of(completion, metadata["numbers"], target, rule, every=True)
        return None if found is None else found.text
    if task in NUMERIC or (task in SOMETIMES_NUMERIC and _NUMBER.fullmatch(reference)):
        return _number(completion, prompt, rule)
    if task in JSON:
        return _json(completion)
    if task == "futoshiki":
        return _board(completion)
    if task in DOCUMENTS:
        return _lines(completion, DOCUMENTS[task], prompt) or _token(task, reference, prompt, completion, rule)
    return _token(task, reference, prompt, completion, rule)


def _number(completion: str, prompt: str, rule: str) -> str | None:
    """Return the number that a completion gives as `numeric` reads it, with its decimal places."""
    found = quantity_in(completion, prompt, rule)
    if found is None:
        return None
    value: Fraction = found.value
    places = next((n for n in range(_LONGEST_PLACES) if 10**n % value.denominator == 0), None)
    if places is None:
        return str(value)
    if places > 40 or abs(value) >= 10**40:
        return f"{value.numerator * 10**places // value.denominator}e-{places}"
    places = max(places, found.places if not found.percent else 0)
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"


def _json(completion: str) -> str | None:
    try:
        return find_document(completion)
    except ValueError:
        return completion.strip(WHITESPACE)


def _lines(completion: str, line: re.Pattern[str], prompt: str) -> str | None:
    """Return the last lines of this form, those in a fence first; not those that the prompt has too."""
    blocks, outside = split(conclusion(completion))
    for text in (*(block.text for block in reversed(blocks)), outside):
        runs: list[list[str]] = [[]]
        for each in text.split("\n"):
            found = line.fullmatch(each.strip(" \t\r`*"))
            if found:
                runs[-1].append(found["line"])
            elif runs[-1]:
                runs.append([])
        written = ["\n".join(run) for run in runs if run]
        fresh = [run for run in written if run not in prompt] or written
        if fresh:
            return fresh[-1]
    return None


def _board(completion: str) -> str | None:
    """Return the lines from the first row of numbers to the last one, with the signs between them."""
    blocks, outside = split(conclusion(completion))
    for text in (*(block.text for block in reversed(blocks)), outside):
        lines = [line.rstrip() for line in text.split("\n")]
        rows = [index for index, line in enumerate(lines) if _ROW.fullmatch(line)]
        if rows:
            return "\n".join(lines[rows[0] : rows[-1] + 1])
    return None


def _token(task: str, reference: str, prompt: str, completion: str, rule: str) -> str | None:
    """Return the text of the form of an answer that a completion states."""
    pattern = pattern_of(task, reference, prompt)
    known = {_canonical(task, found) for found in pattern.finditer(_plain(prompt))} if pattern else set()

    def read(claim: Claim) -> str | Unclear | None:
        found = _found(task, pattern, known, claim) if pattern else _phrase(claim, reference)
        part = task == "complex_arithmetic" and "i" in reference and claim.rank == Rank.CONCLUSION
        return None if part and isinstance(found, str) and not re.search("[ij]", found) else found

    if rule in (LAST, BOXED):
        claims = [Claim(each, Rank.ANSWER) for each in statements(completion)] if rule == LAST else boxed(completion)
        results = [each for each in map(read, claims) if each is not None]
        return results[-1] if results and results[-1] is not UNCLEAR else None
    completion = conclusion(completion)
    bold = _BOLD_LINE.search(completion)
    if bold and pattern and pattern.fullmatch(_plain(bold[1])):
        completion = f"{completion[: bold.start()]}\n\nAnswer: {bold[1]}"
    if task in LISTS and pattern:  # a word in a list may be a verb, which would make one of several lists a conclusion
        lines = [_plain(line).strip(_QUOTES) for line in completion.split("\n")]
        if len({_canonical(task, found) for found in map(pattern.fullmatch, lines) if found}) > 1:
            return None
    result = stated(completion, read)
    if result is None and task in SAYS_YES:
        result = stated(completion, lambda claim: _implied(task, claim))
    return result


def _found(task: str, pattern: re.Pattern[str], known: set[str], claim: Claim) -> str | Unclear | None:
    """Return the one match in a claim that the prompt does not have; the first one if it begins the claim."""
    if task in VERBAL and claim.rank == Rank.CONCLUSION and claim.verb not in ("", ":"):
        return None
    text = _plain(_whole(claim))
    matches = [
        (found, answer)
        for found in pattern.finditer(text)
        if not denied(
            "" if claim.verb == ":" else pattern.sub("it", text[: found.start()]),
            ""
            if (answer := _canonical(task, found)) == "No" and _AGREES.match(text, found.end())
            else pattern.sub("it", text[found.end() :]),
        )
    ]
    for (one, answer), (other, another) in pairwise(matches):
        if answer != another and _OR.fullmatch(text[one.end() : other.start()]):
            return UNCLEAR
    matches = [each for each in matches if each[1] not in known] or matches
    if not matches or denied("" if claim.verb in ("", ":", "=") else claim.before[-80:], claim.after):
        return None
    if task == "base_conversion" and claim.rank != Rank.ANSWER and _BY_DIGITS.search(text):
        return None
    if any(_STUCK.match(text, found.end()) for found, _ in matches):
        return UNCLEAR
    first, answer = matches[0]
    if is_opposed(text, answer):
        return UNCLEAR
    if len({each for _, each in matches}) == 1:
        return answer
    between = text[first.end() : matches[1][0].start()]
    if re.fullmatch(r"[\s,/|&]*", between):
        return UNCLEAR
    return answer if (claim.verb or claim.rank == Rank.ANSWER) and _LEADING.fullmatch(text[: first.start()]) else None


def _whole(claim: Claim) -> str:
    """Return a claim with its leading words, which may be an answer: "right right up", "No, it does not"."""
    return claim.before + claim.text if not claim.verb and claim.rank != Rank.ANSWER else claim.text


def _phrase(claim: Claim, reference: str) -> str | Unclear | None:
    """Return the words of a claim if there are as many as an answer has."""
    if not claim.verb and claim.rank == Rank.MENTION:
        return None
    if not claim.text.strip(f"{_QUOTES}.!") or _POLITE.fullmatch(claim.text):
        return None
    text = _plain(_whole(claim)).strip(" *")
    quoted = re.match(r"[\"“'`]([^\"”`]+)[\"”'`](?=\W|$)", text)
    text = (quoted[1] if quoted else text).strip(_QUOTES)
    bare = text.rstrip(".,;!")
    ends = text[len(bare) :][:1]
    text = text if ends and reference.endswith(ends) else bare.strip(_QUOTES)
    words = len(reference.split())
    if len(text.split()) != words:
        return UNCLEAR if claim.rank == Rank.ANSWER and words > 2 else None
    return None if denied("", claim.after) else text


def _implied(task: str, claim: Claim) -> str | None:
    """Return Yes or No, True or False, for a sentence that says so: "It does not follow"."""
    if claim.verb or claim.rank == Rank.ANSWER:
        return None
    found = SAYS_YES[task][0].search(claim.text)
    if not found:
        return None
    negated = _NOT.search(re.split(r"[,;]|\b(?:because|since|but)\b", claim.text[: found.start()])[-1] + found[0])
    _, yes, no = SAYS_YES[task]
    return no if negated else yes


def _canonical(task: str, found: re.Match[str]) -> str:
    """Return a match in the spelling of the reference answers."""
    text = " ".join(found[found.lastindex or 0].split())
    if task == "prime_factorization":
        powers = [(int(base), int(_digits(power) or 1)) for base, power in FACTORS.findall(text)]
        return " × ".join(str(base) for base, power in powers for _ in range(min(power, 64)))
    return SPELLED.get(task, str)(text)


def _digits(power: str) -> str:
    return re.sub("[^0-9]", "", power.translate(str.maketrans("²³⁴⁵⁶⁷⁸⁹", "23456789")))


def _plain(text: str) -> str:
    for pattern, to in _PLAIN:
        text = pattern.sub(to, text)
    return text
