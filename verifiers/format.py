"""format: sections in tags, such as <think>...</think><answer>...</answer>."""

from __future__ import annotations

from collections.abc import Sequence

from .base import RIGHT, WRONG, Problem, Verdict, Verifier
from .registry import register_verifier
from .text import WHITESPACE, tag_name


@register_verifier("format")
class Format(Verifier):
    """Sections in tags, in order, once each, with nothing outside them; reward 1.0 for the form, else 0.0.

    `<think>Three twos.</think><answer>6</answer>` scores. A section that is missing, empty, repeated, nested or out of
    order scores 0, and so does any text outside but whitespace.

    Prompts and alphabet: those of the problems, which come from elsewhere. What it does not catch: what stands in the
    sections is not read, so any words in the right tags score; give it a small weight next to a verifier of the answer.

    Args:
        tags: the names of the tags in their order, as a list or joined by commas.

    Raises:
        ValueError: if there is no tag, or one is no name or comes twice.
    """

    does_not_catch = dict.fromkeys(
        (
            "hollow", "alphabet", "control-characters", "special-tokens", "not-a-number", "huge-integer", "persuasion",
            "program", "echo", "all-choices", "shotgun", "shotgun-first", "shotgun-last", "wrong-answer", "glued",
            "negation", "negative", "non-latin-digits", "part-of-answer", "homoglyphs", "zero-width",
        ),
        "what stands in the sections is not read",
    )  # fmt: skip

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
        return [Problem(f"What is {n} plus {n}? Show your thinking.\n", str(2 * n)) for n in range(3, 13)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Walk through the tags in order."""
        rest = completion
        for first, last in zip(self._marks[::2], self._marks[1::2], strict=True):
            outside, opened, rest = rest.partition(first)
            inside, closed, rest = rest.partition(last)
            if not opened or not closed or outside.strip(WHITESPACE) or not inside.strip():
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

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the sections with whitespace around them and with other contents."""
        shown = self.demonstration(problem)
        others = [mark if mark.startswith("</") else f"{mark}two\nlines & a < b" for mark in self._marks]
        return [f"\n{shown}\n", "\n".join(self._marks).replace(">\n</", ">\n.\n</"), "".join(others)]
