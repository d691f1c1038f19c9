"""choice: one of several choices, given by its label or its text in the answer's place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from typing_extensions import override

from ..answer import answer_in
from ..base import Problem
from ..plugins.registry import register_verifier
from ..problem import choices_in, examples_beside
from ..text import collapsed
from .reference import ReferenceVerifier

_MARKUP = re.compile(r"\\(?:text(?:bf)?|math(?:rm|bf)) ?\{([^{}]{0,200})\}|\*\*|[`$]|\\[()\[\]]")
_LABEL = re.compile(
    r"[\s(\[\"']*(?:(?:option|choice) [(\[]?)?(\w)(?=\W*$|[)\].:,;!\"'](?![0-9])| [-(–]| (?:because|since|is)\b)",
    re.IGNORECASE,
)
_LEAD = r"(?:[\s()\[\].:,;\"'–]|-(?!\S))*?(?:(?:the|an?) )?"
_BEFORE, _BEHIND = r"(?<![\w./-])", r"(?!\w|[-/]\w|[.,][0-9])"  # of "-1.5" neither 1 nor 1.5 is a choice
_LONGEST = 1_000


@register_verifier("choice")
class Choice(ReferenceVerifier):
    r"""The choice in the answer's place; reward 1.0 for the right one, else 0.0.

    docs/verifiers.md says where the answer stands. A choice is named by its label ("B", "(B)", "B.", "option B"), by
    its text, or by both ("B) Lima"), in upper or lower case, which counts only where two choices differ by it. A place
    with the texts of two choices, with a text that two choices share and no label, or with a label and the text of
    another choice, gives no answer.

    Prompts and alphabet: from the listed problems. The problem's metadata has "choices": a list of texts, labelled
    A, B, C and so on, labels with their texts, or {"label": [...], "text": [...]}, as in ARC. Without them the labels
    are those of `labels`. The reference is a label or a text; one that is none of the choices is the verdict "error".
    Not caught: a guess, which is right one time in as many as there are choices; what a sentence says about its choice
    ("not B", "B or C").

    Args:
        labels: the labels of problems without "choices", one character each.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
        place: where the answer stands: "any", "boxed", "hash", "tag", "stated" or "last".

    Raises:
        ValueError: for labels that are not different letters or digits, or another place.
    """

    examples = examples_beside(__file__)

    def __init__(self, labels: str = "ABCD", inside: str | None = None, place: str = "any") -> None:
        super().__init__(inside, place)
        labels = str(labels)
        if not labels.isalnum() or len(set(labels.casefold())) != len(labels):
            raise ValueError(f"choice: labels must be different letters or digits, such as ABCD, got {labels!r}")
        self.labels = labels

    def fault(self, problem: Problem) -> str:
        """Return why the right choice is not known."""
        if self._right(problem):
            return ""
        return f"the reference answer {problem.answer!r} is none of the choices {', '.join(self._choices(problem))}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the right choice is named."""
        right = self._right(problem)
        return right is not None and self.answer_in(problem, text) == right

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        choices = self._choices(problem)
        return answer_in(
            text,
            self.place,
            lambda part: named(part, choices),
            lambda part: named(part, choices, True),
            prompt=problem.text,
            labels=True,
        )

    def _right(self, problem: Problem) -> str | None:
        return named(problem.answer, self._choices(problem))

    def _choices(self, problem: Problem) -> dict[str, str]:
        return choices_in(problem.metadata.get("choices")) or dict.fromkeys(self.labels, "")


def named(text: str, choices: Mapping[str, str], begins: bool = False) -> str | None:
    """Return the label of the choice that a text names; None for none, or for two.

    Args:
        text: what stands in a place.
        choices: labels with their texts, which may be empty.
        begins: whether the text has to begin with the choice.
    """
    signs = {each.strip(): label for label, each in choices.items() if each.strip() and not plain(each)}
    if (only := text[:_LONGEST].strip(" \t\n`$.")) in signs:  # a choice that is nothing but markup, such as **
        return signs[only]
    text = plain(text[:_LONGEST])
    labels = {label.casefold(): label for label in choices}
    texts = {label: said for label, each in choices.items() if (said := plain(each))}
    longest = "|".join(sorted({re.escape(each) for each in texts.values()}, key=len, reverse=True))
    any_text = rf"{_BEFORE}({longest}){_BEHIND}" if texts else r"((?!))"
    first = re.compile(_LEAD + any_text, re.IGNORECASE)

    def meant(said: str) -> set[str]:
        """Return the labels of the choices with this text, in its case if there are any."""
        exact = {label for label, each in texts.items() if each == said}
        return exact or {label for label, each in texts.items() if each.casefold() == said.casefold()}

    found = _LABEL.match(text)
    if found and (label := labels.get(found[1].casefold())):
        following = first.match(text, found.end())
        return label if following is None or label in meant(following[1]) else None
    begun = first.match(text)
    everything = ([begun[1]] if begun else []) if begins else re.findall(any_text, text, re.IGNORECASE)
    mentioned = set().union(*map(meant, everything))
    return mentioned.pop() if len(mentioned) == 1 else None


def plain(text: str) -> str:
    """Return a text without markup, and with one space between words."""
    return collapsed(_MARKUP.sub(r"\1", text)).replace("\N{MINUS SIGN}", "-")
