"""choice: one of several choices, given by its label or text."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

from typing_extensions import override

from ...base import Problem
from ...plugins.registry import register_verifier
from ...reading.numbers.question import words_of
from ...reading.reference import ReferenceVerifier
from .claims import given
from .corpus import EXAMPLES, RIGHT, RIGHT_WITH_TEXT, WRONG, WRONG_WITH_TEXT
from .names import Names, names_of

_FORMS = ("{}", "({})", "[{}]", "{})", "{}.", "{}:")


@register_verifier("choice")
class Choice(ReferenceVerifier):
    r"""The choice that a completion gives, if it gives one only; reward 1.0 for the right one, else 0.0.

    A completion names a choice by its label ("B", "(B)", "[B]", "B.", "B)"), by its text, or by both ("B) Lima", "Lima
    (B)"), in upper or lower case, in bold, quotes, dollars or `\boxed{}`. What counts is a choice that is said to be
    the answer ("The correct answer is:", "I choose", "... is correct"), is boxed or stands alone in its line; all of
    these have to name the same one. Without any of them, it is the choice at the beginning of a sentence ("B. Lima is
    the capital"), else what something is ("The capital is Lima"), else the only text that is mentioned.

    Working may stand before the answer and explanations after it; what they deny, suppose or discuss does not count,
    nor does a list of the choices. "A or B", "not B", "B?", a label with the text of another choice, and "the answer
    is" with something that is not a choice score 0. The last 10,000 characters are read, of at most 2,000 lines.

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
        if self._names(problem).called(problem.answer):
            return ""
        return f"the reference answer {problem.answer!r} is none of the choices {', '.join(self._choices(problem))}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the right choice is named, and no other."""
        right = self._names(problem).called(problem.answer)
        return right is not None and self.answer_in(problem, text) == right

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        return given(text, self._names(problem), words_of(problem.text))

    def spellings(self, problem: Problem) -> list[str]:
        """Return the label in the usual forms, the text, and an answer under some working."""
        choices = self._choices(problem)
        label = self._names(problem).called(problem.answer)
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
        label = self._names(problem).called(problem.answer)
        other = next((each for each in choices if each != label), None)
        if label is None or other is None:
            return {}
        families = {family: [form.format(label, other) for form in forms] for family, forms in WRONG.items()}
        if choices[label] and choices[other]:
            families["another-text"] = [form.format(label, choices[other]) for form in WRONG_WITH_TEXT]
        return families

    def _names(self, problem: Problem) -> Names:
        return names_of(tuple(self._choices(problem).items()))

    def _choices(self, problem: Problem) -> dict[str, str]:
        given = problem.metadata.get("choices")
        if isinstance(given, Mapping):
            return {str(label): str(text) for label, text in given.items()}
        if isinstance(given, (list, tuple)):
            return dict(zip(string.ascii_uppercase, map(str, given), strict=False))
        return dict.fromkeys(self.labels, "")


def _posed(question: str, texts: list[str], label: str) -> Problem:
    listed = "".join(f"{name}) {text}\n" for name, text in zip(string.ascii_uppercase, texts, strict=False))
    return Problem(f"{question}\n{listed}Answer:", label, {"choices": texts})
