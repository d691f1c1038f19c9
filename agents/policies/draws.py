"""The random numbers of a rollout, one for each episode and each of its steps, whichever slot plays it."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

STEPS = 64  # of an episode whose numbers are made at once


class EpisodeDraws:
    """Uniform numbers u(i, t) that depend on a key, the episode i and its step t, and on nothing else.

    So the same seed plays the same episodes with any number of slots, up to rounding: in what order slots finish,
    and which contexts share a row, changes no number. Episodes are numbered as they start, as a rollout does.

    The numbers are Philox's (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), which computes any of
    them from its place without those before.

    Args:
        generator: gives the key, the next number that it draws; of a GPU, its state after that number does.
        num_slots: B.
    """

    def __init__(self, generator: torch.Generator, num_slots: int) -> None:
        self.key = key_of(generator)
        self.started = 0
        self.episode = np.zeros(num_slots, dtype=np.int64)
        self.step = np.zeros(num_slots, dtype=np.int64)
        self._ahead = np.zeros((num_slots, STEPS))  # of the block of steps that each slot is in
        self._slots = np.arange(num_slots)

    def take(self, starts: np.ndarray, acting: np.ndarray) -> torch.Tensor:
        """Return the numbers for the coming step, in [0, 1), float64 [B] on the CPU.

        Args:
            starts: where the next episode begins, bool [B].
            acting: which slots take the step, bool [B]; the numbers of the others are taken again.
        """
        begun = np.flatnonzero(starts)
        if len(begun):
            self.episode[begun] = self.started + np.arange(len(begun))
            self.step[begun] = 0
            self.started += len(begun)
        place = self.step % STEPS
        if np.count_nonzero(empty := acting & (place == 0)):
            self._refill(np.flatnonzero(empty))
        numbers = self._ahead[self._slots, place]
        self.step += acting
        return torch.from_numpy(numbers)

    def _refill(self, slots: np.ndarray) -> None:
        """Make the numbers of a block of steps for these slots; neighbours in order of episodes are made at once."""
        order = np.lexsort((self.episode[slots], self.step[slots]))
        slots = slots[order]
        episodes, blocks = self.episode[slots], self.step[slots] // STEPS
        apart = (np.diff(episodes) != 1) | (np.diff(blocks) != 0)
        for part in np.split(np.arange(len(slots)), np.flatnonzero(apart) + 1):
            first, block = int(episodes[part[0]]), int(blocks[part[0]])
            self._ahead[slots[part]] = uniform(self.key, first, block, len(part))


def key_of(generator: torch.Generator) -> int:
    """Return the next number that a generator draws; of a GPU's, which the host would wait for, a hash of its state."""
    drawn = torch.randint(2**62, (), generator=generator, device=generator.device)
    return int(drawn) if drawn.device.type == "cpu" else hashed(generator.get_state().numpy().tobytes())


def hashed(data: bytes) -> int:
    """Return a number of 64 bits that depends on all of the data."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def uniform(key: int, first: int, block: int, count: int) -> np.ndarray:
    """Return u(i, t) for episodes i from `first` on and the steps t of a block, float64 [count, STEPS]."""
    at = first * (STEPS // 4)  # Philox makes four numbers of one count
    return np.random.Generator(np.random.Philox(key=key, counter=[at, block, 0, 0])).random((count, STEPS))
