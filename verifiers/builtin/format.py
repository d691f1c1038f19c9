"""format: sections in tags, such as <think>...</think><answer>...</answer>."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from ..base import RIGHT, WRONG, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier
from ..problem import examples_beside
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

    examples = examples_beside(__file__)

    def __init__(self, tags: str | Sequence[str] = ("think", "answer")) -> None:
        names = tags.split(",") if isinstance(tags, str) else tags
        if not isinstance(names, (list, tuple)) or not names:
            raise ValueError(f"format: tags must be names such as think,answer, got {tags!r}")
        self.tags = [tag_name("format", name.strip() if isinstance(name, str) else name) for name in names]
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"format: every tag may come once, got {', '.join(self.tags)}")
        self._marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]

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
