"""The base of verifiers that compare a completion with a reference answer."""

from __future__ import annotations

from typing_extensions import override

from rlenv._checks import check_choice

from ..answer import PLACES, REQUESTS, placed
from ..base import RIGHT, WRONG, Probes, Problem, Verdict, Verifier
from ..text import frame_name, framed, in_frame


class ReferenceVerifier(Verifier):
    """Compares a completion with `Problem.answer`; subclasses define what counts as equal.

    If the reference answer cannot be read, the verdict is an "error", because that is not the completion's fault.

    Args:
        inside: judge only the section in this tag, such as "answer", instead of the whole completion for
            `<answer>46</answer>`; without that section, or with two, the reward is 0. With "/think", judge what follows
            `</think>`, which must be there once.
        place: where the answer stands, one of `PLACES`; None for a verifier that compares all of the text.
        owner: its name in messages; by default the name of the class in small letters.

    Raises:
        ValueError: if `inside` is not a valid tag, or for another place.
    """

    def __init__(self, inside: str | None = None, place: str | None = None, owner: str = "") -> None:
        owner = owner or type(self).__name__.lower()
        self.inside = None if inside is None else frame_name(owner, inside)
        self.place = "" if place is None else check_choice(f"place of {owner}", place, PLACES)
        self.request = REQUESTS.get(self.place, "")

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether a completion, or the section of it that is judged, gives the reference answer."""
        raise NotImplementedError

    def fault(self, problem: Problem) -> str:
        """Return why this reference cannot be used; empty if it can."""
        return "" if problem.answer else "the problem has no reference answer"

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        fault = self.fault(problem)
        if fault:
            return Verdict(0.0, status="error", reason=fault)
        text = self._judged(completion)
        return RIGHT if text is not None and self.matches(problem, text) else WRONG

    def answer_in(self, problem: Problem, text: str) -> str | None:
        """Return the answer that a completion, or the section of it that is judged, gives; see `extract`."""
        return text.strip()

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        text = self._judged(completion)
        return None if text is None else self.answer_in(problem, text)

    @override
    def demonstration(self, problem: Problem) -> str:
        return self._wrapped(placed(problem.answer, self.place)) if problem.answer else ""

    @override
    def probes(self, problem: Problem) -> Probes:
        places = PLACES[1:-1] if self.place == "any" and "\n" not in problem.answer else ()
        return Probes([self._wrapped(placed(problem.answer, place)) for place in places])

    def _judged(self, completion: str) -> str | None:
        return completion if self.inside is None else in_frame(completion, self.inside)

    def _wrapped(self, text: str) -> str:
        return text if self.inside is None else framed(text, self.inside)
