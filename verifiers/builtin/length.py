"""length: completions that are neither too short nor too long."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from rlenv._checks import check_choice, check_count

from ..base import Problem, Verdict, Verifier
from ..plugins.registry import register_verifier

_MOST = 1_000_000
_UNITS = ("characters", "words")
_FILLER = "one short line follows another and each of them says a little more than the last "
_SUBJECTS = "rain", "a bridge", "the sea", "bread", "an old map", "snow", "a long walk", "the moon"


@register_verifier("length")
class Length(Verifier):
    """Reward 1.0 for `minimum` to `maximum` characters or words; outside, it falls linearly to 0.0 over `margin`.

    Whitespace at both ends does not count, and words are what whitespace separates. With a margin of 10, a completion
    that is 5 too long gets 0.5. An empty completion scores 0 unless the minimum is 0.

    Prompts and alphabet: from the listed problems. Not caught: only
    the length is checked, so junk of the right length scores; combine it with a verifier of the answer.

    Args:
        maximum: the largest length with full reward.
        minimum: the smallest length with full reward.
        margin: how far outside the reward reaches 0; 0 for a sharp limit.
        unit: characters or words.
    """

    does_not_catch = dict.fromkeys(("echo", "all-listed", "junk"), "only the length is checked")

    def __init__(self, maximum: int | str = 200, minimum: int = 1, margin: int = 0, unit: str = "characters") -> None:
        self.maximum = check_count("length: maximum", _number(maximum), 1, _MOST)
        self.minimum = check_count("length: minimum", minimum, 0, self.maximum)
        self.margin = check_count("length: margin", margin, 0, _MOST)
        self.unit = check_choice("unit of length", unit, _UNITS)

    def examples(self) -> list[Problem]:
        """Return subjects to write about."""
        return [Problem(f"Write about {subject}.\n") for subject in _SUBJECTS]

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        length = self._measure(completion)
        outside = max(self.minimum - length, length - self.maximum, 0)
        if outside == 0:
            reward = 1.0
        elif length == 0 or outside >= self.margin:
            reward = 0.0
        else:
            reward = 1.0 - outside / self.margin
        return Verdict(reward, {"length": float(length)})

    def demonstration(self, problem: Problem) -> str:
        """Return the problem's answer if its length is right, else filler of the minimal length."""
        if problem.answer and self.minimum <= self._measure(problem.answer) <= self.maximum:
            return problem.answer
        return self._filler(max(self.minimum, 1))

    def _measure(self, text: str) -> int:
        return len(text.split()) if self.unit == "words" else len(text.strip())

    def _filler(self, length: int) -> str:
        """Return a text of this length."""
        if self.unit == "words":
            words = _FILLER.split()
            return " ".join(words[index % len(words)] for index in range(length))
        text = (_FILLER * (length // len(_FILLER) + 1))[:length]
        return f"{text[:-1]}." if text[-1].isspace() else text


def _number(value: Any) -> Any:
    """Convert a number that was passed as text, as in "length:80"."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value
