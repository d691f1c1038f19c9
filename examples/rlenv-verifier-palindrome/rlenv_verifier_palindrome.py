"""A verifier in its own package: complete some letters to a palindrome."""

from __future__ import annotations

import random
import string
from typing import Any

from rlenv.verifiers import Probes, Problem, Verdict, Verifier


class Palindrome(Verifier):
    """A palindrome of a given length that begins with given letters; reward 1.0 for any such, else 0.0.

    Prompt: `ab, 7 letters: `; a right answer: `abxyxba`. The answer is nothing but small letters a to z. There are many
    right answers, so problems have no reference answer; what is asked stands in their metadata, as "start" and
    "letters".

    Alphabet: small letters, digits, comma, colon and space. Nothing wrong is known to be paid for: a word need not mean
    anything.

    Args:
        longest: the longest palindrome asked for, 3 to 99 letters.

    Raises:
        ValueError: for a length out of range.
    """

    alphabet = string.ascii_lowercase + string.digits + ",: "

    def __init__(self, longest: int = 9) -> None:
        if isinstance(longest, bool) or not isinstance(longest, int) or not 3 <= longest <= 99:
            raise ValueError(f"palindrome: longest must be a whole number from 3 to 99, got {longest!r}")
        self.longest = longest
        self.answer_length = longest
        self.prompt_length = (longest + 1) // 2 + len(", 99 letters: ")

    def sample(self, rng: random.Random) -> Problem:
        """Return a problem of uniform length; the letters given are at most half of it."""
        letters = rng.randint(3, self.longest)
        start = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, (letters + 1) // 2)))
        return Problem(f"{start}, {letters} letters: ", metadata={"start": start, "letters": letters})

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Look at length, letters and both directions, in this order: whatever is long is dismissed at once."""
        start, letters = problem.metadata.get("start"), problem.metadata.get("letters")
        if not isinstance(start, str) or not isinstance(letters, int):
            return Verdict(0.0, status="error", reason="the problem's metadata lacks 'start' or 'letters'")
        right = (
            len(completion) == letters
            and set(completion) <= set(string.ascii_lowercase)
            and completion.startswith(start)
            and completion == completion[::-1]
        )
        return Verdict(1.0 if right else 0.0)

    def demonstration(self, problem: Problem) -> str:
        """Return the palindrome whose middle repeats the last letter given."""
        return _mirrored(problem, problem.metadata["start"][-1])

    def probes(self, problem: Problem) -> Probes:
        """Return right answers with another middle, and palindromes of another length, of other signs, or hardly."""
        right = self.demonstration(problem)
        longer = right[0] + right + right[0]
        others = {_mirrored(problem, letter) for letter in string.ascii_lowercase} - {right}
        wrong = {
            "another length": [right[:-1], right + right[-1], longer] if len(set(right)) > 1 else [longer],
            "other signs": [right.upper(), f"{right}\n", "\u00e4" * len(right), "1" * len(right)],
            "no palindrome": [right[:-1] + chr(ord("a") + (right[0] == "a"))],
        }
        return Probes(sorted(others), wrong)


def _mirrored(problem: Problem, filling: str) -> str:
    metadata: Any = problem.metadata
    half = (metadata["start"] + filling * metadata["letters"])[: (metadata["letters"] + 1) // 2]
    return half + half[: metadata["letters"] // 2][::-1]
