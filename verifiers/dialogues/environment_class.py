"""environment: a class as TRL's `environment_factory` takes it, "my_env.py:Environment"."""

from __future__ import annotations

import inspect
import json
import math
import string
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from typing_extensions import override

from rlenv._checks import check_count, first_line
from rlenv._loop import wait_for
from rlenv._status import VERIFIER_FAILED

from ..base import CALLED, Completion, Dialogue, Problem, Reply, Turns, Verdict, Verifier, describe
from ..conversation import Message, last_of
from ..function import ENVIRONMENTS, FunctionVerifier, as_verdict
from ..plugins.registry import find_verifier, register_verifier
from ..problem import unshared
from ..text import hashed
from .toolbox import CALL_LENGTH, CALLS, ERRORS, RESULT_LENGTH, Tool, Toolbox
from .world import Randomness, WorldVerifier

OWN = ("reset", "get_reward")  # methods that are not tools
PROBED = 4  # openings that the length of prompts is read off
PROMPT = "prompt"  # the column with a listed problem's own prompt, before the observation is appended
EMPTY = [{"role": "user", "content": ""}]  # what TRL passes for a prompt where no dataset has one


@register_verifier("environment")
class EnvironmentClass(WorldVerifier):
    """An environment class as TRL's GRPOTrainer takes it for `environment_factory`, whose methods are tools.

    - `reset(**columns)` begins an episode. It gets the columns of the problem, the prompt among them, as far as it has
      parameters for them; a parameter `seed` gets the problem's seed. The text it returns is appended to the prompt's
      last message; None appends nothing. Without listed problems, that text is the prompt.
    - Every other public method is a tool. Its results are the replies, and exceptions are answered with a message.
    - `get_reward()`, if there is one, is asked when the model takes a turn without a call, or is out of turns. Its
      result is the reward, to which `functions` may add theirs.

    All of them may be async. Objects are made once and reset often. Python's and NumPy's global random states are
    seeded by the problem and kept apart from ours, so that all episodes of a group begin alike and worker processes can
    replay them. `reset` is called once for each listed problem at the start, because its text is part of the prompt.

    Args:
        env: the class, or a function without arguments that returns such an object; or the name of one, such as
            "my_env.py:Environment".
        functions: reward functions beside `get_reward`, or their names. They may ask for `environments`; completions
            are lists of messages with the calls and their results.
        weights: of the rewards, first of `get_reward`; 1 by default.
        turns: with calls, in an episode.
        result_length: characters of all results of a turn.
        success_reward: the least reward of an episode that counts as a success.
        alphabet: characters for a character tokenizer; printable ASCII by default.

    Raises:
        ValueError: for something that is not such a class, that cannot be made or reset, or has nothing that pays.
    """

    answer_length = CALL_LENGTH

    def __init__(
        self,
        env: Any,
        functions: Sequence[Any] = (),
        weights: Sequence[float] | None = None,
        turns: int = 10,
        result_length: int = RESULT_LENGTH,
        success_reward: float = 1.0,
        alphabet: str = string.printable,
    ) -> None:
        self.factory = find_verifier(env) if isinstance(env, str) else env
        self.settings = (self.factory, functions, weights, turns, result_length, success_reward, alphabet)
        self.functions = [_as_function(each) for each in functions]
        payers = 1 + len(functions)
        self.weights = [1.0] * payers if weights is None else [float(each) for each in weights]
        if len(self.weights) != payers:
            raise ValueError(f"environment: weights must be {payers} numbers, get_reward's first, got {weights!r:.60}")
        turns = check_count("environment: turns", turns, 1, 10_000) + 1
        self.result_length, self.success_reward, self.alphabet = result_length, success_reward, alphabet
        self.reward_range = (-math.inf, math.inf)
        self.inputs = tuple(dict.fromkeys([CALLED, *(name for each in self.functions for name in each.inputs)]))
        self.free: list[Instance] = []  # of no episode, for the next one
        first = self._instance()
        if not (first.pays or functions):
            raise ValueError(f"{first.name} has no get_reward(): add one, or list a reward function after it")
        self.name, box = first.name, first.box
        names = [first.name, *(each.name for each in self.functions)]
        if len(set(names)) < len(names):
            raise ValueError(f"environment: what pays must have different names, got {', '.join(names)}; rename one")
        tools = [tool.function for tool in box.by_name.values()]
        self.turns = Turns(turns, result_length, tools, box.instead)
        if functions:
            self.part_weights = dict(zip(names, self.weights, strict=True))
        self.free.append(first)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.settings

    @cached_property
    def prompt_length(self) -> int | None:  # type: ignore[override]
        """Twice the longest of a few openings; None if problems have to be listed, which need no resets for this."""
        try:
            return 2 * max(len(self.opening(seed)) for seed in range(PROBED))
        except ValueError:
            return None

    @override
    def opening(self, seed: int) -> str:
        observation = self._observation(Problem("-", metadata={"seed": seed}))
        if not observation:
            raise ValueError(f"{self.name}.reset returns no text, so problems must be listed (--problems FILE)")
        return observation

    def opened(self, problem: Problem) -> Problem:
        """Return a listed problem with the prompt that its episodes begin with; equal problems stay equal."""
        listed = replace(problem, metadata={**problem.metadata, PROMPT: problem.prompt})
        return replace(listed, prompt=_appended(problem.prompt, self._observation(listed)))

    def _observation(self, problem: Problem) -> str:
        try:
            playing = EnvironmentEpisode(self, problem)
        except Exception as error:  # whatever `reset` raises
            asked = ", ".join(name for name in _columns(problem))
            raise ValueError(f"{self.name}.reset failed with the columns {asked}: {_raised(error)}") from error
        playing.close()
        return playing.observation

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        playing = EnvironmentEpisode(self, problem)
        is_opened = PROMPT in problem.metadata or not _is_listed(problem)
        if is_opened and not last_of(problem.prompt).endswith(playing.observation):
            playing.close()
            raise ValueError(
                f"{self.name}.reset returned two texts for equal columns, {last_of(problem.prompt)[-40:]!r} and "
                f"{playing.observation[-40:]!r}; draw from random or numpy.random, or take a parameter seed"
            )
        return playing

    @override
    def split_key(self, problem: Problem) -> str:
        if not _is_listed(problem):
            return super().split_key(problem)
        return f"{problem.text} {_seed(_columns(problem))}"  # rows of one prompt differ by what is hidden

    def take(self) -> Instance:
        """Return an object that no episode has."""
        return self.free.pop() if self.free else self._instance()

    def _instance(self) -> Instance:
        name = getattr(self.factory, "__name__", self.factory)
        try:
            env = self.factory()
        except Exception as error:  # whatever its constructor raises
            raise ValueError(f"environment {name}: __init__ failed: {_raised(error)}") from error
        try:
            return Instance(env, self.result_length)
        except ValueError as error:
            raise ValueError(f"environment {name}: {first_line(error)}") from error


