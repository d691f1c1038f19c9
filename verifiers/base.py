"""What a verifier is: it poses problems and judges completions."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

MAX_REWARD = 3.4028234663852886e38  # of float32, which trainers calculate in


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
        reward: a finite number, also in float32.
        parts: named components of the reward, for logging.
        status: "ok", or why there is no reward: "timeout", "error" (failures of the verifier, which are counted) or
            "not_applicable" (it has nothing to say). No verdict is no reward of 0: such an episode is left out of
            baselines, loss and metrics.
        reason: what went wrong, in one line, where the status is not "ok".

    Raises:
        ValueError: if the reward is NaN or beyond ±3.4e38.
    """

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    status: Literal["ok", "timeout", "error", "not_applicable"] = "ok"
    reason: str = ""

    def __post_init__(self) -> None:
        if not abs(self.reward) <= MAX_REWARD:
            raise ValueError(f"a verdict's reward must be a finite number in float32, got {self.reward!r}")

    @property
    def failed(self) -> bool:
        """Whether the verifier failed to reach a verdict."""
        return self.status in ("timeout", "error")


def words_of(error: BaseException) -> str:
    """Return what an exception says; one from a Verdict made with other arguments than its fields names those."""
    text = str(error)
    if isinstance(error, TypeError) and text.startswith("Verdict.__init__()"):
        text += f"; the fields of a Verdict are {', '.join(one.name for one in fields(Verdict))}"
    return text


RIGHT, WRONG = Verdict(1.0), Verdict(0.0)  # made once: making one costs several times a comparison


class Verifier:
    """Poses problems and judges completions; subclass it and override what you need.

    A verifier is total on bad answers (a reward, usually 0) and loud on its own bugs (an exception).

    Attributes:
        alphabet: the characters of its prompts and answers; a character tokenizer is made from it.
        prompt_length: the longest prompt in characters, None where unknown.
        answer_length: the longest right answer in characters, None where unknown.
        success_reward: a verdict with at least this reward counts as a success.
        reward_range: the lowest and the highest reward there can be.
        levels: how many levels of difficulty its problems have; a problem's level, from 1, is in its metadata
            ("level") where there is more than one.
        isolated: whether verdicts are reached in worker processes unless the user decides otherwise: for verifiers
            that may hang, crash or take long. See `isolation.py`.
        timeout: seconds a verdict may take in a worker process.
        prefers_batches: whether one large batch is cheaper than several small ones.
        slow: whether a verdict may take longer than 5 ms, because it runs a program or a model.
        does_not_catch: wrong completions that this verifier is known to pay for, by the name of the attack in
            `linting/attacks.py` or in its own `counterexamples`, each with the reason.
        needs: the optional modules it cannot do without, each with the extra of this package that installs it.
    """

    alphabet: str = string.printable
    prompt_length: int | None = None
    answer_length: int | None = None
    success_reward: float = 1.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    levels: int = 1
    isolated: bool = False
    timeout: float = 5.0
    prefers_batches: bool = False
    slow: bool = False
    does_not_catch: Mapping[str, str] = {}
    needs: Mapping[str, str] = {}

    def sample(self, rng: random.Random) -> Problem:
        """Return a problem drawn with `rng` alone; not overridden where problems come from elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} makes no problems of its own: pass problems=[...]")

    @property
    def makes_problems(self) -> bool:
        """Whether it poses problems by itself; otherwise they have to be listed."""
        return type(self).sample is not Verifier.sample

    def sample_at(self, rng: random.Random, level: int) -> Problem:
        """Return a problem of one level, 1 to `levels`; overridden where there is more than one."""
        return self.sample(rng)

    def examples(self) -> list[Problem]:
        """Return problems to show and to check the verifier with; overridden where it makes none of its own."""
        rng = random.Random(0)
        return [self.sample_at(rng, 1 + index % self.levels) for index in range(16)]

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return completions that differ from the demonstration and deserve the full reward all the same."""
        return []

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return wrong completions that only this kind of verifier could fall for, by the name of the attack."""
        return {}

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

    def close(self) -> None:
        """Give back what the verifier holds (worker processes, a model)."""

    def is_success(self, verdict: Verdict) -> bool:
        """Tell whether a verdict counts as solved."""
        return verdict.status == "ok" and bool(verdict.reward >= self.success_reward)


def checked(verifier: object, verdicts: object, count: int) -> list[Verdict]:
    """Return what `verify_batch` returned, as a list of `count` verdicts.

    Raises:
        ValueError: if it is something else.
    """
    made = list(verdicts) if isinstance(verdicts, Iterable) else [verdicts]
    right = [verdict for verdict in made if isinstance(verdict, Verdict)]
    if len(right) != len(made) or len(made) != count:
        shown = repr(made)[:200]
        raise ValueError(f"{type(verifier).__name__}.verify_batch must return {count} verdicts, got {shown}")
    return right
