"""choice: one of several choices, given by its label or text."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from typing_extensions import override

from ...base import Problem
from ...registry import register_verifier
from ..reference import ReferenceVerifier
from ..text import collapsed, last_line
from ..wording import denied
from .corpus import EXAMPLES, RIGHT, RIGHT_WITH_TEXT, WRONG, WRONG_WITH_TEXT

_LONGEST_LINE = 1_000
_MOST_STATEMENTS = 2_000
_LONGEST_FRAME = 80
_BE = r" (?:is|must be|has to be|should be|would be)"
_NOUN = r"(?:answer|choice|option|letter|solution|conclusion)"
_FRAME = re.compile(
    r"(?:(?:so|thus|therefore|hence|then|finally|in conclusion|ok|okay),? )?(?:"
    rf"(?:the |my |our )?(?:(?:correct|right|best|final) )?{_NOUN}\b(?:{_BE})?|the (?:correct|right) one{_BE}"
    r"|i(?:'d| would|'ll| will)? (?:choose|pick|select|say|go (?:with|for))|final\b(?= ?[:=])|####"
    rf"|(?:i (?:think|believe|guess) )?(?:that )?(?:(?:it|that|this)(?:{_BE}|'s))?"
    rf") ?[:=]? ?(?:(?:the )?{_NOUN} ?:? )?"
)
_VERDICT = re.compile(r" is (?:the )?(?:(?:correct|right|best)(?: (?:answer|choice|option|one))?|answer)$")
_VERDICT_ENDS = frozenset({"correct", "right", "best", "answer", "choice", "option", "one"})
_GIVEN = re.compile(r"(?:answers?|choice|option|solution|final)[ \t]*(?:is|are|:|=)")
_END_OF_STATEMENT = re.compile(r"(?<=[.!?;])[ \t]+|,[ \t]+(?=(?:so|thus|therefore|hence)\b)")
_BOX = re.compile(r"\\boxed ?\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKUP = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf) ?\{([^{}]*)\}|\\[()\[\]]")
_SAME = {
    "\N{NO-BREAK SPACE}": " ", "\N{FULLWIDTH COLON}": ":", "\N{RIGHT SINGLE QUOTATION MARK}": "'", "\t": " ", "\r": " ",
    "**": "", "$": "",
}  # fmt: skip
_FORMS = ("{}", "({})", "[{}]", "{})", "{}.", "{}:")
_BOTH = ("{0} - {1}", "({0}) - {1}", "{0}, {1}", "{0} = {1}", "{0}:{1}", "{1} ({0})")


@dataclass(frozen=True)
class _Names:
    """What the choices of a problem may be called.

    Args:
        called: the label of the choice that a name is of; None for a text that two choices share.
        listed: the names of a label and its text, as in a list of the choices.
        ends: the last words of all names.
        longest: the characters of the longest name.
    """

    called: Mapping[str, str | None]
    listed: frozenset[str]
    ends: frozenset[str]
    longest: int


class _Claim(NamedTuple):
    """What a statement says.

    Args:
        label: the choice that it names, None where it names none or several.
        framed: whether it says that this is the answer.
        listed: whether it has the form of a line in a list of the choices.
        unclear: whether it gives an answer that is not a choice.
    """

    label: str | None = None
    framed: bool = False
    listed: bool = False
    unclear: bool = False


@register_verifier("choice")
class Choice(ReferenceVerifier):
    r"""Exactly one choice, the right one; reward 1.0, else 0.0.

    A completion names a choice by its label ("B", "(B)", "[B]", "B.", "B)"), by its text, or by both ("B) Lima", "Lima
    (B)"), in upper or lower case, with or without words such as "The answer is", "Option", "It is" or "I choose" in
    front or "is correct" behind, also in `\boxed{}` or dollars. Nothing else may stand in that statement: "A or B",
    "not B", "B?", all choices one after the other, or a label with the text of another choice score 0.

    Working may stand before it, in lines or sentences; then the last statement needs the words or the box, and none
    before it may give another choice ("Final: A", "It is A.", "A" alone in its line; a list of choices with their texts
    gives none) or say "the answer is" something else. More than 2,000 statements score 0.

    Prompts and alphabet: those of the listed problems. The problem's metadata has "choices": a list
    of texts, labelled A, B, C and so on, or labels with their texts. Without them the labels are those of `labels`. The
    answer is a label or a text. An answer that is none of the choices is the verdict "error". Not caught: a
    guess, which is right one time in as many as there are choices; and working that argues for another choice.

    Args:
        labels: the labels of problems without "choices", one character each.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.

    Raises:
        ValueError: for labels that are not different letters or digits.
    """

    def __init__(self, labels: str = "ABCD", inside: str | None = None) -> None:
        super().__init__(inside)
        labels = str(labels)
        if not labels.isalnum() or len(set(labels.casefold())) != len(labels):
            raise ValueError(f"choice: labels must be different letters or digits, such as ABCD, got {labels!r}")
        self.labels = labels

    def examples(self) -> list[Problem]:
        """Return questions with four choices."""
        return [_posed(question, choices, label) for question, choices, label in EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why the right choice is not known."""
        choices = self._choices(problem)
        if _names(tuple(choices.items())).called.get(_plain(problem.answer)):
            return ""
        return f"the reference answer {problem.answer!r} is none of the choices {', '.join(choices)}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the right choice is named, and no other."""
        line, above = last_line(text)
        if len(line) > _LONGEST_LINE:
            return False
        names = _names(tuple(self._choices(problem).items()))
        right = names.called.get(_plain(problem.answer))
        *working, last = _claims(line, names) or [_Claim()]
        if last.label is None or last.label != right or ((working or above) and not last.framed):
            return False
        working += _claims(above, names)
        if len(working) > _MOST_STATEMENTS:
            return False
        if len({claim.label for claim in working if claim.listed}) > 1:
            working = [claim for claim in working if not claim.listed]  # the choices once more
        return all(claim.label in (None, right) and not claim.unclear for claim in working)

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        line, _ = last_line(text)
        if len(line) > _LONGEST_LINE:
            return None
        claims = _claims(line, _names(tuple(self._choices(problem).items())))
        return claims[-1].label if claims else None

    def spellings(self, problem: Problem) -> list[str]:
        """Return the label in the usual forms, the text, and an answer under some working."""
        choices = self._choices(problem)
        label = _names(tuple(choices.items())).called.get(_plain(problem.answer))
        if label is None:
            return []
        texts = [form.format(label) for form in (*_FORMS, *RIGHT)] + [label.lower()]
        if choices[label]:
            listed = "".join(f"{each}) {text}\n" for each, text in choices.items())
            texts += [form.format(label, choices[label]) for form in RIGHT_WITH_TEXT]
            texts += [f"{listed}\nThe answer is {label}."]
        return texts

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the right choice denied, doubted, and beside another choice."""
        choices = self._choices(problem)
        label = _names(tuple(choices.items())).called.get(_plain(problem.answer))
        other = next((each for each in choices if each != label), None)
        if label is None or other is None:
            return {}
        families = {family: [form.format(label, other) for form in forms] for family, forms in WRONG.items()}
        if choices[label] and choices[other]:
            families["another-text"] = [form.format(label, choices[other]) for form in WRONG_WITH_TEXT]
        return families

    def _choices(self, problem: Problem) -> dict[str, str]:
        given = problem.metadata.get("choices")
        if isinstance(given, Mapping):
            return {str(label): str(text) for label, text in given.items()}
        if isinstance(given, (list, tuple)):
            return dict(zip(string.ascii_uppercase, map(str, given), strict=False))
        return dict.fromkeys(self.labels, "")


def _claims(text: str, names: _Names) -> list[_Claim]:
    """Return what the lines of a text say that name a choice, and the sentences of the others."""
    found: dict[str, _Claim] = {}
    for line in dict.fromkeys(_normal(text).split("\n")):
        found[line] = _claim(line, names)
        if found[line].label is None and len(statements := _END_OF_STATEMENT.split(line)) > 1:
            del found[line]
            found.update({each: _claim(each, names) for each in dict.fromkeys(statements)})
        if len(found) > _MOST_STATEMENTS:
            break
    return [claim for statement, claim in found.items() if statement.strip()]


def _claim(statement: str, names: _Names) -> _Claim:
    if len(statement) > _LONGEST_LINE:
        return _Claim(unclear=_GIVEN.search(statement) is not None)
    boxes = list(_BOX.finditer(statement)) if "\\boxed" in statement else []
    if len(boxes) > 1:
        return _Claim(unclear=True)
    if boxes:
        before, after = statement[: boxes[0].start()], statement[boxes[0].end() :]
        alone = not after.strip(" .!*") and not denied(before) and not re.search(r"\b(?:or|either)\b", before)
        label = names.called.get(_bare(boxes[0][1])) if alone else _framed(_bare(before + boxes[0][1] + after), names)
        return _Claim(label, framed=label is not None, unclear=label is None)
    bare = _bare(statement)
    if bare in names.called:
        return _Claim(names.called[bare], listed=bare in names.listed)
    label = _framed(bare, names)
    return _Claim(label, framed=label is not None, unclear=label is None and _GIVEN.search(bare) is not None)


def _framed(bare: str, names: _Names) -> str | None:
    """Return what a statement names between the words in front of it and those behind it."""
    bare = bare.partition(" because ")[0].rstrip(", ")
    end = re.split("[ :=]", bare)[-1]
    if len(bare) > names.longest + _LONGEST_FRAME or not (end in names.ends or end in _VERDICT_ENDS):
        return None
    frame, verdict = _FRAME.match(bare), _VERDICT.search(bare)
    return names.called.get(_bare(bare[frame.end() if frame else 0 : verdict.start() if verdict else None]))


@lru_cache(maxsize=4096)
def _names(choices: tuple[tuple[str, str], ...]) -> _Names:
    """Return what each choice may be called; None for a text that two choices share."""
    called: dict[str, str | None] = {}
    listed = set()
    for label, text in choices:
        text = _plain(text)
        if text:
            called[text] = None if text in called else label
    for label, text in choices:
        small, text = label.casefold(), _plain(text)
        for form in _FORMS:
            called[form.format(small)] = label
            if text:
                listed.add(_plain(f"{form.format(small)} {text}"))
                called[_plain(f"{form.format(small)} {text}")] = label
        if text:
            called.update({form.format(small, text): label for form in _BOTH})
    ends = {name.rpartition(" ")[2].rpartition(":")[2] for name in called} | {
        name.rpartition(" ")[2] for name in called
    }
    return _Names(called, frozenset(listed), frozenset(ends), max(map(len, called)))


def _plain(text: str) -> str:
    return _bare(_normal(text).replace("\n", " "))


def _normal(text: str) -> str:
    """Return a text in small letters without markup, with spaces and colons of one kind."""
    for sign, to in _SAME.items():
        text = text.replace(sign, to)
    text = text.casefold()
    return _MARKUP.sub(r"\1", text) if "\\" in text else text


def _bare(statement: str) -> str:
    """Return a statement without the signs around it."""
    if "  " in statement:
        statement = collapsed(statement)
    bare = statement.strip("*_\"'` ").rstrip(",; ")
    return bare.removesuffix(".").removesuffix("!").strip("*_\"'` ") or bare


def _posed(question: str, texts: list[str], label: str) -> Problem:
    listed = "".join(f"{name}) {text}\n" for name, text in zip(string.ascii_uppercase, texts, strict=False))
    return Problem(f"{question}\n{listed}Answer:", label, {"choices": texts})
