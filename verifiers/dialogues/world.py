"""Environments of other libraries as verifiers: problems are seeds, and global random states are kept apart."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from ..base import Dialogue, Poser, Problem, Verifier
from ..wrapping import WithPoser

SEEDS = 2**31  # what every library takes
SIMILAR = {
    "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "·": ".", "•": "*",
    "♠": "S", "♣": "C", "♥": "H", "♦": "D", "○": "o", "●": "*", "√": "v", "✓": "v", "■": "#", "□": ".", "█": "#",
}  # fmt: skip


class Playing(Dialogue):
    """An episode of an environment.

    Attributes:
        opening: the first observation.
    """

    opening: str


class WorldVerifier(Verifier):
    """An environment of another library, as a verifier.

    A problem is a seed: all episodes of a group, in every process, begin from `reset` with the same one. The prompt is
    the environment's first observation. A turn of the model is an action, and the reply is the next observation.
    """

    def playing(self, seed: int) -> Playing:
        """Return a new episode.

        Args:
            seed: 0 to 2³¹ - 1.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement playing")

    def opening(self, seed: int) -> str:
        """Return the environment's text after a reset with a seed; the same for the same seed."""
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


def opened(poser: Poser, problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return listed problems with the prompts that their episodes begin with: of most verifiers, the same ones."""
    if isinstance(poser, WithPoser):
        return opened(poser.poser, problems)
    if not hasattr(type(poser), "opened"):
        return problems
    return [poser.opened(problem) for problem in problems]  # type: ignore[attr-defined]


class Randomness:
    """Python's and NumPy's global random state as one game sees it.

    Games of other libraries draw from the global state or reseed it. Each has a state that is swapped in while the
    game runs, so that games that run in turns neither disturb each other nor us.

    Args:
        seed: of the state at the beginning, 0 to 2³¹ - 1.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: list[Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Swap the game's state in for a while."""
        modules = _modules()
        outside = [get() for get, _, _ in modules]
        for index, (_, put, seed) in enumerate(modules):
            if self._states is not None and index < len(self._states):
                put(self._states[index])
            else:
                seed(self._seed)
        try:
            yield
        finally:
            self._states = [get() for get, _, _ in modules]
            for (_, put, _), state in zip(modules, outside, strict=True):
                put(state)


def _modules() -> list[tuple[Any, Any, Any]]:
    """Return how to get, put and seed each state; NumPy's only if something has imported it."""
    modules = [(random.getstate, random.setstate, random.seed)]
    if arrays := sys.modules.get("numpy"):
        modules.append((arrays.random.get_state, arrays.random.set_state, arrays.random.seed))
    return modules


def spelled(text: str, alphabet: Collection[str]) -> str:
    """Return a text in the characters of an alphabet.

    Others become similar ones: letters lose their accents, suits of cards are S, C, H and D, and boxes are drawn with
    `-`, `|` and `+`. What has no similar character becomes `?`.
    """
    if set(text) <= set(alphabet):
        return text
    return "".join(character if character in alphabet else _similar(character, alphabet) for character in text)


def _similar(character: str, alphabet: Collection[str]) -> str:
    if character in SIMILAR:
        return SIMILAR[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "-" if name.endswith("HORIZONTAL") and "VERTICAL" not in name else "+" if "AND" in name else "|"
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if part in alphabet)
    return plain or ("" if unicodedata.combining(character) or character == "\ufe0f" else "?")
