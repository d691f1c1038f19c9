"""What a verifier is: it poses problems and judges completions."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Problem:
    """A prompt, the reference answer where there is one, and whatever else a verifier needs to judge.

    Args:
        prompt: what the model reads.
        answer: the reference answer; empty where the verifier needs none.
        metadata: further columns, passed on to reward functions by name.
    """

    prompt: str
    answer: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one completion.

    Args:
        reward: a finite number.
        parts: named components of the reward, for logging.
        status: "ok", or why no verdict was reached ("timeout", "error"). A verdict that was not reached is no
            reward of 0: such an episode is left out of baselines, loss and metrics.

    Raises:
        ValueError: if the reward is not finite.
    """

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    status: Literal["ok", "timeout", "error"] = "ok"

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise ValueError(f"a verdict's reward must be a finite number, got {self.reward!r}")


class Verifier:
    """Poses problems and judges completions; subclass it and override what you need.

    A verifier is total on bad answers (a reward, usually 0) and loud on its own bugs (an exception).

    Attributes:
        alphabet: the characters of its prompts and answers; a character tokenizer is made from it.
        prompt_length: the longest prompt in characters, None where unknown.
        answer_length: the longest right answer in characters, None where unknown.
        success_reward: a verdict with at least this reward counts as a success.
    """

    alphabet: str = string.printable
    prompt_length: int | None = None
    answer_length: int | None = None
    success_reward: float = 1.0

    def sample(self, rng: random.Random) -> Problem:
        """Return a problem drawn with `rng` alone; not overridden where problems come from elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} makes no problems of its own: pass problems=[...]")

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""
        raise NotImplementedError(f"{type(self).__name__} implements neither verify nor verify_batch")

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions, in order; override it where a batch is cheaper than its parts."""
        return [self.verify(problem, completion) for problem, completion in zip(problems, completions, strict=True)]

    def demonstration(self, problem: Problem) -> str:
        """Return a completion worth imitating, for the supervised warm start; the reference answer by default."""
        return problem.answer

    def split_key(self, problem: Problem) -> str:
        """Return the text whose hash decides between training and test split.

        Problems that are one and the same to a learner (12+34 and 34+12) should share a key.
        """
        return problem.prompt

    def is_success(self, verdict: Verdict) -> bool:
        """Tell whether a verdict counts as solved."""
        return verdict.status == "ok" and bool(verdict.reward >= self.success_reward)
