"""choice: one of several choices, named by its label or its text."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import lru_cache

from .base import Problem
from .reference import ReferenceVerifier
from .registry import register_verifier
from .text import collapsed, last_line

_LONGEST_LINE = 1_000
_WORDS = ("answer", "choice", "option")
_FRAME = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:(?:correct|right|best|final) )?"
    rf"(?:{'|'.join(_WORDS)})(?: is:?|:) ?"
)
_GIVEN = re.compile(rf"(?:{'|'.join(_WORDS)})s?[ \t]*(?:is|:)")
_FORMS = ("{}", "({})", "[{}]", "{})", "{}.", "{}:")


@register_verifier("choice")
class Choice(ReferenceVerifier):
    """Exactly one choice, the right one; reward 1.0, else 0.0.

    A completion names a choice by its label ("B", "(B)", "[B]", "B.", "B)"), by its text, or by both ("B) Lima"), with
    or without words such as "The answer is" or "Answer:" in front, in upper or lower case. Nothing else may stand in
    that line: "A or B", all choices one after the other, or a label with the text of another choice score 0. Working
    may stand in the lines above; then the last line needs the words in front, and no line above may have them.

    Prompts and alphabet: those of the problems, which come from elsewhere. The problem's metadata has "choices": a list
    of texts, labelled A, B, C and so on, or labels with their texts. Without them the labels are those of `labels`. The
    answer is a label or a text. An answer that is none of the choices is the verdict "error". What it does not catch: a
    guess, which is right one time in as many as there are choices; and working that argues for another choice.

    Args:
        labels: the labels of problems without "choices", one character each.
        inside: the tag whose section is judged instead of the whole completion, such as "answer".

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
        return [_posed(question, choices, label) for question, choices, label in _EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why the right choice is not known."""
        choices = self._choices(problem)
        if _names(tuple(choices.items())).get(_plain(problem.answer)):
            return ""
        return f"the reference answer {problem.answer!r} is none of the choices {', '.join(choices)}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the right choice is named, and no other."""
        line, above = last_line(text)
        if len(line) > _LONGEST_LINE:
            return False
        names, line = _names(tuple(self._choices(problem).items())), _plain(line)
        frame = _FRAME.match(line)
        if above and (not frame or _answers(above)):
            return False
        named = names.get(line) or (names.get(_plain(line[frame.end() :])) if frame else None)
        return named is not None and named == names.get(_plain(problem.answer))

    def spellings(self, problem: Problem) -> list[str]:
        """Return the label in the usual forms, the text, and an answer under some working."""
        choices = self._choices(problem)
        label = _names(tuple(choices.items())).get(_plain(problem.answer))
        if label is None:
            return []
        framed = [f"The answer is {label}.", f"Answer: {label}", f"the correct answer is: ({label})", f"**{label}**"]
        working = [f"Not the first one, I think.\n\nAnswer: {label}"]
        forms = [form.format(label) for form in _FORMS[:5]] + [label.lower(), f" {label}\n"]
        return forms + framed + working + [f"{label}) {choices[label]}"] * bool(choices[label])

    def _choices(self, problem: Problem) -> dict[str, str]:
        given = problem.metadata.get("choices")
        if isinstance(given, Mapping):
            return {str(label): str(text) for label, text in given.items()}
        if isinstance(given, (list, tuple)):
            return dict(zip(string.ascii_uppercase, map(str, given), strict=False))
        return dict.fromkeys(self.labels, "")


def _answers(text: str) -> bool:
    """Tell whether an answer is given; most texts have none of the words, which is quickly seen."""
    lowered = text.lower()
    return any(word in lowered for word in _WORDS) and _GIVEN.search(lowered) is not None


@lru_cache(maxsize=4096)
def _names(choices: tuple[tuple[str, str], ...]) -> Mapping[str, str | None]:
    """Return what each choice may be called; None for a text that two choices share."""
    names: dict[str, str | None] = {}
    for label, text in choices:
        text = _plain(text)
        if text:
            names[text] = None if text in names else label
    for label, text in choices:
        for form in _FORMS:
            called = form.format(label.casefold())
            names[called] = label
            if text:
                names[_plain(f"{called} {text}")] = label
    return names


def _plain(text: str) -> str:
    bare = collapsed(text).casefold().strip("*_\"'` ")
    return bare.removesuffix(".").removesuffix("!").strip("*_\"'` ") or bare


def _posed(question: str, texts: list[str], label: str) -> Problem:
    listed = "".join(f"{name}) {text}\n" for name, text in zip(string.ascii_uppercase, texts, strict=False))
    return Problem(f"{question}\n{listed}Answer:", label, {"choices": texts})


_EXAMPLES = [
    ("What is the capital of Peru?", ["Quito", "Lima", "Bogota", "La Paz"], "B"),
    ("Which of these is a prime number?", ["21", "27", "29", "33"], "C"),
    ("Which planet is closest to the sun?", ["Mercury", "Venus", "Earth", "Mars"], "A"),
    ("Which gas do plants take in?", ["oxygen", "helium", "nitrogen", "carbon dioxide"], "D"),
    ("What is 7 times 8?", ["54", "56", "58", "63"], "B"),
    ("Which word is a verb?", ["table", "green", "quickly", "run"], "D"),
    ("Which of these floats on water?", ["cork", "iron", "lead", "granite"], "A"),
    ("How many sides does a hexagon have?", ["four", "five", "six", "eight"], "C"),
]