class Instance:
    """One object of an environment class, with its tools.

    Args:
        env: the object.
        result_length: characters of all results of a turn.

    Raises:
        ValueError: for an object without `reset`.
    """

    def __init__(self, env: Any, result_length: int) -> None:
        self.env, self.name = env, type(env).__name__
        methods = [name for name, _ in inspect.getmembers(type(env), inspect.isfunction) if name[0] != "_"]
        if "reset" not in methods:
            raise ValueError(f"{self.name} has no method reset(**columns), which TRL's environment classes have")
        self.pays = "get_reward" in methods
        tools = [Tool(getattr(env, name), isolated=False) for name in methods if name not in OWN]
        self.box = Toolbox(tools, result_length)

    def reset(self, columns: Mapping[str, Any], seed: int) -> str:
        """Begin an episode; return the text that is appended to the prompt.

        Args:
            columns: of the problem.
            seed: for a parameter of this name, if no column is called so.

        Raises:
            ValueError: if `reset` returns something other than a text or None.
        """
        observation = wait_for(self.env.reset(**_taken(self.env.reset, columns, seed)))
        if not (observation is None or isinstance(observation, str)):
            raise ValueError(f"{self.name}.reset must return a text or None, got {observation!r:.60}")
        return observation or ""

    def reward(self) -> Verdict:
        """Return the verdict of `get_reward`; not applicable if there is none."""
        paid = wait_for(self.env.get_reward()) if self.pays else None
        return as_verdict(f"{self.name}.get_reward", paid)


