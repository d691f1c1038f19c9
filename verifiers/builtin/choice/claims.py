"""Which choice a completion gives: all that it says about the answer has to name the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ...reading.numbers.question import words_of
from ...reading.statements.stated import claims
from ...reading.statements.statements import LONGEST_TEXT, statements
from ...reading.statements.wording import denied
from ...reading.text import conclusion
from .names import Names, normal

_MOST_LINES = 2_000
_LONG = 7  # spaces of a sentence that mentions a choice and has to be about the question
_FEWEST_WORDS = 3  # of a sentence that mentions a choice
_LONGEST_OTHER = 3  # words: "the answer is in Peru" gives another answer, "the answer is found by adding" none

_BE = r"(?:is|are|was|(?:must|has to|should|would|will|can only) be|'s|=|:|-)"
_KINDS = "choice|option|letter|response|statement|alternative|item"
_NOUN = (
    r"(?:\b(?:answer|ans|solution|conclusion|final|(?:correct|right|best|only) one)"
    rf"|(?:^|\b(?:the|my|your|correct|right|best|only|final|answer|true) )(?:{_KINDS}))"
)
_HOW = (
    r"(?:(?:therefore|thus|clearly|then|indeed|(?:most |very )?(?:probably|likely)|definitely|certainly|simply|just|"
    r"actually|really|obviously|in fact)[, ]+)*"
)
_OPTION = rf"(?:(?:the |my )?(?:(?:correct|right|best|final|true) )?(?:answer|{_KINDS})\b(?: choice)?(?: is)?:? ?)?"
_FRAME = re.compile(  # the answer is ...
    rf"{_NOUN}\b[\"']?(?: (?:here|choice|option|letter|overall))?"
    r"(?: (?:to|for|of|from|among|in) (?:this|that|these|the|your|our|all)(?: [a-z]+){0,4}?)?"
    rf"(?:,? ?{_BE})+ ?{_HOW}[: ]*{_OPTION}"
)
_WEAK_FRAMES = re.compile(  # it is ..., I choose ..., this matches option ..., so ...
    rf"(?:^|, |\b(?:so|thus|hence|therefore|and|then|that|final) )(?:it|this|that|which)(?:'s| (?:is|must be|has to be|"
    rf"should be|would be)) {_HOW}{_OPTION}"
    r"|\b(?:i|we)(?:'d|'ll|'m| would| will| have to| must| can)?(?: (?:choose|pick|select|say|conclude|think|believe|"
    rf"guess|vote for|go(?:ing)? (?:with|for)))+(?: (?:that|it is|it's))* {_OPTION}"
    r"|\b(?:is|gives?|means?|to|matches|match|with|at|choose|pick|select|mark|leaves?(?: us with)?|represents?|equals) "
    r"(?:the )?(?:option|choice|answer|letter) "
    r"|\b(?:left|leaves (?:us|me|you)|leaving(?: us)?) with "
    rf"|^(?:(?:so|thus|therefore|hence|then|finally|in conclusion|ok|okay|final|definitely|certainly|clearly|"
    rf"obviously|probably|hence)\b[,:]? ?)+{_OPTION}"
    r"|^(?:the |my )?(?:(?:correct|right|best|final) )?(?:answer|ans|choice|option|letter|#### ?)\b ?"
    r"|(?:[-=]+>|[→⇒]) ?"
)
_VERDICT = re.compile(
    r",? (?:is|are|would be|must be|has to be|should be)(?: [a-z]+ly)? (?:the )?(?:only |single )?"
    r"(?:correct|right|best|true|answer)\b(?! about)"
)
_ANOTHER = re.compile(  # Zimbabwe [is the answer], which is not among the choices
    r"(?!(?:it|this|that|which|these|those|he|she|they|you|i|none|neither|both|one|what|there|here)\b)[a-z][\w'-]{2,}"
)
_IS = re.compile(
    r"\b(?:(?:is|are|was|were|be) (?:actually|indeed|in fact|really|clearly|definitely|certainly|simply|just)"
    r"|is|are|was|were|by|be|means|called|named|namely|equals)\b|[:=≈]"
)
_CLAUSE = re.compile(r"[.,;:!?] |\b(?:so|thus|hence|therefore|but|however|and|that|then|yet)\b")
_NOT_SAID = re.compile(
    r"\b(?:if|whether|unless|suppose|assuming|might|may|could|eliminate[sd]?|rule[sd]? out|exclude[sd]?)\b"
    r"|\b(?:people|students|others|some|many|they|someone)\b(?: [a-z]+){0,2}? (?:think|believe|say|assume|pick)\b"
)
_LISTED_BEFORE = re.compile(r"\b(?:or|either)\W*$")
_REASON = re.compile(r"[, ]*(?:\b(?:because|since|as|for|due to|given|i hope|let me know)\b|[(-])")
_ASIDE = r"(?: ?\([^()]*\))?"  # Lima (the capital) is wrong
_OF_A_CHOICE = re.compile(
    rf"{_ASIDE},? (?:(?:is|are|was|would be)(?: not|n't)|(?:isn|aren|wasn)'t|can|cannot|might|may|could)\b"
    rf"|{_ASIDE},? (?:is|are|was|seems?|looks?) "
)
_SET_OFF = re.compile(r"[).:\]-] ?$")
_ELIMINATES = re.compile(  # A, B and D are not guaranteed
    r"(?P<labels>\(?[a-z]\)?(?:(?:,|,? and|,? or) \(?[a-z]\b\)?)+) "
    r"(?:(?:are|do|can|could|need)(?: not|n't)|can't|cannot|are (?:wrong|incorrect|false|out))\b"
)
_REFUSED = re.compile(rf"{_ASIDE},? (?:is|are|was)(?: not|n't| wrong| incorrect| false| out)\b|[^.]*\?")
_ANSWER = re.compile(r"\b(?:answer|ans|final|solution|correct|right|best)\b")
_MAY_SAY = re.compile(rf"{_ANSWER.pattern}|\\boxed|^\W*(?:not?|nope|wrong|false|incorrect|just kidding|or not)\b")
_TAKEN_BACK = re.compile(r"\W*(?:not|no|nope|wrong|false|incorrect|just kidding|or not)\W*")
_SOFT = re.compile(
    r"(?:very |quite |pretty )?(?:simple|clear|obvious|straightforward|easy|below|as follows|found|given|based|here|"
    r"explained|correct|right|that|this|it|because|to|determined|the following|in|by|from|not|what)\b"
)
_END = " .,;:!*\"')]}_"


class _Kind(IntEnum):
    """How a statement gives a choice; the strongest kinds decide."""

    MENTION = 0  # Lima has been the capital since 1535
    TEXT = 1  # the capital is Lima
    LEADING = 2  # B. Lima is the capital
    LISTED = 3  # B) Lima
    ALONE = 4  # B
    ANSWER = 5  # the answer is B


class _Said(NamedTuple):
    """What a statement says; the label is None for several choices, and for an answer that is not a choice."""

    label: str | None
    kind: _Kind


def given(text: str, names: Names, about: frozenset[str] = frozenset()) -> str | None:
    """Return the label of the choice that a completion gives; None where it gives none or several.

    Args:
        text: the completion.
        names: of the choices.
        about: the words of the question; a choice that is only mentioned has to be beside one of them.
    """
    text = conclusion(text)
    lines, text = text.count("\n"), text[-LONGEST_TEXT:]
    if lines > _MOST_LINES or not names.stand_in(normal(text)):
        return None
    parts = [normal(each).strip() for each in statements(names.with_brackets(text))]
    said = [
        each
        for part in parts
        if names.stand_in(part) or _MAY_SAY.search(part)
        for each in _said(part, names, alone=len(parts) == 1)
    ]
    if len({each.label for each in said if each.kind == _Kind.LISTED}) > 1:
        said = [each for each in said if each.kind != _Kind.LISTED]  # the choices once more
    strong = [each for each in said if each.kind >= _Kind.LISTED]
    if strong and all(each.kind == _Kind.ALONE for each in strong) and _lines_with(text, names) > 1:
        return None  # "B" again and again
    weak = ([each for each in said if each.kind == kind] for kind in (_Kind.LEADING, _Kind.TEXT, _Kind.MENTION))
    found = next(filter(None, (strong, *weak)), [])
    if len({each.label for each in found}) != 1:
        return None
    if found[0].kind == _Kind.MENTION and not any(_is_about(part, names, about) for part in parts):
        return None
    return found[0].label


def _is_about(statement: str, names: Names, about: frozenset[str]) -> bool:
    """Tell whether a statement that mentions a choice is short, or has a word of the question, and denies nothing."""
    if denied(statement) or not names.mentioned(statement):
        return False
    words = (words_of(statement) & about) - words_of(" ".join(names.texts))
    return statement.count(" ") < _LONG or any(len(word) > 2 for word in words)


def _lines_with(text: str, names: Names) -> int:
    """Return how many lines are a name and nothing else."""
    return sum(names.called(line) is not None for line in text.split("\n"))


def _said(statement: str, names: Names, alone: bool) -> Iterator[_Said]:
    """Yield what a statement in small letters says about the answer."""
    boxes = [group[0] for group in claims(statement) if group[0].verb == "\\boxed"] if "\\boxed" in statement else []
    for box in boxes:
        alone = _open(box.before) and not _LISTED_BEFORE.search(box.before) and _ends(box.after, names)
        yield _Said(names.called(box.text) if alone else None, _Kind.ANSWER)
    if boxes:
        return
    if (whole := _whole(statement, names, alone)) is not None:
        yield whole
    elif _TAKEN_BACK.fullmatch(statement):
        yield _Said(None, _Kind.ANSWER)
    else:
        framed = [*_framed(statement, names), *_judged(statement, names)]
        yield from framed or _mentioned(statement, names)


def _open(before: str) -> bool:
    """Tell whether the words before a name neither deny it nor suppose it."""
    clause = _CLAUSE.split(before)[-1]
    return not denied(clause) and not _NOT_SAID.search(clause)


def _ends(rest: str, names: Names) -> bool:
    """Tell whether the words after a name leave it as it is."""
    other = names.at(rest, 0) if rest.strip(_END) else None
    return (
        "?" not in rest.partition(". ")[0]
        and other is None
        and not _OF_A_CHOICE.match(rest)
        and not re.match(r" ?(?:or|and|/)\b", rest)
    )


def _whole(statement: str, names: Names, alone: bool) -> _Said | None:
    """Return what a statement gives that is a name, and perhaps a reason."""
    named = names.at(statement, 0)
    if named is None:
        return None
    rest = statement[named.end :]
    because = rest.lstrip(" ,").startswith(("because ", "since "))
    if rest.strip(_END) and not because:
        return None
    if rest.endswith(",") and not alone:
        return None
    return _Said(named.label, _Kind.LISTED if named.by == "both" and not because else _Kind.ALONE)


def _framed(statement: str, names: Names) -> Iterator[_Said]:
    """Yield what a statement says is the answer."""
    position = 0
    for frame in sorted([*_FRAME.finditer(statement), *_WEAK_FRAMES.finditer(statement)], key=lambda each: each.end()):
        if frame.end() < position or not _open(statement[: frame.start()] + frame[0]):
            continue
        named, strong = names.at(statement, frame.end()), frame.re is _FRAME
        if not strong and (left := _left(statement[frame.end() :], names)):
            yield _Said(left, _Kind.ANSWER)
            continue
        if named is None:
            if strong and _ANSWER.search(frame[0]) and _gives_another(statement[frame.end() :]):
                yield _Said(None, _Kind.ANSWER)
            continue
        position = named.end
        rest = statement[named.end :]
        if named.label is None or (strong and "?" in rest.partition(". ")[0]):
            yield _Said(None, _Kind.ANSWER)
        elif (strong and named.by != "label" and not _REFUSED.match(rest)) or _ends(rest, names):
            yield _Said(named.label, _Kind.ANSWER)


def _left(text: str, names: Names) -> str | None:
    """Return the one choice that is left where a text begins with all others, and that they are not right."""
    found = _ELIMINATES.match(text)
    out = set(re.findall("[a-z]", found["labels"].replace(" and ", " ").replace(" or ", " "))) if found else set()
    left = [label for known, label in names.labels.items() if known not in out]
    return left[0] if len(left) == 1 and len(out) == len(names.labels) - 1 else None


def _judged(statement: str, names: Names) -> Iterator[_Said]:
    """Yield what stands before "is correct" or "is the answer"."""
    for verdict in _VERDICT.finditer(statement):
        clause = _CLAUSE.split(statement[: verdict.start()])[-1].strip()
        if verdict[0].lstrip(" ,").startswith("are") and re.search(
            r"\b(?:and|or|both)\b", statement[: verdict.start()]
        ):
            yield _Said(None, _Kind.ANSWER)
        noun = re.match(_OPTION, clause)
        named = names.at(clause, noun.end() if noun else 0)
        if named and not clause[named.end :].strip(_END) and "?" not in statement[verdict.end() :]:
            yield _Said(named.label, _Kind.ANSWER)
        elif not named and _ANOTHER.fullmatch(clause) and not names.stand_in(clause):
            yield _Said(None, _Kind.ANSWER)


def _gives_another(rest: str) -> bool:
    """Tell whether what follows "the answer is" gives an answer that is not a choice."""
    words = re.split(r"[.;!?\n(]", rest, maxsplit=1)[0].split()
    return not words or (len(words) <= _LONGEST_OTHER and not _SOFT.match(rest.strip()))


def _mentioned(statement: str, names: Names) -> Iterator[_Said]:
    """Yield a choice at the beginning of a statement, or as what something is."""
    named = names.at(statement, 0)
    if named is not None and named.label is None and named.by == "both":
        yield _Said(None, _Kind.LEADING)
        return
    if named is not None and named.label is not None:
        rest = statement[named.end :]
        answers = named.by != "text" or names.is_word(statement[: named.end])
        if answers and (named.by == "both" or _SET_OFF.search(statement[: named.end + 1])) and not _REFUSED.match(rest):
            yield _Said(named.label, _Kind.LEADING)
            return
    if "?" in statement or not _open(statement):
        return
    for verb in _IS.finditer(statement):
        named = names.at(statement, verb.end())
        rest = statement[named.end :] if named else ""
        if named and named.by != "label" and (not rest.strip(_END) or rest[:1] in ".,;(" or _REASON.match(rest)):
            yield _Said(named.label, _Kind.TEXT)
    if statement.count(" ") >= _FEWEST_WORDS:
        yield from (_Said(label, _Kind.MENTION) for label in names.mentioned(statement))
