"""The seeded stream of problems: problem i depends on seed, split and i, and on the curriculum, if any."""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from verifiers import Problem, Verifier

from ..text.texts import shown
from .curriculum import Curriculum
from .prompt_choice import CHOICES, ThompsonChoice

SPLITS = ("train", "test")
NAMED_SPLITS = {"train": "train", "test": "test", "validation": "test"}  # of listed problems
MESSAGES = "messages"  # a usual name of the column with conversations
_TRIES = 10_000


@dataclass(frozen=True)
class Chosen(Problem):
    """A listed problem that a choice of prompts posed; its metadata are its own, for verifiers read them.

    Args:
        arm: its number for the choice.
    """

    arm: int = 0


class EmptySplitError(ValueError):
    """No listed problem is in the split that was asked for."""


def in_test_split(key: str, test_fraction: float) -> bool:
    """Tell whether a problem with this split key belongs to the test split.

    This depends on a hash of the key only, so the two splits are always disjoint.

    Args:
        key: `verifier.split_key(problem)`.
        test_fraction: expected share of the test split, 0 to 1.
    """
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < test_fraction * 2**64


def as_problem(item: Problem | Mapping[str, Any] | Sequence[Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a mapping with a `prompt` and optionally an `answer`.

    Without a `prompt`, the `messages` of a mapping are it, as in a file.

    Raises:
        ValueError: if a mapping has no prompt, or a conversation is malformed.
    """
    if isinstance(item, Problem):
        return item
    if isinstance(item, (str, list, tuple)):
        return Problem(item)  # type: ignore[arg-type]  # a list is checked there
    column = MESSAGES if isinstance(item, Mapping) and "prompt" not in item and MESSAGES in item else "prompt"
    if not isinstance(item, Mapping) or not isinstance(item.get(column), (str, list, tuple)):
        raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {item!r}")
    metadata = {key: value for key, value in item.items() if key not in (column, "answer")}
    return Problem(item[column], str(item.get("answer", "")), metadata)


def arm_of(problem: Problem) -> int | None:
    """Return the number of a problem that a choice of prompts posed; None for any other."""
    return problem.arm if isinstance(problem, Chosen) else None


def level_of(problem: Problem) -> int:
    """Return a problem's level of difficulty, from 1; without a valid level in its metadata, 1."""
    level = problem.metadata.get("level", 1)
    return level if is_level(level) else 1


class ProblemStream:
    """An endless sequence of the problems of one split, with random access.

    Listed problems come once per epoch, shuffled by seed and epoch; otherwise the verifier samples problems. If a
    listed problem's metadata names its "split" (train, test, or validation, which counts as test), it belongs to that
    split; the others are assigned by a hash.

    With a curriculum, the level of problem i is drawn when the problem is requested, so it depends on the curriculum's
    progress at that time; listed problems of that level are drawn with replacement. The same verdicts in between lead
    to the same problems, and requesting problem i twice in a row returns the same problem, so that a group shares it.
    The test split never has a curriculum.

    A choice of prompts takes the place of a curriculum in the same way: of listed problems, those with one split key
    are one arm; else the levels of the verifier are the arms.

    Args:
        verifier: samples the problems unless they are listed; its `split_key` says which problems belong together.
        split: "train" or "test".
        test_fraction: expected share of the test split, 0 to 1; 0 uses everything for training.
        problems: the problems, or None to have the verifier sample them.
        fits: tells whether a sampled problem is short enough; None accepts all.
        curriculum: the success rate at which the next level begins; None for all levels from the start.
        prompt_choice: "thompson" prefers problems that are solved half of the time (`prompt_choice.ThompsonChoice`);
            None for every problem in turn.

    Attributes:
        curriculum: what chooses, of either kind; None if nothing does.
        sizes: how many listed problems each split has; empty if the verifier samples them.

    Raises:
        ValueError: for an unknown split or prompt choice, a fraction outside 0..1, a malformed problem or one with an
            unknown split, or no listed problem in this split; for a curriculum together with a prompt choice, a success
            rate that is not one, an invalid level, or fewer than two levels or arms.
    """

    def __init__(
        self,
        verifier: Verifier,
        split: str = "train",
        test_fraction: float = 0.2,
        problems: Sequence[Problem | Mapping[str, Any] | str] | None = None,
        fits: Callable[[Problem], bool] | None = None,
        curriculum: float | None = None,
        prompt_choice: str | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; allowed: {', '.join(SPLITS)}")
        if not 0.0 <= test_fraction <= 1.0:
            raise ValueError(f"test_fraction must be from 0 to 1, got {test_fraction!r}")
        self.verifier, self.split, self.test_fraction = verifier, split, test_fraction
        self.seed = 0
        self._fits = fits
        self._shuffled: tuple[int, int, list[int]] | None = None
        self._latest: tuple[int, int, Problem] | None = None
        self.sizes: dict[str, int] = {}
        self._listed = None if problems is None else self._of_this_split([as_problem(item) for item in problems])
        self.curriculum: Curriculum | ThompsonChoice | None = None
        if prompt_choice not in (None, *CHOICES):
            raise ValueError(f"unknown prompt_choice {prompt_choice!r}; allowed: {', '.join(CHOICES)}")
        if prompt_choice is not None and curriculum is not None:
            raise ValueError(f"prompt_choice={prompt_choice!r} and {curriculum=} exclude each other: give one of them")
        if curriculum is not None and split == "train":
            self._by_level = _by_level(self.listed)
            self.curriculum = Curriculum(list(self._by_level) or range(1, verifier.levels + 1), curriculum)
        elif prompt_choice is not None and split == "train":
            self._by_level = self._by_arm()
            self.curriculum = ThompsonChoice(list(self._by_level) or range(1, verifier.levels + 1))

    @property
    def listed(self) -> list[Problem]:
        """The listed problems of this split; empty if the verifier samples them."""
        return list(self._listed or ())

    @cached_property
    def digest(self) -> str:
        """A hash of the listed problems of this split; empty if the verifier samples them."""
        if self._listed is None:
            return ""
        rows = [[problem.prompt, problem.answer, dict(problem.metadata)] for problem in self._listed]
        return hashlib.blake2b(json.dumps(rows, default=repr).encode(), digest_size=16).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, a hash of the listed problems and the curriculum's progress, in plain values."""
        progress = None if self.curriculum is None else self.curriculum.state_dict()
        return {"seed": self.seed, "digest": self.digest, "curriculum": progress}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: if these are other problems.
        """
        if state["digest"] != self.digest:
            raise ValueError(
                "the problems have changed since the checkpoint was written: use the file it was made with"
            )
        if (state["curriculum"] is None) != (self.curriculum is None):
            raise ValueError("the checkpoint was written with another curriculum setting")
        if self.curriculum is not None and state["curriculum"].keys() != self.curriculum.state_dict().keys():
            raise ValueError(
                "the checkpoint was written with a curriculum, and not with a prompt_choice, or the reverse"
            )
        self.seed, self._latest = state["seed"], None
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state["curriculum"])

    def __getitem__(self, index: int) -> Problem:
        """Return problem number `index` of this seed and split."""
        if self.curriculum is not None:
            if self._latest is None or self._latest[:2] != (self.seed, index):
                self._latest = (self.seed, index, self._graded(index, self.curriculum))
            return self._latest[2]
        if self._listed is not None:
            epoch, position = divmod(index, len(self._listed))
            return self._listed[self._order(self.seed, epoch)[position]]
        return self._sampled(random.Random(f"{self.seed}/{self.split}/{index}"), self.verifier.sample)

    def record(self, problem: Problem, success: bool) -> None:
        """Tell the curriculum or the choice of prompts, if any, how an episode with this problem ended."""
        if self.curriculum is not None:
            arm = arm_of(problem)
            self.curriculum.record(level_of(problem) if arm is None else arm, success)

    def settle(self) -> None:
        """Let a choice of prompts count what it has heard: between two rollouts."""
        if isinstance(self.curriculum, ThompsonChoice):
            self.curriculum.settle()

    def _by_arm(self) -> dict[int, list[Problem]]:
        """Return the listed problems by the number of their split key."""
        numbers: dict[str, int] = {}
        arms: dict[int, list[Problem]] = {}
        for problem in self.listed:
            arm = numbers.setdefault(self.verifier.split_key(problem), len(numbers))
            chosen = Chosen(problem.prompt, problem.answer, problem.metadata, arm)
            arms.setdefault(arm, []).append(chosen)
        return arms

    def _graded(self, index: int, curriculum: Curriculum | ThompsonChoice) -> Problem:
        """Return a problem of a level, or an arm, that the curriculum draws."""
        rng = random.Random(f"{self.seed}/{self.split}/{index}")
        level = curriculum.draw(rng)
        if self._listed is not None:
            return rng.choice(self._by_level[level])
        problem = self._sampled(rng, lambda rng: self.verifier.sample_at(rng, level))
        return replace(problem, metadata={**problem.metadata, "level": level})

    def _sampled(self, rng: random.Random, sample: Callable[[random.Random], Problem]) -> Problem:
        for _ in range(_TRIES):
            problem = sample(rng)
            side = hashed_side(problem, self.verifier, self.test_fraction)
            if side == self.split and (self._fits is None or self._fits(problem)):
                return problem
        wanted = f"in the {self.split} split ({self.test_fraction=}) and short enough"
        raise ValueError(f"the verifier sampled {_TRIES} problems, but none was {wanted}")

    def _order(self, seed: int, epoch: int) -> list[int]:
        """Return the shuffled order of one epoch; the last result is cached."""
        if self._shuffled is None or self._shuffled[:2] != (seed, epoch):
            order = list(range(len(self._listed or ())))
            random.Random(f"{seed}/{self.split}/{epoch}").shuffle(order)
            self._shuffled = (seed, epoch, order)
        return self._shuffled[2]

    def _of_this_split(self, problems: list[Problem]) -> list[Problem]:
        """Return the listed problems of this split."""
        sides: dict[str, list[Problem]] = {split: [] for split in SPLITS}
        for problem in problems:
            sides[side_of(problem, self.verifier, self.test_fraction)].append(problem)
        self.sizes = {split: len(side) for split, side in sides.items()}
        keys = {split: {self.verifier.split_key(problem) for problem in side} for split, side in sides.items()}
        if shared := keys["train"] & keys["test"]:
            warnings.warn(f"problems that are in both splits: {len(shared)}", stacklevel=2)
        if differing := _answered_twice(sides[self.split]):
            first, both = next(iter(differing.items()))
            warnings.warn(
                f"prompts with several answers that differ: {len(differing)}, such as {shown(first)} with "
                f"{shown(both[0])} and {shown(both[1])}; keep one row of each",
                stacklevel=2,
            )
        if not sides[self.split]:
            test_fraction = self.test_fraction
            raise EmptySplitError(
                f"none of the {len(problems)} problems is in the {self.split} split ({test_fraction=}); "
                "1 puts all of them into test, 0 into train, and a column `split` says it for each"
            )
        return sides[self.split]


def _answered_twice(problems: Sequence[Problem]) -> dict[str, list[str]]:
    """Return the prompts that come with different answers, and these."""
    answers: dict[str, dict[str, None]] = {}
    for problem in problems:
        if problem.answer:
            answers.setdefault(problem.text, {})[problem.answer] = None
    return {prompt: list(each) for prompt, each in answers.items() if len(each) > 1}


def hashed_side(problem: Problem, verifier: Verifier, test_fraction: float) -> str:
    """Return the split that the hash of a problem's split key assigns it to."""
    return "test" if in_test_split(verifier.split_key(problem), test_fraction) else "train"


def side_of(problem: Problem, verifier: Verifier, test_fraction: float) -> str:
    """Return the split of a listed problem: the one it names, else the one of its hash.

    Raises:
        ValueError: if it names an unknown split.
    """
    return _named_side(problem) or hashed_side(problem, verifier, test_fraction)


def is_level(level: Any) -> bool:
    """Tell whether a value is a valid level of difficulty: a whole number from 1."""
    return isinstance(level, int) and not isinstance(level, bool) and level >= 1


def _by_level(problems: Sequence[Problem]) -> dict[int, list[Problem]]:
    levels: dict[int, list[Problem]] = {}
    for problem in problems:
        level = problem.metadata.get("level", 1)
        if not is_level(level):
            raise ValueError(f"with a curriculum, a problem's level must be a whole number from 1, got {level!r}")
        levels.setdefault(level, []).append(problem)
    return levels


def _named_side(problem: Problem) -> str | None:
    """Return the split that a listed problem names; None if it names none."""
    split = problem.metadata.get("split")
    if split is None:
        return None
    if not isinstance(split, str) or split not in NAMED_SPLITS:
        raise ValueError(f"a problem's split must be one of {', '.join(NAMED_SPLITS)}, got {split!r}")
    return NAMED_SPLITS[split]
