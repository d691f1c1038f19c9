"""What an environment that answers does between the actions of a rollout: what it appends, and which steps it takes."""

from __future__ import annotations

import numpy as np


class Replies:
    """The replies of one rollout, and the steps in which slots waited for them, which are not actions.

    S steps so far, B slots. Cells are numbers in [S · B].

    Args:
        num_slots: B.

    Attributes:
        answered: whose episode the environment has appended something to, bool [B].
        waiting: whose coming step is not an action, bool [B]; None for nobody.
        idle: steps of each slot's episode that were not actions [B].
    """

    def __init__(self, num_slots: int) -> None:
        self.answered = np.zeros(num_slots, dtype=bool)
        self.waiting: np.ndarray | None = None
        self.idle = np.zeros(num_slots, dtype=np.int64)
        self._appended: dict[int, np.ndarray] = {}  # how many tokens, in which step [B]
        self._waited: dict[int, np.ndarray] = {}  # who did, in which step [B]

    def add(self, step: int) -> None:
        """Note who waits in a step."""
        if self.waiting is not None:
            self._waited[step] = self.waiting
            self.idle += self.waiting

    def append(self, step: int, appended: np.ndarray) -> None:
        """Note how many tokens the environment appended in a step [B]."""
        self._appended[step] = appended
        self.answered |= appended > 0

    def start(self, slots: np.ndarray) -> None:
        """Begin new episodes in these slots, given by index."""
        self.idle[slots], self.answered[slots] = 0, False

    def steps(self, began: np.ndarray, slots: np.ndarray, lengths: np.ndarray, count: int) -> np.ndarray:
        """Return the number of the step of each action [N, T]; anything after an episode's last one.

        Args:
            began: the number of the first step of each episode [N].
            slots: in which it is played [N].
            lengths: its actions [N].
            count: S.
        """
        steps = began[:, None] + np.arange(lengths.max())
        if self._waited:
            acts = ~self._who_waited(count)
            for row, (first, slot, length) in enumerate(zip(began, slots, lengths, strict=True)):
                steps[row, :length] = first + np.flatnonzero(acts[first:, slot])[:length]
        return steps

    def owed(self, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the cells that were not actions, and the last action before each, whose their rewards are."""
        if not self._waited:
            return None
        waited = self._who_waited(count)
        last = np.maximum.accumulate(np.where(waited, 0, np.arange(count)[:, None]), axis=0)
        steps, slots = waited.nonzero()
        return steps * waited.shape[1] + slots, last[steps, slots] * waited.shape[1] + slots

    def grown(self, count: int) -> np.ndarray:
        """Return how many tokens were appended after the action of each cell [(S + 1) · B], none in the last step."""
        grown = np.zeros((count + 1, len(self.idle)), dtype=np.int64)
        for step, counts in self._appended.items():
            grown[step] = counts
        flat = grown.reshape(-1)
        if (owed := self.owed(count)) is not None:
            np.add.at(flat, owed[1], flat[owed[0]])
        return flat

    def _who_waited(self, count: int) -> np.ndarray:
        waited = np.zeros((count, len(self.idle)), dtype=bool)
        for step, slots in self._waited.items():
            waited[step] = slots
        return waited
