"""guess: a whole number between 1 and N; each guess is answered with higher or lower."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from typing_extensions import override

from rlenv._checks import check_count

from ..base import RIGHT, Dialogue, Problem, Reply, Turns, Verifier
from ..plugins.registry import register_verifier

HIGHER, LOWER, UNREADABLE = ">", "<", "?"


@register_verifier("guess")
class Guess(Verifier):
    """Find a whole number in a few guesses; reward 1.0 for the number, else 0.0.

    Prompt: `1-64:`. A turn is one guess, such as `32`; the replies are `>` (the number is higher), `<` (it is lower)
    and `?` for anything but a whole number, with or without spaces around it. An episode is over with the right guess,
    or when the turns have run out. Bisection finds every number in the turns that are given by default, and one of
    1 to 64 in 5.1 turns on average. Both splits have every number, since one that is never
    right in training would never be guessed: the split is by `metadata["game"]`, a random number.

    Demonstrations teach to use the replies, not which guess is good: a guess is any number that the replies so far
    allow, all with equal chances, and the last turn is the number.

    Alphabet: the digits, `-`, `:` and the replies. No known holes.

    Args:
        largest: the largest number, 2 to 1,000,000; with several levels, of the highest.
        turns: guesses per episode, 1 to 100; None for as many as bisection needs.
        levels: number of difficulty levels, drawn uniformly: each has half the numbers of the next, and at least 2.
    """

    alphabet = "0123456789-:" + HIGHER + LOWER + UNREADABLE

    def __init__(self, largest: int = 64, turns: int | None = None, levels: int = 1) -> None:
        self.largest = check_count("guess: largest", largest, 2, 1_000_000)
        self.levels = check_count("guess: levels", levels, 1, self.largest.bit_length() - 1)
        needed = self.largest.bit_length()
        turns = needed if turns is None else check_count("guess: turns", turns, 1, 100)
        self.turns = Turns(turns, reply_length=1)
        self.answer_length = len(str(self.largest))
        self.prompt_length = self.answer_length + 3

    @override
    def sample_at(self, rng: random.Random, level: int) -> Problem:
        most = self.largest >> (self.levels - level)
        number, game = rng.randint(1, most), rng.randrange(10**9)
        return Problem(f"1-{most}:", str(number), {"game": game} | ({} if self.levels == 1 else {"level": level}))

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Guessing(int(problem.answer))

    @override
    def demonstration_turns(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        number, asked = int(problem.answer), re.fullmatch("1-([0-9]+):", problem.text)
        low, high = 1, max(number, int(asked[1]) if asked else self.largest)
        turns: list[str] = []
        while len(turns) < self.turns.max_turns - 1:
            guess = rng.randint(low, high)
            turns.append(str(guess))
            if guess == number:
                return turns
            low, high = (guess + 1, high) if guess < number else (low, guess - 1)
        return [*turns, problem.answer]

    @override
    def split_key(self, problem: Problem) -> str:
        return f"{problem.answer}/{problem.metadata.get('game', '')}"

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        number = read_guess(completion)
        return None if number is None else str(number)


class Guessing(Dialogue):
    """The other side, which has a number in mind."""

    def __init__(self, number: int) -> None:
        self.number = number

    @override
    def reply(self, turn: str) -> Reply:
        guess = read_guess(turn)
        if guess == self.number:
            return Reply(verdict=RIGHT)
        return Reply(UNREADABLE if guess is None else HIGHER if guess < self.number else LOWER)


def read_guess(turn: str) -> int | None:
    """Return the whole number that a turn consists of; None for anything else."""
    text = turn.strip()
    return int(text) if re.fullmatch("[1-9][0-9]{0,6}", text) else None
