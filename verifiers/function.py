"""A reward function f(prompts, completions, **columns) as a verifier."""

from __future__ import annotations

import inspect
import math
import string
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from typing_extensions import override

from .base import MAX_REWARD, Problem, Verdict, Verifier


class FunctionVerifier(Verifier):
    """Wraps a reward function with the signature that TRL uses.

    The function is called once per batch, with lists: `prompts`, `completions`, and the columns that it has parameters
    for: `answer` and the problems' metadata. It returns one number per completion, and may be async. None means that it
    does not apply to a completion; NaN and numbers beyond float32 are errors. Any other number is in its range.

    Args:
        function: `f(prompts, completions, **columns) -> list[float | None]`, sync or async.
        success_reward: the least reward that counts as a success.
        alphabet: characters for a character tokenizer; printable ASCII by default.

    Raises:
        ValueError: when judging, if the function returns a list of the wrong length, or something other than numbers.
    """

    reward_range = (-math.inf, math.inf)

    def __init__(
        self, function: Callable[..., Any], success_reward: float = 1.0, alphabet: str = string.printable
    ) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.success_reward = success_reward
        self.alphabet = alphabet
        try:
            parameters = inspect.signature(function).parameters
        except ValueError as error:
            raise ValueError(
                f"{self.name} is not a reward function f(prompts, completions, **columns): {error}"
            ) from error
        self._takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        self._names = set(parameters)

    @override
    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        columns: dict[str, list[Any]] = {
            "prompts": [problem.prompt for problem in problems],
            "completions": list(completions),
            "answer": [problem.answer for problem in problems],
        }
        for name in {key for problem in problems for key in problem.metadata} - columns.keys():
            columns[name] = [problem.metadata.get(name) for problem in problems]
        if not self._takes_all:
            columns = {name: values for name, values in columns.items() if name in self._names}
        rewards = self.function(**columns)
        if inspect.isawaitable(rewards):
            rewards = _wait_for(rewards)
        if not isinstance(rewards, Iterable) or isinstance(rewards, (str, bytes)):
            raise ValueError(f"reward function {self.name} returned {rewards!r}, which is not a list of numbers")
        rewards = list(rewards)
        if len(rewards) != len(completions):
            raise ValueError(f"reward function {self.name} returned {len(rewards)} rewards for {len(completions)}")
        return [self._verdict(reward) for reward in rewards]

    def _verdict(self, reward: Any) -> Verdict:
        if reward is None:
            return Verdict(0.0, status="not_applicable")
        try:
            value = float(reward)
        except (TypeError, ValueError) as error:
            raise ValueError(f"reward function {self.name} returned {reward!r}, which is not a number") from error
        if not abs(value) <= MAX_REWARD:
            return Verdict(0.0, status="error", reason=f"reward function {self.name} returned {value}")
        return Verdict(value)


def _wait_for(rewards: Awaitable[Any]) -> Any:
    """Run a coroutine to its end, even if an event loop is already running (as in a notebook)."""
    import asyncio  # slow, and every worker process would wait for it

    async def finish() -> Any:
        return await rewards

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, finish()).result()
