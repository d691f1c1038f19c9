"""format: sections in tags, such as <think>...</think><answer>...</answer>."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from ..base import RIGHT, WRONG, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier
from ..text import WHITESPACE, has_visible, tag_name


@register_verifier("format")
class Format(Verifier):
    """Sections in tags, in order, once each, with nothing outside them; reward 1.0 for the form, else 0.0.

    `<think>Three twos.</think><answer>6</answer>` scores. A section that is missing, empty, repeated, nested or out of
    order scores 0, and so does any text outside but whitespace. A section is empty without a letter, digit, punctuation
    mark or symbol that shows: spaces, control characters and characters without width do not count.

    Prompts and alphabet: from the listed problems. Not caught: what stands in the
    sections is not read, so any words in the right tags score; give it a small weight next to a verifier of the answer.

    Args:
        tags: the names of the tags in their order, as a list or joined by commas.

    Raises:
        ValueError: if tags are missing, not names, or given twice.
    """

    does_not_catch = dict.fromkeys(
        ("echo", "all-listed", "several-answers", "junk", "look-alike", "wrong-answer"),
        "the content of the sections is not checked",
    )

    def __init__(self, tags: str | Sequence[str] = ("think", "answer")) -> None:
        names = tags.split(",") if isinstance(tags, str) else tags
        if not isinstance(names, (list, tuple)) or not names:
            raise ValueError(f"format: tags must be names such as think,answer, got {tags!r}")
        self.tags = [tag_name("format", name.strip() if isinstance(name, str) else name) for name in names]
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"format: every tag may come once, got {', '.join(self.tags)}")
        self._marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]

    def examples(self) -> list[Problem]:
        """Return questions whose answers go into the last section."""
        return [
            Problem(f"{question} Show your thinking.\n", answer, {"think": way}) for question, answer, way in _EXAMPLES
        ]

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        rest = completion
        for first, last in zip(self._marks[::2], self._marks[1::2], strict=True):
            outside, opened, rest = rest.partition(first)
            inside, closed, rest = rest.partition(last)
            if not opened or not closed or outside.strip(WHITESPACE) or not has_visible(inside):
                return WRONG
            if any(mark in inside for mark in self._marks):
                return WRONG
        return WRONG if rest.strip(WHITESPACE) else RIGHT

    def demonstration(self, problem: Problem) -> str:
        """Return the sections of the problem's metadata by their tags, with the answer in the last one."""
        contents = {tag: str(problem.metadata.get(tag) or "...") for tag in self.tags}
        if problem.answer:
            contents[self.tags[-1]] = problem.answer
        return "".join(f"<{tag}>{content}</{tag}>" for tag, content in contents.items())


# Question, answer, and what to think.
_EXAMPLES = [
    ("What is 3 plus 3?", "6", "Three and three more."),
    ("What is 12 times 12?", "144", "Ten twelves are 120, two more are 24."),
    ("What is 5 minus 9?", "-4", "9 - 5 = 4, so it is negative."),
    ("What is a quarter of 10?", "2.5", "Half of it is five, and then half of that."),
    ("What is the capital of Peru?", "Lima", "It lies on the coast."),
    ("Which letter comes after B: A, B or C?", "C", "It stands between B and D."),
    ("Is 7 prime?", "yes", "Neither 2 nor 3 divides it."),
    ("How many days has a leap year?", "366", "365 and one in February."),
    ("Who wrote Emma?", "Jane Austen", "The same who wrote Persuasion."),
    ("What is 20 divided by 4?", "5", "4 goes into 20 five times."),
]
