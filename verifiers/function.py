"""A reward function f(prompts, completions, **columns) as a verifier: the signature that TRL uses."""

from __future__ import annotations

import inspect
import math
import string
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from rlenv._loop import is_async, wait_for

from .base import MAX_REWARD, PROGRESS, SAMPLED, Completion, MiscountError, Problem, Verdict, Verifier, as_number
from .problem import unshared

OF_COMPLETIONS = {"completion_ids": SAMPLED, "trainer_state": PROGRESS}  # what completions carry, by parameter
NOT_LISTS = (str, bytes, bytearray, Mapping, Set)  # iterable, and what they yield are not rewards in order
GIVEN = ("prompts", "completions", "answer", *OF_COMPLETIONS, "log_metric", "log_extra")
ENVIRONMENTS = "environments"  # TRL's name for the objects that were played with


@dataclass(frozen=True)
class TrainerState:
    """The training as a reward function sees it; the names are transformers'.

    Attributes:
        global_step: updates so far.
        max_steps: updates in all; None if unknown.
        num_train_epochs: always None: rlenv counts steps or episodes.
    """

    global_step: int
    max_steps: int | None = None
    num_train_epochs: int | None = None


@dataclass
class _Notes:
    """Named parts of each verdict, which a function logs with `log_metric` and `log_extra`.

    Args:
        count: completions in the batch.
    """

    count: int
    parts: dict[str, list[Any]] = field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        """Log a number about the batch; its mean over episodes is logged."""
        self.parts[str(name)] = [float(value)] * self.count

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        """Log one number per completion; anything else is left out."""
        values = list(values)
        if len(values) != self.count:
            raise ValueError(f"log_extra({column!r}, ...) got {len(values)} values for {self.count} completions")
        try:
            self.parts[str(column)] = [math.nan if value is None else as_number(value) for value in values]
        except (TypeError, ValueError, OverflowError, RuntimeError):
            warnings.warn(f"log_extra({column!r}, ...): only numbers are logged", stacklevel=2)

    def added_to(self, verdict: Verdict, row: int) -> Verdict:
        """Return the verdict on one completion with its parts."""
        parts = {name: values[row] for name, values in self.parts.items() if math.isfinite(values[row])}
        return replace(verdict, parts=parts) if verdict.status == "ok" else verdict


