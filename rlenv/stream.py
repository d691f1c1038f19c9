"""The seeded stream of problems: problem i depends on seed, split and i, and on the curriculum, if any."""

from __future__ import annotations

import random
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlenv.verifiers import Problem
from rlenv.verifiers.base import Poser, split_key_of
from rlenv.verifiers.text import hashed

from .problems import SPLITS, Problems, Prompt, is_level, side_of

if TYPE_CHECKING:
    from .curriculum import Curriculum, ThompsonChoice

FACTS = np.dtype(  # about a listed problem
    [
        ("key", "u8"),  # the hash of its split key
        ("test", "?"),  # whether it is in the test split
        ("level", "i8"),  # its difficulty; 0 if that is not a whole number from 1
    ]
)
_TRIES = 10_000
_KEPT = 16_384  # posed problems: more than a rollout has, which may be posed again; and making one may start a game


@dataclass(frozen=True)
class Chosen(Problem):
    """A listed problem that a choice of prompts posed; its metadata are its own, for verifiers read them.

    Args:
        arm: its number for the choice.
    """

    arm: int = 0


def without_tokens(problems: Sequence[Problem]) -> list[Prompt]:
    """Return problems without the tokens of their prompts."""
    return [Prompt(problem) for problem in problems]


class EmptySplitError(ValueError):
    """No listed problem is in the split that was asked for."""


def arm_of(problem: Problem) -> int | None:
    """Return the number of a problem that a choice of prompts posed; None for any other."""
    return problem.arm if isinstance(problem, Chosen) else None


