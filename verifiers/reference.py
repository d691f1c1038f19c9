"""What verifiers that compare a completion with a reference answer have in common."""

from __future__ import annotations

from .base import RIGHT, WRONG, Problem, Verdict, Verifier
from .text import section, tag_name


class ReferenceVerifier(Verifier):
    """Compares what a completion says with `Problem.answer`; subclasses say what counts as the same.

    A problem whose reference answer cannot be read gets the verdict "error": no completion is to blame for it.

    Args:
        inside: the tag whose section is judged instead of the whole completion, such as "answer" for
            `<answer>46</answer>`; without that section, or with two, the reward is 0.

    Raises:
        ValueError: if `inside` is no name of a tag.
    """

    def __init__(self, inside: str | None = None) -> None:
        self.inside = None if inside is None else tag_name(type(self).__name__.lower(), inside)

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether a completion, or the section of it that is judged, gives the reference answer."""
        raise NotImplementedError

    def fault(self, problem: Problem) -> str:
        """Return why no completion can be judged against this reference; empty where it is sound."""
        return "" if problem.answer else "the problem has no reference answer"

    def spellings(self, problem: Problem) -> list[str]:
        """Return other ways to write the reference answer."""
        return []

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Reward 1.0 where the completion gives the reference answer, else 0.0."""
        fault = self.fault(problem)
        if fault:
            return Verdict(0.0, status="error", reason=fault)
        text = completion if self.inside is None else section(completion, self.inside)
        return RIGHT if text is not None and self.matches(problem, text) else WRONG

    def demonstration(self, problem: Problem) -> str:
        """Return the reference answer, in its section where one is judged."""
        return self._wrapped(problem.answer)

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the other spellings, each in its section where one is judged."""
        return [self._wrapped(text) for text in self.spellings(problem)]

    def _wrapped(self, text: str) -> str:
        return text if self.inside is None else f"<{self.inside}>{text}</{self.inside}>"