class EnvironmentEpisode(Dialogue):
    """An episode.

    Attributes:
        observation: what `reset` returned.
        messages: turns with their calls, and results.
        token_ids: of the turns, one after the other; None if unknown.
    """

    def __init__(self, verifier: EnvironmentClass, problem: Problem) -> None:
        self.verifier, self.problem, self.turn, self.taken = verifier, problem, "", 0
        self.messages: list[Message] = []
        self.token_ids: list[int] | None = []
        columns = _columns(problem)
        self.randomness = Randomness(_seed(columns))
        self.instance: Instance | None = verifier.take()
        with self.randomness():
            self.observation = self.instance.reset(columns, _seed(columns))

    @override
    def reply(self, turn: str) -> Reply:
        assert self.instance is not None
        calls = self.instance.box.calls(turn)
        made = [{"type": "function", "function": {"name": each.name, "arguments": each.arguments}} for each in calls]
        self.messages.append({"role": "assistant", "content": str(turn), **({"tool_calls": made} if made else {})})
        ids = getattr(turn, "token_ids", None)
        self.token_ids = None if ids is None or self.token_ids is None else [*self.token_ids, *ids]
        self.turn, self.taken = turn, self.taken + 1
        if not calls or self.taken == self.verifier.turns.max_turns:  # as in TRL, calls of the last turn are not made
            return Reply(verdict=self.out_of_budget(), counts={CALLS: 0, ERRORS: 0})
        with self.randomness():
            reply = self.instance.box.results(calls)
        self.messages += list(reply.content)  # type: ignore[arg-type]  # messages
        return reply

    @override
    def out_of_budget(self) -> Verdict:
        """Return the weighted sum of the rewards of the environment and the functions, with the parts by name."""
        assert self.instance is not None
        with self.randomness():
            verdicts = {self.instance.name: self.instance.reward()}
        last = Completion.of(self.turn, self.token_ids, getattr(self.turn, "progress", {}))
        others = {"completions": [self.messages], ENVIRONMENTS: [self.instance.env]}
        for function in self.verifier.functions:
            (verdicts[function.name],) = function.judge([self.problem], [last], others)
        return _sum(verdicts, self.verifier.weights)

    @override
    def close(self) -> None:
        if self.instance is not None:
            self.verifier.free.append(self.instance)
        self.instance = None


def _raised(error: Exception) -> str:
    """Return an exception in one line, with the place in the user's code that raised it, if it was there."""
    (*_, place) = traceback.extract_tb(error.__traceback__)
    return first_line(error) if place.filename == __file__ else describe(error)


def _taken(method: Callable[..., Any], columns: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the columns that a method has parameters for; an empty answer only if it is asked for by name."""
    parameters = inspect.signature(method).parameters.values()
    named = {each.name: {"seed": seed, **columns}[each.name] for each in parameters if each.name in {"seed", *columns}}
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return {name: value for name, value in columns.items() if name != "answer" or value} | named
    return named


def _sum(verdicts: Mapping[str, Verdict], weights: Sequence[float]) -> Verdict:
    """Return the weighted sum of verdicts; a failure if one failed, and not applicable if none applies."""
    if failed := [each for each in verdicts.values() if each.status in VERIFIER_FAILED]:
        return failed[0]
    paid = {name: each for name, each in verdicts.items() if each.status == "ok"}
    if not paid:
        return Verdict(0.0, status="not_applicable")
    weighed = zip(weights, verdicts.values(), strict=True)
    total = math.fsum(weight * each.reward for weight, each in weighed if each.status == "ok")
    parts = {name: each.reward for name, each in paid.items()} if len(verdicts) > 1 else {}
    for each in paid.values():
        parts |= each.parts
    return Verdict(total, parts)


def _is_listed(problem: Problem) -> bool:
    """Tell whether a problem comes from a list; a sampled one has a seed and no prompt column."""
    return PROMPT in problem.metadata or "seed" not in problem.metadata


def _columns(problem: Problem) -> dict[str, Any]:
    """Return the columns of a problem as its dataset has them."""
    prompt = problem.prompt if _is_listed(problem) else EMPTY
    return unshared({PROMPT: prompt, "answer": problem.answer, **problem.metadata})


def _seed(columns: Mapping[str, Any]) -> int:
    """Return a number that equal columns share, 0 to 2³¹ - 1."""
    return hashed(json.dumps(columns, sort_keys=True, default=repr), 4) >> 1


def _appended(prompt: str | list[Message], observation: str) -> str | list[Message]:
    """Return a prompt with an observation at the end of its last message."""
    if isinstance(prompt, str):
        return prompt + observation
    return [*prompt[:-1], {**prompt[-1], "content": prompt[-1]["content"] + observation}]


def _as_function(spec: Any) -> FunctionVerifier:
    """Return a reward function, given itself or its name."""
    found = find_verifier(spec) if isinstance(spec, str) else spec
    if isinstance(found, FunctionVerifier):
        return found
    if isinstance(found, (Verifier, type)) or not callable(found):
        raise ValueError(f"what pays beside an environment is a reward function, got {spec!r:.60}")
    return FunctionVerifier(found, has_environments=True)
