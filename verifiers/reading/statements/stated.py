"""The stated-result rule: what a completion gives as its answer, as a careful examiner reads it.

A completion makes claims, statement by statement, and the highest rank counts:

1. ANSWER: what is boxed, follows "####" or is said to be "the answer". All of them have to agree.
2. CONCLUSION: what follows `is`, `equals`, `=`, `gives`, `comes to`, `:` and the like. The last one counts; those
   before it are working, unless they say something else about the very same thing ("It is 17. It is 18.").
3. ALONE: a statement that is nothing but a result, such as "43 apples". All of them have to agree.
4. MENTION: any other statement in which the reader finds a result; the last one counts.

"No, 43.", "Wait, that is wrong." and the like withdraw what was stated before. Questions claim nothing, and "or 18",
"maybe 18" after a claim must not differ from it. What a result is, the reader says, so that numbers, formulas and
labels of choices follow one rule:

    >>> import re
    >>> def read(claim):
    ...     found = re.fullmatch(r"([0-9]+)[.]?", claim.text)
    ...     return int(found[1]) if found else None
    >>> stated("40 + 3 = 43. The answer is 43, because 40 + 3 = 43. Let me know if you need more!", read)
    43
    >>> stated("The answer is 17. The answer is 18.", read) is None
    True
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from .phrases import (
    CHECKS,
    CONCLUDES,
    IS_THE_ANSWER,
    LEAD,
    OTHERWISE,
    REASON,
    RECONSIDERS,
    SAID,
    VERB,
    WHY,
    WITHDRAWS,
)
from .statements import statements

Result = TypeVar("Result")
_MOST_VERBS = 8  # of a statement, the last ones
_LABELLED = re.compile(r"[a-z][\w']* ?[:=–-] *[0-9]+")  # "or: 0" in a list of words
_SIGNS = [  # 14 plus 9 is 14 + 9
    (re.compile(words), sign)
    for words, sign in (
        (r"\bplus\b", "+"),
        (r"\bminus\b|(?<=[0-9] )−", "-"),
        (r"\b(?:times|multiplied by)\b|×|(?<=[0-9]) x (?=[0-9])", " * "),
        (r"\bdivided by\b|÷", "/"),
    )
]
_LASTING = frozenset({"is", "are", "equals", "=", ":", "'s"})


class Rank(IntEnum):
    """How much a claim counts."""

    MENTION = 0
    ALONE = 1
    CONCLUSION = 2
    ANSWER = 3


class Unclear(Enum):
    """What a reader returns for a claim of several results, "17 or 18": it agrees with no other claim."""

    UNCLEAR = 0


UNCLEAR: Final = Unclear.UNCLEAR
BOX: Final = "\\boxed"  # the verb of what is boxed


class Claim(NamedTuple):
    """A part of a statement that may be the result.

    Args:
        text: what is claimed: the content of the box, or what follows the verb, up to a reason (", because ...").
        rank: how much it counts.
        verb: the word or sign between `before` and `text`: "is", "=", ":", "####", "\\boxed"; empty where `text` is the
            whole statement, or where it stands before "is the answer".
        before: the statement up to the verb.
        after: the rest of the statement.
    """

    text: str
    rank: Rank
    verb: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class _Found(Generic[Result]):
    """A claim with its result.

    Args:
        claim: the claim.
        result: what the reader made of it.
        epoch: the number of second thoughts ("wait", "actually") before it.
        otherwise: whether it is offered beside others: "or 18", "maybe 18".
        first: whether it is in the first statement.
        asked: whether it names what the question asks for; see `stated`.
    """

    claim: Claim
    result: Result | Unclear
    epoch: int
    otherwise: bool
    first: bool
    asked: bool | None


def stated(
    text: str,
    read: Callable[[Claim], Result | Unclear | None],
    same: Callable[[Result, Result], bool] = operator.eq,
    known: Callable[[Result], bool] = lambda _: False,
    asked: Callable[[Claim], bool | None] = lambda _: None,
) -> Result | None:
    """Return the result that a completion states; None where it states none, or several that differ.

    Args:
        text: any completion; the last 10,000 characters are read.
        read: returns the result in a claim, None if it has none, UNCLEAR if it has several. It is asked for the claims
            of a statement in order (see `claims`) until it returns something.
        same: whether two results are the same answer.
        known: whether a result only repeats what the question says: such a conclusion contradicts nothing, and does not
            count against a result that stands alone at the beginning.
        asked: whether a claim names what the question asks for: True, False for something else only, None if it does
            not say. "It also has 8 vertices." does not count beside "A cube has 12 edges.".
    """
    found: list[_Found[Result]] = []
    epoch, checking = 0, False
    for number, statement in enumerate(statements(text)):
        reconsiders = RECONSIDERS.match(statement) is not None
        withdraws = WITHDRAWS.match(statement) is not None
        checking = bool(found) and not withdraws and (checking or CHECKS.match(statement) is not None)
        epoch += reconsiders
        if withdraws:
            found.clear()
        for group in claims(statement):
            claim, result = next(((each, value) for each in group if (value := read(each)) is not None), (None, None))
            if claim is None or result is None:
                continue
            if checking and claim.rank < Rank.ANSWER and not CONCLUDES.search(statement):
                continue
            otherwise = OTHERWISE.match(statement) is not None and not _LABELLED.fullmatch(statement)
            found.append(_Found(claim, result, epoch, otherwise, number == 0, asked(claim)))
    if any(each.asked for each in found):
        found = [each for each in found if each.asked is not False or each.claim.rank == Rank.ANSWER]
    return _decided(found, same, known)


def _decided(
    found: list[_Found[Result]], same: Callable[[Result, Result], bool], known: Callable[[Result], bool]
) -> Result | None:
    """Return the result of the highest rank after the last second thought; None where claims of that rank differ."""
    weighty = [each.epoch for each in found if each.claim.rank > Rank.MENTION and not _repeats(each, known)]
    found = [each for each in found if not weighty or each.epoch >= weighty[-1]]
    proper = [each for each in found if not each.otherwise] or found
    if not proper:
        return None
    first, best = proper[0], max(each.claim.rank for each in proper)
    peers = [each for each in proper if each.claim.rank == best]
    last, rivals = peers[-1], [each for each in found if each.otherwise]
    if best in (Rank.ANSWER, Rank.ALONE):
        rivals += peers
    elif best == Rank.CONCLUSION:
        about = _subject(last.claim)
        rivals += [each for each in peers if about and about == _subject(each.claim) and not _repeats(each, known)]
        if first.first and first.claim.rank == Rank.ALONE:  # 43. The first number is 40.
            rivals, last = ([], first) if _repeats(last, known) else (rivals, last)
            rivals += [] if _repeats(first, known) else [first]
    result = last.result
    if result is UNCLEAR:
        return None
    return result if all(each.result is not UNCLEAR and same(each.result, result) for each in rivals) else None


def _repeats(found: _Found[Result], known: Callable[[Result], bool]) -> bool:
    return found.result is not UNCLEAR and known(found.result)


def _subject(claim: Claim) -> str:
    """Return what a conclusion is about: "x" of "so x = 3"; empty where it does not say, or where that may change."""
    if claim.verb.lower() not in _LASTING:
        return ""
    lead = LEAD.match(claim.before)
    subject = claim.before[lead.end() if lead else 0 :].casefold()
    for words, sign in _SIGNS:
        subject = words.sub(sign, subject)
    return re.sub(r"[^\w+*/^-]+", " ", subject).strip()


def claims(statement: str) -> Iterator[list[Claim]]:
    """Yield the claims of a statement: a group for each box, else one group, the likeliest claim first.

    In a group come what is said to be the answer, what follows each verb, the last verb first, and at last the whole
    statement: once as CONCLUSION or ALONE, and once as MENTION.
    """
    boxes = list(_boxes(statement))
    if boxes:
        for start, content, end in boxes:
            yield [Claim(content, Rank.ANSWER, BOX, statement[:start], statement[end:])]
        return
    if statement.rstrip("\"')* ").endswith("?"):
        return
    yield [*_said(statement), *_concluded(statement)]


def _said(statement: str) -> Iterator[Claim]:
    """Yield what a statement says is the answer."""
    if statement.startswith("####"):
        yield Claim(statement.lstrip("# "), Rank.ANSWER, "####")
    said = SAID.search(statement)
    if said:
        yield _after(statement, said.end(), Rank.ANSWER, said.start("verb"))
        for verb in reversed(list(VERB.finditer(statement, said.end()))[-_MOST_VERBS:]):
            yield _after(statement, verb.end(), Rank.ANSWER, verb.start())
    verdict = IS_THE_ANSWER.search(statement)
    if verdict and not said:
        text, after = statement[: verdict.start()], statement[verdict.end() :]
        for verb in reversed(list(VERB.finditer(text))[-_MOST_VERBS:]):
            yield Claim(text[verb.end() :].strip(), Rank.ANSWER, verb[0], text[: verb.start()], after)
        yield Claim(text, Rank.ANSWER, "", "", after)


def _concluded(statement: str) -> Iterator[Claim]:
    """Yield what a statement concludes, or what it is; what it gives as a reason comes last."""
    verbs = list(VERB.finditer(statement))[-_MOST_VERBS:]
    why = WHY.search(statement)
    end = why.start() if why else len(statement)
    main = [verb for verb in verbs if verb.end() <= end]
    lead = LEAD.match(statement)
    start = lead.end() if lead else 0
    if why and start < end and not main:
        yield Claim(statement[start:end], Rank.CONCLUSION, "", statement[:start], statement[end:])
    for verb in [*reversed(main), *reversed(verbs[len(main) :])]:
        yield _after(statement, verb.end(), Rank.CONCLUSION, verb.start())
    concludes = CONCLUDES.search(statement) is not None
    yield Claim(statement[start:], Rank.CONCLUSION if verbs or concludes else Rank.ALONE, "", statement[:start])
    yield Claim(statement, Rank.CONCLUSION if concludes else Rank.MENTION)


def _after(statement: str, start: int, rank: Rank, verb: int) -> Claim:
    reason = REASON.search(statement, start)
    end = reason.start() if reason else len(statement)
    text = statement[start:end].strip()
    return Claim(text, rank, statement[verb:start].strip(), statement[:verb], statement[end:])


def _boxes(text: str) -> Iterator[tuple[int, str, int]]:
    r"""Yield the content of each closed \boxed{...} that is in no other, with its start and end."""
    position = 0
    while (start := text.find("\\boxed", position)) >= 0:
        position = start + len("\\boxed")
        begin = position + len(text[position:]) - len(text[position:].lstrip(" "))
        if text[begin : begin + 1] != "{":
            continue
        depth, end = 1, begin + 1
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            return
        yield start, text[begin + 1 : end - 1], end
        position = end


def boxed(text: str) -> list[Claim]:
    r"""Return what is in the boxes of a completion, for `extract="boxed"`."""
    return [
        group[0] for statement in statements(text) if "\\boxed" in statement for group in claims(statement)
        if group[0].verb == BOX
    ]  # fmt: skip


def boxed_result(
    text: str,
    read: Callable[[Claim], Result | Unclear | None],
    same: Callable[[Result, Result], bool] = operator.eq,
) -> Result | None:
    """Return the result in the boxes of a completion; None where no box has one, or they differ; see `stated`."""
    results = [each for each in map(read, boxed(text)) if each is not None]
    last = results[-1] if results else UNCLEAR
    if last is UNCLEAR:
        return None
    return last if all(each is not UNCLEAR and same(each, last) for each in results) else None