class ProblemStream:
    """An endless sequence of the problems of one split, with random access.

    Listed problems come once per epoch, shuffled by seed and epoch; otherwise the verifier samples problems. If a
    listed problem's metadata names its "split" (train, test, or validation, which counts as test), it belongs to that
    split; the others are assigned by a hash.

    With a curriculum, the level of problem i is drawn when the problem is requested, so it depends on the curriculum's
    progress at that time; listed problems of that level are drawn with replacement. The same verdicts in between lead
    to the same problems, and problem i stays the same until the stream goes back, so that a group shares it. The test
    split never has a curriculum.

    A choice of prompts takes the place of a curriculum in the same way: listed problems with the same split key
    are one arm; else the levels of the verifier are the arms.

    Args:
        verifier: samples the problems unless they are listed; its `split_key` says which problems belong together.
        split: "train" or "test".
        test_fraction: expected share of the test split, 0 to 1; 0 uses everything for training.
        problems: the problems, or None to have the verifier sample them.
        encode: returns problems with their tokens, None for one that is too long; by default without tokens. Problems
            that the list has encoded are not encoded again.
        curriculum: the success rate at which the next level begins; None for all levels from the start.
        prompt_choice: "thompson" prefers problems that are solved half of the time (`curriculum.ThompsonChoice`);
            None for every problem in turn.

    Attributes:
        listed: the listed problems of this split; empty if the verifier samples them.
        curriculum: what chooses, of either kind; None if nothing does.
        sizes: how many listed problems each split has; empty if the verifier samples them.

    Raises:
        ValueError: for a malformed problem or one with an unknown split, or no listed problem in this split; for a
            curriculum together with a prompt choice, an invalid level, or fewer than two levels or arms.
    """

    def __init__(
        self,
        verifier: Poser,
        split: str = "train",
        test_fraction: float = 0.2,
        problems: Sequence[Problem | Mapping[str, Any] | str] | None = None,
        encode: Callable[[Sequence[Problem]], Sequence[Prompt | None]] = without_tokens,
        curriculum: float | None = None,
        prompt_choice: str | None = None,
    ) -> None:
        self.verifier, self.split, self.test_fraction = verifier, split, test_fraction
        self.seed = 0
        self._encode = encode
        self._shuffled: tuple[str, Sequence[int]] | None = None
        self.sizes: dict[str, int] = {}
        self._posed: dict[tuple[int, int], Prompt] = {}  # by seed and index
        self._groups: dict[int, list[int]] | None = None  # the problems of each level, or of each arm
        self.listed = Problems([])
        if problems is not None:
            self.listed = self._of_this_split(problems if isinstance(problems, Problems) else Problems.of(problems))
        self.curriculum: Curriculum | ThompsonChoice | None = None
        if prompt_choice is not None and curriculum is not None:
            raise ValueError(f"prompt_choice={prompt_choice!r} and {curriculum=} exclude each other: give one of them")
        if split == "train" and (curriculum, prompt_choice) != (None, None):
            if self.listed:
                self._groups = _grouped(self._keys if curriculum is None else self._checked_levels())
                if curriculum is None:  # arms have numbers, in the order in which they come first
                    self._groups = dict(enumerate(self._groups.values()))
            from .curriculum import Curriculum, ThompsonChoice  # for who chooses

            numbers = range(1, verifier.levels + 1) if self._groups is None else list(self._groups)
            self.curriculum = ThompsonChoice(numbers) if curriculum is None else Curriculum(numbers, curriculum)

    @property
    def digest(self) -> str:
        """A hash of the listed problems of this split; empty if the verifier samples them."""
        return self.listed.digest if self.listed else ""

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, a hash of the listed problems and the curriculum's progress, in plain values."""
        progress = None if self.curriculum is None else self.curriculum.state_dict()
        return {"seed": self.seed, "digest": self.digest, "curriculum": progress}

    def begin(self, seed: int, first: int = 0) -> None:
        """Go to problem number `first` of a seed; a curriculum draws the problems from there on anew."""
        self.seed = seed
        if self.curriculum is not None:
            self._posed = {place: each for place, each in self._posed.items() if (seed, 0) <= place < (seed, first)}

    def load_state_dict(self, state: dict[str, Any], first: int = 0) -> None:
        """Restore the state from `state_dict`; `first` is the number of the next problem.

        Raises:
            ValueError: if these are other problems.
        """
        if state["digest"] != self.digest:
            made = "use the file it was made with" if state["digest"] else "its verifier made them: pass no problems"
            raise ValueError(f"the problems have changed since the checkpoint was written: {made}")
        ours = {} if self.curriculum is None else self.curriculum.state_dict()
        if (state["curriculum"] or {}).keys() != ours.keys():
            raise ValueError("the checkpoint was written with another curriculum or prompt_choice")
        self.begin(state["seed"], first)
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state["curriculum"])

    def __getitem__(self, index: int) -> Problem:
        """Return problem number `index` of this seed and split."""
        return self.prompt(index).problem

    def prompt(self, index: int) -> Prompt:
        """Return problem number `index` of this seed and split, as the model reads it; see `prompts`."""
        return self.prompts([index])[0]

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Return the problems with these numbers of this seed and split, as the model reads them.

        Those that were not posed before are encoded together. A listed problem that is too long gives its place to
        another one, drawn at random.

        Raises:
            ValueError: if all of many problems are too long, and any error of `encode` and of the verifier.
        """
        places = [(self.seed, index) for index in indices]
        new = [index for seed, index in dict.fromkeys(places) if (seed, index) not in self._posed]
        if self.curriculum is None:
            made = self._fitting([self._candidates(index) for index in new])
        else:
            made = [self._graded(index, self.curriculum) for index in new]
        self._posed |= {(self.seed, index): prompt for index, prompt in zip(new, made, strict=True)}
        posed = [self._posed[place] for place in places]
        while len(self._posed) > _KEPT:
            del self._posed[next(iter(self._posed))]  # the oldest
        return posed

    def remembers(self, index: int) -> bool:
        """Tell whether a problem that was posed can be posed again; a curriculum would draw another one."""
        return self.curriculum is None or (self.seed, index) in self._posed

    def _candidates(self, index: int) -> Iterator[Problem | Prompt]:
        """Return the problems of which the first that is short enough is number `index`."""
        rng = random.Random(f"{self.seed}/{self.split}/{index}")
        if not self.listed:
            return self._sampled(rng, self.verifier.sample)
        epoch, position = divmod(index, len(self.listed))
        return self._of_list(self._order(epoch)[position], range(len(self.listed)), rng)

    def first_equals(self, count: int) -> list[int]:
        """Return for each of the first `count` problems the number of the first one that equals it.

        Prompts, reference answers and split keys of equal problems are equal. A list that is shorter comes once.
        """
        problems = (each.problem for each in self.prompts(range(min(count, len(self.listed) or count))))
        keys = ((each.text, each.answer, self.verifier.split_key(each)) for each in problems)
        seen: dict[Any, int] = {}
        return [seen.setdefault(key, number) for number, key in enumerate(keys)]

    def record(self, problem: Problem, success: bool) -> None:
        """Tell the curriculum or the choice of prompts, if any, how an episode with this problem ended."""
        if self.curriculum is not None:
            arm = arm_of(problem)
            self.curriculum.record(problem.metadata.get("level", 1) if arm is None else arm, success)

    def update(self) -> None:
        """Let the curriculum or the choice of prompts, if any, count the verdicts since the last rollout."""
        if self.curriculum is not None:
            self.curriculum.update()

    def _graded(self, index: int, curriculum: Curriculum | ThompsonChoice) -> Prompt:
        """Return a problem of a level, or an arm, that the curriculum draws."""
        rng = random.Random(f"{self.seed}/{self.split}/{index}")
        level = curriculum.draw(rng)
        if self._groups is not None:
            group = self._groups[level]
            (prompt,) = self._fitting([self._of_list(rng.choice(group), group, rng)])
            if curriculum.level is not None:  # which the problem names itself
                return prompt
            problem = prompt.problem
            return replace(prompt, problem=Chosen(problem.prompt, problem.answer, problem.metadata, level))
        (prompt,) = self._fitting([self._sampled(rng, lambda rng: self.verifier.sample_at(rng, level))])
        metadata = {**prompt.problem.metadata, "level": level}
        return replace(prompt, problem=replace(prompt.problem, metadata=metadata))

    def _fitting(self, candidates: Sequence[Iterator[Problem | Prompt]]) -> list[Prompt]:
        """Return the first candidate of each sequence that is short enough; they are encoded together."""
        found: list[Any] = [next(each) for each in candidates]
        while plain := [row for row, each in enumerate(found) if isinstance(each, Problem)]:
            for row, prompt in zip(plain, self._encode([found[row] for row in plain]), strict=True):
                found[row] = next(candidates[row]) if prompt is None else prompt
        return found

    def _sampled(self, rng: random.Random, sample: Callable[[random.Random], Problem]) -> Iterator[Problem]:
        """Yield problems of this split that the verifier samples."""
        for _ in range(_TRIES):
            if self.has(problem := sample(rng)):
                yield problem
        wanted = f"in the {self.split} split (test_fraction={self.test_fraction}) and short enough (max_prompt_tokens)"
        remedy = "if all prompts are alike, override split_key"
        if self.test_fraction in (0, 1):
            remedy = "0 and 1 leave one split empty; for a run without an evaluation, pass --eval-episodes 0"
        raise ValueError(f"the verifier sampled {_TRIES} problems, but none was {wanted}; {remedy}")

    def _of_list(self, row: int, others: Sequence[int], rng: random.Random) -> Iterator[Problem | Prompt]:
        """Yield a listed problem, then others, drawn at random."""
        for _ in range(_TRIES):
            yield self.listed.posed(row)
            row = rng.choice(others)
        raise ValueError(f"of {_TRIES} listed problems none was short enough; pass a larger --max-prompt-tokens")

    def _order(self, epoch: int) -> Sequence[int]:
        """Return the shuffled order of one epoch; the last result is cached."""
        name = f"{self.seed}/{self.split}/{epoch}"
        if self._shuffled is None or self._shuffled[0] != name:
            order = array("Q", range(len(self.listed)))
            random.Random(name).shuffle(order)
            self._shuffled = (name, order)
        return self._shuffled[1]

    def has(self, problem: Problem) -> bool:
        """Tell whether a problem belongs to this split."""
        return SPLITS[self._fact(problem)[1]] == self.split

    def _fact(self, problem: Problem) -> tuple[int, bool, int]:
        key, level = hashed(split_key_of(self.verifier, problem), 8), problem.metadata.get("level", 1)
        is_test = side_of(problem.metadata.get("split"), key, self.test_fraction) == "test"
        return key, is_test, level if is_level(level) else 0

    def _of_this_split(self, problems: Problems) -> Problems:
        """Return the listed problems of this split."""
        facts = np.fromiter(map(self._fact, problems), FACTS, len(problems))
        keys, tests = facts["key"], facts["test"]
        self.sizes = {"train": int((~tests).sum()), "test": int(tests.sum())}
        if shared := len(np.intersect1d(keys[~tests], keys[tests])):
            warnings.warn(f"problems that are in both splits: {shared}", stacklevel=2)
        here = tests if self.split == "test" else ~tests
        self._keys, self._levels, listed = keys[here], facts["level"][here], problems.only(here)
        if not len(listed):
            test_fraction, other = self.test_fraction, "train" if self.split == "test" else "test"
            raise EmptySplitError(
                f"none of the {len(problems)} problems is in the {self.split} split ({test_fraction=}), all are in "
                f"{other}; take the split {other!r}, a test_fraction of 1 (all into test) or 0, or a column `split`"
            )
        return listed

    def _checked_levels(self) -> np.ndarray:
        """Return the level of each listed problem."""
        if len(wrong := np.flatnonzero(self._levels == 0)):
            level = self.listed[wrong[0]].metadata["level"]
            raise ValueError(f"with a curriculum, a problem's level must be a whole number from 1, got {level!r}")
        return self._levels


def _grouped(numbers: np.ndarray) -> dict[int, list[int]]:
    """Return the problems with each number, in their order."""
    groups: dict[int, list[int]] = {}
    for row, number in enumerate(numbers.tolist()):
        groups.setdefault(number, []).append(row)
    return groups
