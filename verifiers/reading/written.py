"""Reads arithmetic as chat models write it: in sentences, LaTeX and chains such as `3 × 7 + 5 = 21 + 5 = 26`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .expressions import DEEPEST, LONGEST, ExpressionError, evaluate
from .statements.stated import UNCLEAR, Claim, Rank, Unclear, boxed, stated
from .statements.statements import statements
from .statements.wording import denied

_LONGEST_CLAIM = 1_000
_FRACTION = re.compile(r"\\[cdt]?frac ?\{([^{}]*)\} ?\{([^{}]*)\}")
_REWRITES = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"</?[a-z]{1,12}>", " "),
        (r"\\(?:left|right|big|Big|bigg|Bigg)(?![a-z])|\\[,:; !]|\\\(|\\\)|[$`]", " "),
        (r"\\(?:text(?:bf|it)?|mathbf|mathrm|boxed) ?\{([^{}]*)\}", r" \1 "),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])|[×·∙⋅∗✕✖⨯]", "*"),
        (r"\\div(?![A-Za-z])|[÷∕⁄]", "/"),
        (r"[\N{MINUS SIGN}\N{EN DASH}\N{HYPHEN}\N{NON-BREAKING HYPHEN}]", "-"),
        (r"(?<=[0-9)\]]) *[xX] *(?=[0-9(\[])", "*"),
        (r"\( *(= *[0-9]+) *\)", r"\1"),  # 3*7 + 5 (= 26)
        (r"\[", "("),
        (r"\]", ")"),
        (r"(?<=[0-9)]) ?\((?=[0-9(])", "*("),  # 2(8 + 10)
        (r"\) ?(?=[0-9])", ")*"),
        (r"(?<=\*\*)(?=[0-9(])|(?<=[0-9)])(?=\*\*(?![0-9(]))", " "),
    )
]
_CHAIN = re.compile(r"[0-9(][0-9+*/()= -]*+")
_BRACKETS = re.compile(r" *\( *[0-9(]")
_STUCK = re.compile(r"[\w^!%√.,+*/<>≠≈-]")  # what makes another expression of the one it is next to


class Written(NamedTuple):
    """An expression that a completion gives.

    Args:
        text: without spaces.
        right: whether it uses the given numbers only and reaches the target.
        given: whether it uses the given numbers only.
    """

    text: str
    right: bool
    given: bool = True


def expression_of(
    completion: str, numbers: Sequence[int], target: int, extract: str = "stated", every: bool = False
) -> Written | None:
    """Return the expression that a completion gives for a target; None if it gives none, or several that differ.

    An equation that holds and leads to another number is working, and so is an expression of other numbers, unless it
    stands alone or is said to be the answer.

    Args:
        completion: any text.
        numbers: each may be used once.
        target: what the expression has to come to, as an exact fraction.
        extract: "stated", "last" or "boxed".
        every: whether each number has to be used.
    """

    def read(claim: Claim) -> Written | Unclear | None:
        return _read(claim, Counter(numbers), target, every)

    if extract == "stated":
        return stated(completion, read, same=_same)
    claims = [Claim(each, Rank.MENTION) for each in statements(completion)]
    found = [result for result in map(read, boxed(completion) if extract == "boxed" else claims) if result is not None]
    return found[-1] if found and found[-1] is not UNCLEAR else None


def plain(text: str) -> str:
    """Return a text with LaTeX, signs such as × and products without a sign in the notation of `expressions`."""
    for pattern, to in _REWRITES[:3]:
        text = pattern.sub(to, text)
    for _ in range(DEEPEST):
        text, count = _FRACTION.subn(r"((\1)/(\2))", text)
        if not count:
            break
    for pattern, to in _REWRITES[3:]:
        text = pattern.sub(to, text)
    return text


def _same(one: Written, other: Written) -> bool:
    return (one.right and other.right) or one.text == other.text


def _read(claim: Claim, numbers: Counter[int], target: int, every: bool) -> Written | Unclear | None:
    if "=" in claim.verb or len(claim.text) > _LONGEST_CLAIM:
        return None  # the whole statement has both sides
    text = plain(claim.text)
    if _BRACKETS.match(claim.after):
        return None  # they may belong to it; the whole statement has both
    before = plain(claim.before) if claim.verb not in (":", "") else ""
    found: list[Written | Unclear] = []
    for chain in _CHAIN.finditer(text):
        if denied(f"{before} {text[: chain.start()]}", text[chain.end() :]):
            continue
        result = _chained(chain, numbers, target, every)
        if result is not None:
            found.append(result)
    foreign = all(isinstance(each, Written) and not each.given for each in found)
    if not found or (foreign and claim.rank not in (Rank.ALONE, Rank.ANSWER)):
        return None
    first = found[0]
    agreed = first is not UNCLEAR and all(each is not UNCLEAR and _same(each, first) for each in found)
    return first if agreed else UNCLEAR


def _chained(chain: re.Match[str], numbers: Counter[int], target: int, every: bool) -> Written | Unclear | None:
    """Return the expression in a chain of equal sides; None for working and for anything but arithmetic."""
    text = chain[0].rstrip(" =(-*")
    sides = [side.strip() for side in text.split("=")]
    if not re.search("[-+*/]", text.strip("-")):
        return None
    before, after = chain.string[: chain.start()], chain.string[chain.start() + len(text) :]
    if _is_stuck(before, after, len(sides) > 1):
        return UNCLEAR
    values: list[Fraction | int] = []
    main: tuple[str, list[int]] | None = None
    for side in sides:
        try:
            value, used = evaluate(side, whole=False)
        except ExpressionError:
            return UNCLEAR if len(side) <= LONGEST and re.search("[-+*/]", side) else None
        values.append(value)
        if main is None and not side.isdigit():
            main = side.replace(" ", ""), used
    if main is None or any(value != values[0] for value in values):
        return UNCLEAR
    given = Counter(main[1]) <= numbers
    if len(sides) > 1 and (not given or values[0] != target):
        return None
    used_all = not every or Counter(main[1]) == numbers
    return Written(main[0], given and values[0] == target and used_all, given)


def _is_stuck(before: str, after: str, chained: bool) -> bool:
    """Tell whether what is next to a chain makes another one of it; a full stop or comma may follow."""
    end = after.lstrip(" ")
    if end[:1] in (".", ",") or (chained and end[:1] == "!"):
        return end[1:2].isdigit()
    return any(map(_STUCK.match, (before[-1:], after[:1]))) or end[:1] in tuple("+*/^!<>≠≈")
