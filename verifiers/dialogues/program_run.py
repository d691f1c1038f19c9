"""A run of a program in a thread: it waits in its calls, and whoever answers them waits for the next one, in turn."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import math
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..base import Problem, Verdict, describe
from ..conversation import Message, as_conversation, as_reply
from .chat_client import Client, EpisodeOver, OutOfBudgetError, RefusedError, completion, limits_of, normal, same
from .world import Randomness

NAME = "rlenv-program"  # of the threads
PATIENCE = 1.0  # seconds in which a program that is given up has to end
PAUSE = 0.01  # seconds before a call after the end fails
AT_ONCE = "two calls wait at once: an episode is one conversation; make one after the other"


class ProgramRun:
    """One run of a program.

    Args:
        program: with `solve`, `judged` and a limit of time; see `Program`.
        problem: that it gets.
        seed: of the global random states as it sees them.
        first: the tools and limits that its first call must have; empty for any.

    Attributes:
        limits: of the first call.
        past: the conversation so far.
    """

    def __init__(self, program: Any, problem: Problem, seed: int, first: Mapping[str, Any] | None = None) -> None:
        self.program, self.problem = program, problem
        self.limits: dict[str, Any] = {}
        self.past: list[Message] = []
        self._first = {name: value for name, value in (first or {}).items() if name != "prompt"}
        self._randomness = Randomness(seed)
        self._asked: queue.SimpleQueue[list[Message] | Verdict] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calling = threading.Lock()  # held by the call that waits
        self._calls, self._fault, self._spent, self._over = 0, "", False, False
        self._client = Client(self.ask, inspect.iscoroutinefunction(program.solve))
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def begin(self) -> list[Message] | Verdict:
        """Start the program; return the messages of its first call, or the verdict if there is none."""
        return self._until_asked(self._thread.start)

    def answer(self, turn: str) -> list[Message] | Verdict:
        """Answer the call that waits; return the messages that the next one adds, or the verdict at the end."""
        made = completion(self._calls, turn, self.limits)
        self.past.append(normal(made["choices"][0]["message"]))
        return self._until_asked(lambda: self._answers.put(made))

    def spend(self) -> list[Message] | Verdict:
        """Have the call that waits say that turns or context ran out; return the verdict."""
        self._spent = True
        return self._until_asked(lambda: self._answers.put(OutOfBudgetError("the turns or the context are used up")))

    def close(self) -> None:
        """Give the program up: its call has no answer, and code that runs is interrupted."""
        self._over = True
        self._answers.put(EpisodeOver("the episode was given up"))
        self._client.close()
        if self._thread.ident is None:
            return
        for _ in range(2):
            self._thread.join(PATIENCE)
            if self._thread.is_alive():  # reaches Python code, not a call of the system that does not return
                identity, error = ctypes.c_ulong(self._thread.ident), ctypes.py_object(EpisodeOver)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, error)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call, in the program's thread or another one of its; return the answer as OpenAI's JSON.

        Raises:
            OutOfBudgetError: if turns or context ran out.
            EpisodeOver: if the episode is over, also because of this call.
        """
        if not self._calling.acquire(blocking=False):
            raise self._refusal(AT_ONCE)
        try:
            if self._over or self._fault or self._spent:
                time.sleep(PAUSE)  # a program that ignores its end should not take a core
                raise EpisodeOver(self._fault or "the episode is over: a call after its end has no answer")
            self._calls += 1
            try:
                fresh = self._fresh(request)
            except ValueError as error:
                colon = "" if isinstance(error, RefusedError) else ": "
                raise self._refusal(f"call {self._calls}{colon}{error}") from error
            self._asked.put(fresh)
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer
            return dict(answer)
        finally:
            self._calling.release()

    def _fresh(self, request: Mapping[str, Any]) -> list[Message]:
        """Return the messages that a call adds to the conversation.

        Raises:
            ValueError: for a call that no episode can have.
        """
        limits = limits_of(request)
        for name, wanted in (self._first if self._calls == 1 else self.limits).items():
            enough = name == "max_tokens" and wanted is not None and (limits[name] or math.inf) >= wanted
            if limits[name] != wanted and not enough:
                whose = "the first problem" if self._calls == 1 else "call 1"
                raise RefusedError(f" has other {name} than {whose}: an environment has the same for all")
        messages = [normal(message) for message in request["messages"]]
        if self._calls == 1:
            self.limits, self.past = limits, as_conversation(messages)
            return list(self.past)
        for number, before in enumerate(self.past, 1):
            if number > len(messages) or not same(messages[number - 1], before):
                verb = "begins anew" if number == 1 else f"changes message {number}"
                raise RefusedError(f" {verb}: an episode is one growing conversation")
        added = messages[len(self.past) :]
        if not added:
            raise RefusedError(" adds no message: an episode is one growing conversation")
        fresh = as_reply([{"role": each["role"], "content": each["content"]} for each in added])
        self.past += fresh
        return fresh

    def _refusal(self, fault: str) -> EpisodeOver:
        """End the episode because of a call; return what this call raises."""
        self._fault = self._fault or fault
        self._asked.put(Verdict(0.0, status="error", reason=self._fault))
        return EpisodeOver(self._fault)

    def _until_asked(self, resume: Any) -> list[Message] | Verdict:
        """Let the program go on until its next call or its end, with its random states."""
        with self._randomness():
            resume()
            try:
                asked = self._asked.get(timeout=self.program.execution.timeout)
            except queue.Empty:
                took = f"the program took more than {self.program.execution.timeout:g} s after call {self._calls}"
                asked = Verdict(0.0, status="timeout", reason=took)
        return asked

    def _run(self) -> None:
        """Run the program, and say how it ended."""
        verdict = None
        try:
            returned = self.program.solve(self.problem, self._client)
            verdict = self.program.judged(asyncio.run(returned) if inspect.iscoroutine(returned) else returned)
            if self._calling.locked():
                self._fault = "the program ended while another call of it waits; wait for every answer"
            elif not self._calls:
                self._fault = f"{self.program.name} never calls the model"
        except BaseException as error:  # whatever the program raises
            if not self._spent:
                self._fault = self._fault or describe(error)
        self._over = True
        if self._fault:
            verdict = Verdict(0.0, status="error", reason=self._fault)
        with suppress(Exception):
            self._asked.put(verdict or self.program.judged(self.program.least))
