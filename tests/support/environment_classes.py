"""An environment class as TRL's `environment_factory` takes it, and a reward function beside it."""

from __future__ import annotations

import random
from typing import Any


class Numbers:
    """Guess a number between 1 and 9; each guess too many costs 0.1."""

    def __init__(self) -> None:
        self.resets: list[dict[str, Any]] = []

    def reset(self, target: int | None = None, **columns: Any) -> str:
        self.resets.append(columns)
        self.number = random.randint(1, 9) if target is None else target
        self.guesses, self.reward = 0, 0.0
        return f"1 to 9, {'odd' if self.number % 2 else 'even'}? "

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Between 1 and 9.
        """
        if not 1 <= number <= 9:
            raise ValueError("between 1 and 9")
        self.guesses += 1
        if number == self.number:
            self.reward = 1.1 - 0.1 * self.guesses
            return "right"
        return "higher" if number < self.number else "lower"

    def get_reward(self) -> float:
        return self.reward

    @property
    def broken(self) -> Any:
        raise RuntimeError("properties must not be read")

    def _hidden(self) -> None: ...


def by_guesses(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
    """Pay for each guess, and say what was seen."""
    assert all(message["role"] in ("assistant", "tool") for each in completions for message in each)
    return [float(env.guesses) for env in environments]
