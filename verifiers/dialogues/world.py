"""What the environments of other libraries share: a problem is a seed, and its prompt is what `reset` returns."""

from __future__ import annotations

import random

from typing_extensions import override

from ..base import Dialogue, Problem, Verifier

SEEDS = 2**31  # what every library takes


class Playing(Dialogue):
    """An episode of an environment.

    Attributes:
        opening: what the environment says first.
    """

    opening: str


class World(Verifier):
    """An environment of another library, as a verifier.

    A problem is a seed: all episodes of a group, in every process, begin from `reset` with the same one. The prompt is
    what the environment says first. A turn of the model is an action, and the reply is the next observation.
    """

    def playing(self, seed: int) -> Playing:
        """Return a new episode.

        Args:
            seed: 0 to 2³¹ - 1.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement playing")

    def opening(self, seed: int) -> str:
        """Return what the environment says after a reset with a seed; the same text for the same seed."""
        playing = self.playing(seed)
        playing.close()
        return playing.opening

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return self.playing(problem.metadata["seed"])

    @override
    def sample(self, rng: random.Random) -> Problem:
        seed = rng.randrange(SEEDS)
        return Problem(self.opening(seed), metadata={"seed": seed})

    @override
    def split_key(self, problem: Problem) -> str:
        return str(problem.metadata["seed"])
