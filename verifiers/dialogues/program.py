"""program: an agent that calls a chat API, "agent.py:solve": an episode is one run of it, and a call is a turn."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from rlenv._checks import check_count, check_number

from ..base import CALLED, REPLIED, Dialogue, Execution, Problem, Reply, Turns, Verdict, Verifier
from ..conversation import Message
from ..function import as_verdict
from ..plugins.registry import find_verifier, register_verifier
from ..text import hashed
from .chat_client import OutOfBudgetError, offered
from .program_run import SPENT, ProgramRun

FIRST = "first_call"  # the column with the problem as its dataset has it, and the limits of calls
OTHERWISE = "run again with the same turns, the program says something else: call {} has other messages; a program "
REPEATS = "has to be deterministic in worker processes; pass verifier_workers=0 to run each one once, in a thread"


@register_verifier("program")
class Program(Verifier):
    """An agent that calls a chat API, as a function `solve(problem, client)`, sync or async.

    An episode is one run of it. `client` has the shape of `openai.OpenAI()`, of `openai.AsyncOpenAI()` for an async
    function; each call of `client.chat.completions.create` is a turn: the model reads its messages, and the
    program gets the model's text. Programs of other libraries call the endpoint `client.base_url`, OpenAI's
    protocol, with the key `client.api_key`. See docs/bring-your-agent.md.

    The function returns the reward, a `Verdict`, or a pair of a reward and its named parts. A program that raises,
    hangs, never calls, calls twice at once or changes the past ends with the status "error" or "timeout". If turns or
    context run out, the call raises `OutOfBudgetError`, and the reward is the program's result after it, else 0.

    In worker processes, the default, programs are run again for each turn, with the recorded ones. With
    `verifier_workers=0` each program runs once, in a thread.

    Args:
        solve: the function, or its name, such as "agent.py:solve".
        turns: calls in an episode.
        timeout: seconds that a program may take between two calls.
        reply_length: longest reply in characters; None for what 128 tokens hold.
        success_reward: the least reward that counts as a success.
        reward_range: lowest and highest possible reward.
        alphabet: characters for a character tokenizer; printable ASCII by default.

    Raises:
        ValueError: for something that is not such a function.
    """

    inputs = CALLED, REPLIED

    def __init__(
        self,
        solve: Any,
        turns: int = 10,
        timeout: float = 60.0,
        reply_length: int | None = None,
        success_reward: float = 1.0,
        reward_range: Sequence[float] = (-math.inf, math.inf),
        alphabet: str = string.printable,
    ) -> None:
        self.settings = (solve, turns, timeout, reply_length, success_reward, reward_range, alphabet)
        self.solve = find_verifier(solve) if isinstance(solve, str) else solve
        self.name = getattr(self.solve, "__name__", type(self.solve).__name__)
        self.turns = Turns(check_count("program: turns", turns, 1, 10_000), reply_length)
        self.success_reward, self.alphabet = success_reward, alphabet
        self.reward_range = float(reward_range[0]), float(reward_range[1])
        self.least = min(max(0.0, self.reward_range[0]), self.reward_range[1])  # for no answer
        self.execution = Execution(isolated=True, timeout=check_number("program: timeout", timeout, 0), slow=True)
        self._first: Mapping[str, Any] = {}  # tools and limits of the first problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.settings

    def opened(self, problem: Problem) -> Problem:
        """Return a problem with the messages of the program's first call as its prompt.

        Raises:
            ValueError: if the program makes no call about the first problem; about others, their episodes say why.
        """
        run = ProgramRun(self, problem, _seed(problem))
        asked = run.next()
        run.close()
        if isinstance(asked, Verdict):
            if not self._first:
                raise ValueError(f"program {self.name}(problem, client): {asked.reason}")
            return problem
        if not self._first:
            self._first = run.limits
            tools, most = list(map(offered, run.limits["tools"])), run.limits["max_tokens"]
            self.turns = replace(self.turns, tools=tools, stop_strings=run.limits["stop"])
            self.answer_length = None if most is None else max(most - 1, 1)  # with the end token
        return Problem(asked, problem.answer, {**problem.metadata, FIRST: (problem, self._first)})

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Running(self, problem)

    @override
    def split_key(self, problem: Problem) -> str:
        return f"{problem.text} {_seed(_first(problem)[0])}"  # rows of one prompt differ by what is hidden

    def judged(self, returned: Any) -> Verdict:
        """Return the verdict that a program's result is.

        Raises:
            ValueError: for something else.
        """
        if isinstance(returned, Verdict):
            return returned
        reward, parts = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
        if reward is None or not isinstance(parts, Mapping):
            allowed = "return the reward, a Verdict or a pair of the reward and its parts"
            raise ValueError(f"{self.name} returned {returned!r:.60}; {allowed}")
        return replace(as_verdict(self.name, reward), parts=parts)


class Running(Dialogue):
    """An episode: a run of the program, begun when its first turn is answered, and again in another process."""

    def __init__(self, program: Program, problem: Problem) -> None:
        self.program, self.problem = program, problem
        self.past: list[tuple[str, list[Message] | None]] = []  # turns and their replies
        self.run: ProgramRun | None = None

    @override
    def reply(self, turn: str) -> Reply:
        asked = self._next(turn)
        if isinstance(asked, Verdict):
            self.close()
            return Reply(verdict=asked)
        self.past.append((turn, asked))
        return Reply(asked)

    @override
    def recall(self, turn: str) -> None:
        self.past.append((turn, getattr(turn, "reply", None)))

    @override
    def out_of_budget(self) -> Verdict:
        verdict = self._next(OutOfBudgetError(SPENT))
        assert isinstance(verdict, Verdict)  # no further call has an answer
        return verdict

    @override
    def close(self) -> None:
        run, self.run = self.run, None
        if run is not None:
            run.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}

    def _next(self, answer: str | BaseException) -> list[Message] | Verdict:
        """Answer the waiting call, in a new run after past calls; return the next call's messages, or the verdict."""
        if self.run is None:
            given, limits = _first(self.problem)
            self.run = ProgramRun(self.program, given, _seed(given), limits)
            answers = [None, *(turn for turn, _ in self.past)]
            expected = [self.problem.prompt if limits else None, *(reply for _, reply in self.past)]
            for number, (earlier, wanted) in enumerate(zip(answers, expected, strict=True), 1):
                asked = self.run.next(earlier)
                if isinstance(asked, Verdict) and asked.status != "ok":
                    return asked
                if isinstance(asked, Verdict) or (wanted is not None and asked != wanted):
                    return Verdict(0.0, status="error", reason=OTHERWISE.format(number) + REPEATS)
        return self.run.next(answer)


def _first(problem: Problem) -> tuple[Problem, Mapping[str, Any]]:
    """Return a problem as its dataset has it, and the limits of the first problem's first call, if known."""
    first: tuple[Problem, Mapping[str, Any]] = problem.metadata.get(FIRST, (problem, {}))
    return first


def _seed(problem: Problem) -> int:
    """Return a number that equal problems share, 0 to 2³² - 1."""
    return hashed(repr((problem.prompt, problem.answer, sorted(problem.metadata.items(), key=repr))), 4)