class FunctionVerifier(Verifier):
    """Wraps a reward function with the signature that TRL uses.

    The function is called once per batch, with keyword arguments, of which it gets those that it has parameters for:

    - `prompts` and `completions`: texts. If a prompt is a list of messages, its completion is
      `[{"role": "assistant", "content": text}]`.
    - `answer`, and the problems' metadata by name: lists with one value per completion.
    - `completion_ids`: the sampled tokens; `trainer_state`: a `TrainerState`. Both are known while an agent plays.
    - `log_metric(name, value)` and `log_extra(column, values)`: numbers for the log.

    It returns one number per completion, and may be async. None means that it does not apply to a completion; NaN and
    numbers beyond float32 are errors. Any other number is in its range.

    Args:
        function: `f(prompts, completions, **columns) -> list[float | None]`, sync or async.
        success_reward: the least reward that counts as a success.
        alphabet: characters for a character tokenizer; printable ASCII by default.
        has_environments: whether `judge` is given the environments that the function may ask for.

    Raises:
        ValueError: for a function that asks for environments, which only dialogues have; when judging, if it returns
            something other than numbers.
        MiscountError: when judging, if it returns a list of the wrong length.
    """

    reward_range = (-math.inf, math.inf)

    def __init__(
        self,
        function: Callable[..., Any],
        success_reward: float = 1.0,
        alphabet: str = string.printable,
        has_environments: bool = False,
    ) -> None:
        self.function = function
        self.is_async = is_async(function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.success_reward = success_reward
        self.alphabet = alphabet
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError as error:
            raise ValueError(
                f"{self.name} is not a reward function f(prompts, completions, **columns): {error}"
            ) from error
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._names = {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        required = [p.name for p in parameters if p.name in self._names and p.default is p.empty]
        if ENVIRONMENTS in required and not has_environments:
            raise ValueError(
                f"reward function {self.name} asks for {ENVIRONMENTS!r}: list it after the class of the environment, "
                "as in --verifier my_env.py:Environment,rewards.py:f"
            )
        self._required = set(required)
        columns = [name for name in required if name not in (*GIVEN, ENVIRONMENTS)]
        self.inputs = (*columns, *(of for name, of in OF_COMPLETIONS.items() if self._takes_all or name in self._names))

    @override
    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return self.judge(problems, completions, {})

    def judge(
        self, problems: Sequence[Problem], completions: Sequence[str], others: Mapping[str, Any]
    ) -> list[Verdict]:
        """Judge many completions, with columns that add to or replace the columns of `verify_batch`."""
        notes = _Notes(len(completions))
        columns = self._columns(problems, completions) | {"log_metric": notes.log_metric, "log_extra": notes.log_extra}
        columns |= others
        if not self._takes_all:
            columns = {name: values for name, values in columns.items() if name in self._names}
        if missing := sorted(self._required - columns.keys()):
            raise ValueError(
                f"reward function {self.name} asks for {', '.join(missing)}, unknown here; known: {', '.join(columns)}"
            )
        rewards = wait_for(self.function(**unshared(columns)))  # which it may change
        if not isinstance(rewards, Iterable) or isinstance(rewards, NOT_LISTS):
            got = f"reward function {self.name} returned {rewards!r:.200}, a {type(rewards).__name__}"
            raise ValueError(f"{got}; return a list of numbers, one per completion")
        rewards = list(rewards)
        if len(rewards) != len(completions):
            counts = f"{len(rewards)} rewards for {len(completions)} completions"
            raise MiscountError(f"reward function {self.name} returned {counts}; return one for each")
        verdicts = [as_verdict(f"reward function {self.name}", reward) for reward in rewards]
        return [notes.added_to(verdict, row) for row, verdict in enumerate(verdicts)] if notes.parts else verdicts

    def _columns(self, problems: Sequence[Problem], completions: Sequence[str]) -> dict[str, Any]:
        """Return the columns that a function can ask for by name, except its two logging functions."""
        names = {key for problem in problems for key in problem.metadata} - set(GIVEN)
        columns: dict[str, Any] = {name: [problem.metadata.get(name) for problem in problems] for name in names}
        ids = [list(text.token_ids) for text in completions if isinstance(text, Completion) and text.token_ids]
        if ids and len(ids) == len(completions):
            columns["completion_ids"] = ids
        progress: Mapping[str, Any] = getattr(completions[-1], "progress", {}) if len(completions) else {}
        if progress:
            columns["trainer_state"] = TrainerState(progress.get("num_updates") or 0, progress.get("max_updates"))
        pairs = list(zip(problems, completions, strict=True))
        return columns | {
            "prompts": [problem.prompt for problem in problems],
            "completions": [_as_asked(problem.prompt, text) for problem, text in pairs],
            "answer": [problem.answer for problem in problems],
        }


def as_verdict(owner: str, reward: Any) -> Verdict:
    """Return the verdict of a returned reward: a number, or None for a completion that it does not judge.

    Args:
        owner: of the reward, in words for messages, such as "reward function f".
        reward: anything.

    Raises:
        ValueError: for something else. A number beyond float32 is a verdict with the status "error".
    """
    if reward is None:
        return Verdict(0.0, status="not_applicable")
    try:
        value = as_number(reward)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner} returned {reward!r:.200}, which is not a number") from error
    except OverflowError:  # a whole number or a fraction beyond float64
        value = math.inf if reward > 0 else -math.inf
    if not abs(value) <= MAX_REWARD:
        return Verdict(0.0, status="error", reason=f"{owner} returned {value}")
    return Verdict(value)


def _as_asked(prompt: Any, text: str) -> Any:
    """Return a completion in the form of its prompt: plain text, or a list of messages."""
    text = str(text) if isinstance(text, Completion) else text
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
