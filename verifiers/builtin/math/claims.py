"""Reads the formula in a claim: the reader of `math` for the stated-result rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from ...reading.numbers.units import UNIT
from ...reading.statements.phrases import REASON
from ...reading.statements.stated import UNCLEAR, Claim, Rank, Unclear
from ...reading.statements.wording import changed, denied
from .answers import TEXT, Answer, answer_of, bare, name_of, sides, words_of
from .formulas import Formula, formulas, is_product
from .latex import latex, raised

_LONGEST = 300
_MOST_WORDS = 12
_CLAUSE = re.compile(r"[,;(]|[.!] |(?<!thing )(?<!all )\bbut\b|\b(?:and|so|then|thus|therefore|hence|that|which)\b")
_CONDITION = re.compile(
    r"\b(?:if|when|where|with|because|since|using|let|given(?! by)|suppose|assume|(?<!given )by|from|between|than|"
    r"substitut\w+|consider|recall|formula|check)\b",
    re.IGNORECASE,
)
_AND = re.compile(r"[\s*_\"]*(?:,|;|,?\s*(?:and|or)|\\(?:quad|qquad|text\{\s*(?:or|and)\s*\}))[\s*_\"]*")
_DENIED_AFTER = re.compile(
    r"[\s\"'*)\]$}]*(?:(?:,? ?(?:which|but that|that) )?(?:is|are|was)(?:n't| not| never)?(?: \w+)? "
    r"(?:wrong|incorrect|false|impossible)\b|(?:is|are|was)(?:n't| not)\b|\(?(?:wrong|incorrect|false)\b|\?)",
    re.IGNORECASE,
)
_SOLUTION = re.compile(r"=|<|>|\\(?:le|ge|lt|gt|in|cup)(?![A-Za-z])|\\pm")  # "x = 2 or 3", not "2 or 3"
_AIM = re.compile(r"\bto (?:choose|pick|find|get|obtain|make|have|take|say) *$|\bto $")
_BECAUSE = re.compile(r"(?:\bbecause|\bwhere|\w since)\b[^,;.]*$")
_NEW = re.compile(rf"{_CLAUSE.pattern}|\b(?:is|are|becomes?|gives?|get|have|has|equals?|yields?|obtain|find|this|we)\b")
_WHERE = re.compile(
    r"\W*(?:where|here|let|if|when|since|because|recall|note|with|given(?! by)|suppose)\b", re.IGNORECASE
)
_DOLLAR = re.compile(r"(?<!\\)\$")
_MINUS = re.compile(r"\+ ?-(?=[0-9])")
_ASIDE = re.compile(r"(?:\bwhich|\bor|\bi\.e\.),? *$")
_ROUGHLY = re.compile(r"[\s$*)]*,? ?or (?:about|approximately|roughly|around|equivalently|simply)\b", re.IGNORECASE)
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z*]+\}|\\(?:text|mathrm|mathbb|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_LETTERS = re.compile(r"[A-Za-z]+")
_WORDS = {
    "all real numbers": "(-\\infty, \\infty)", "all reals": "(-\\infty, \\infty)", "empty set": "\\emptyset",
    "no solution": "\\emptyset", "no solutions": "\\emptyset", "no real solution": "\\emptyset",
    "no real solutions": "\\emptyset", "infinity": "\\infty", "negative infinity": "-\\infty",
    "positive infinity": "\\infty", "minus infinity": "-\\infty",
}  # fmt: skip
_NOTHING = re.compile(
    r"\b(?:no (?:real |integer )?(?:solutions?|answer|roots?)|does(?: not|n't) exist|undefined|diverges?|"
    r"infinitely many|cannot be|impossible)\b",
    re.IGNORECASE,
)
_LONGEST_WORDS, _FEW = 6, 3
_DECISIONS = frozenset({"yes", "no", "true", "false"})
_INEQUALITY = r"(?:<|>|\\(?:lt|gt|leq?|geq?)(?![A-Za-z]))"
_UNSOLVED = re.compile(rf"(?!\s*[A-Za-z]\s*{_INEQUALITY})[^<>\\]*[0-9)][A-Za-z][^<>\\]*{_INEQUALITY}[^<>]*")  # 2x < 4


def reader(
    letters: frozenset[str], in_words: bool, known: frozenset[str] = frozenset()
) -> Callable[[Claim], Answer | Unclear | None]:
    """Return the function that reads the formula in a claim.

    Args:
        letters: those of the reference; side by side they are a product and not a word.
        in_words: whether the reference is words.
        known: the formulas of the question, without spaces; a statement that has one repeats the question.
    """

    def read(claim: Claim) -> Answer | Unclear | None:
        if claim.verb == "\\boxed":
            return _in_box(claim, letters)
        return None if is_aim(claim) else _in_statement(claim, letters, in_words, known)

    return read


def is_aim(claim: Claim) -> bool:
    """Tell whether a claim's verb says what is to be done, or for what: "ways to choose 2", "where x = 3"."""
    if claim.rank == Rank.ANSWER:
        return False
    if claim.verb and (_AIM.search(claim.before) or _BECAUSE.search(claim.before)):
        return True
    clause = _NEW.split(claim.before)[-1] if claim.verb else claim.text
    return _WHERE.match(clause) is not None


def without_dollars(claim: Claim) -> Claim:
    """Return a claim without the dollars of the formula in which its verb stands: "$3" and "4$" of $3 = 4$."""
    before, text = claim.before, claim.text
    if claim.verb and len(_DOLLAR.findall(before)) % 2:
        start = before.rindex("$")
        before, text = f"{before[:start]} {before[start + 1 :]}", text.replace("$", " ", 1)
    after = claim.after.partition("\\boxed")[0] if claim.verb == "\\boxed" else claim.after
    before, text = (raised(_MINUS.sub("-", each)) for each in (before, text))
    return claim._replace(before=before, text=text, after=after)


def _in_box(claim: Claim, letters: frozenset[str]) -> Answer | Unclear | None:
    before, after = claim.before.rstrip(" $\\(["), claim.after
    if any(denied(_CLAUSE.split(each)[-1]) for each in (claim.before, before)) or _DENIED_AFTER.match(after):
        return None
    negative = re.search(r"(?:^|[^\w)}]\s*)[-−]$", before) is not None
    if changed(before[:-1] if negative else before, f"${after.lstrip()}") or "\\boxed" in claim.text:
        return UNCLEAR
    return whole(f"-{claim.text.strip()}" if negative else claim.text, letters)


def whole(text: str, letters: frozenset[str]) -> Answer | Unclear | None:
    """Return what a text answers with that is one formula, a list, or words."""
    formula = text.strip().strip("$").strip()
    if TEXT.fullmatch(formula):
        return as_words(formula)
    found = answer_of([formula]) if formula else None
    if found and all(is_formula(part, letters) for part in found.parts):
        return found
    return as_words(formula) or (UNCLEAR if formula else None)


def as_words(text: str) -> Answer | None:
    """Return words as an answer, some of them as the formula that they are; None for too many of them."""
    words = words_of(text)
    if not words or len(words.split()) > _LONGEST_WORDS or any(sign.isdigit() for sign in words):
        return None
    return Answer((_WORDS[words],)) if words in _WORDS else Answer((), (), words)


def is_formula(part: str, letters: frozenset[str]) -> bool:
    """Tell whether a part in LaTeX is mathematics that may be compared, and no words."""
    if not 0 < len(part) <= _LONGEST or not part.isascii() or not part.isprintable() or "$" in part:
        return False
    last = sides(part)[0][-1]
    return all(is_product(run, letters) for run in _LETTERS.findall(_COMMAND.sub(" ", last)))


def _in_statement(
    claim: Claim, letters: frozenset[str], in_words: bool, known: frozenset[str]
) -> Answer | Unclear | None:
    if _ASIDE.search(claim.before):
        return None
    text = f"{claim.before}{claim.verb} {claim.text} {claim.after}"
    start = len(claim.before)
    reason = None if claim.verb else REASON.search(claim.text)
    end = start + len(claim.verb) + 1 + (reason.start() if reason else len(claim.text))
    if in_words:
        first = re.split(r",|\bbecause\b|[.!] ", claim.text)[0]
        stands = claim.verb or claim.rank == Rank.ALONE or claim.text.count(" ") < _FEW or words_of(first) in _DECISIONS
        return as_words(first) if stands else None
    found = formulas(text, letters)
    there = [n for n, each in enumerate(found) if each.end > start and each.start < end]
    if not there:
        if claim.verb and words_of(claim.text) in _WORDS:
            return as_words(claim.text)
        return UNCLEAR if _NOTHING.search(claim.text) else None
    first = there[0] if claim.verb or claim.rank in (Rank.ALONE, Rank.ANSWER) else there[-1]
    group = _group(found, text, first, backwards=found[first].start <= start + len(claim.verb) + 1)
    lead = text[start + len(claim.verb) if claim.verb else 0 : group[0].start]
    before, after = text[: group[0].start], text[group[-1].end :]
    unit = re.match(rf"\s*(?:{UNIT})", after)
    behind = ("$" if group[-1].marked else "") + (after[unit.end() :] if unit else after)
    if len(lead.split()) > _MOST_WORDS or _CONDITION.search(_CLAUSE.split(lead)[-1]):
        return None
    if any(denied(_CLAUSE.split(each)[-1]) for each in (claim.before, before)) or _DENIED_AFTER.match(behind):
        return None
    if changed(before, "") or (changed("", behind) and not _ROUGHLY.match(behind)):
        return UNCLEAR
    if claim.rank == Rank.ALONE and (re.search(r"[A-Za-z]{2}", lead) or len(behind.split()) > _LONGEST_WORDS):
        return None
    answer = answer_of([each.text for each in group], after)
    either = any(re.search(r"\bor\b", text[one.end : other.start]) for one, other in pairwise(group))
    if answer is None or (either and not _SOLUTION.search(answer.parts[0])):
        return UNCLEAR
    if not claim.verb and claim.rank in (Rank.MENTION, Rank.CONCLUSION) and bare(latex(group[-1].text)) in known:
        return None
    if not all(is_formula(part, letters) for part in answer.parts):
        return UNCLEAR
    return None if len(letters) < 2 and _UNSOLVED.fullmatch(answer.parts[-1]) else answer


def _group(found: tuple[Formula, ...], text: str, first: int, backwards: bool) -> list[Formula]:
    """Return the formulas that belong together: those joined by commas, "and" and "or"; of what follows, the end."""
    last = first
    while last + 1 < len(found) and found[last + 1].start == found[first].start:
        last += 1
    group = [found[last]]
    for following in found[last + 1 :]:
        if not _AND.fullmatch(text[group[-1].end : following.start]):
            break
        group.append(following)
    if backwards and name_of(latex(group[0].text)):
        for before in reversed(found[:first]):
            if not _AND.fullmatch(text[before.end : group[0].start]) or not name_of(latex(before.text)):
                break
            group.insert(0, before)
    return group
