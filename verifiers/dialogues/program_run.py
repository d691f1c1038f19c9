"""A run of a program in a thread: the program waits in its calls, and the caller of `next` for the next call."""

from __future__ import annotations

import ctypes
import inspect
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlenv._loop import is_async

from ..base import UNFINISHED, Problem, Verdict, describe
from ..conversation import Message
from ..problem import unshared
from .chat_client import Client, EpisodeOver, RefusedError, added, completion, limits_of, normal
from .world import Randomness

NAME = "rlenv-program"  # of the threads
PATIENCE = 1.0  # seconds in which a program that is given up has to end
PAUSE = 0.01  # seconds before a call after the end fails
AT_ONCE = "two calls wait at once: an episode is one conversation; make one after the other"
WAITS = "the program ended while another call of it waits; wait for every answer"
SPENT = "the turns or the context are used up"


class ProgramRun:
    """One run of a program.

    Args:
        program: with `solve`, `judged` and a limit of time; see `Program`.
        problem: that it gets.
        seed: of the global random states as it sees them.
        limits: that its calls must have; none for the limits of its first call.
    """

    def __init__(self, program: Any, problem: Problem, seed: int, limits: Mapping[str, Any] = {}) -> None:
        self.program, self.problem, self.limits = program, problem, limits
        self.said: list[Message] = []
        self._asked: queue.SimpleQueue[list[Message] | Verdict] = queue.SimpleQueue()  # the first verdict ends the run
        self._answers: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
        self._calling = threading.Lock()  # held by the call that waits
        self._calls, self._end = 0, ""  # why no further call has an answer
        self._randomness = Randomness(seed)
        self._client = Client(self.ask, is_async(program.solve))
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def next(self, answer: str | BaseException | None = None) -> list[Message] | Verdict:
        """Answer the waiting call, or start the program; return the next call's messages, or the verdict.

        Args:
            answer: the model's turn, or the exception that the call raises; None to start.
        """
        with self._randomness():
            if answer is None:
                self._thread.start()
            else:
                self._answers.put(answer)
            try:
                return self._asked.get(timeout=self.program.execution.timeout)
            except queue.Empty:
                took = f"the program took more than {self.program.execution.timeout:g} s after call {self._calls}"
                return Verdict(0.0, status="timeout", reason=took)

    def close(self) -> None:
        """Give the program up: its call has no answer, and code that runs is interrupted."""
        self._end = self._end or "the episode was given up"
        self._answers.put(EpisodeOver(self._end))
        self._client.close()
        for _ in range(2):
            self._thread.join(PATIENCE)
            if self._thread.is_alive():  # reaches Python code, not a call of the system that does not return
                identity, error = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(EpisodeOver)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, error)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call, in any thread; return the answer as OpenAI's JSON.

        Raises:
            OutOfBudgetError: if turns or context ran out.
            EpisodeOver: if the episode is over, also because of this call.
        """
        if not self._calling.acquire(blocking=False):
            raise self._refusal(AT_ONCE)
        try:
            if self._end:
                time.sleep(PAUSE)  # a program that ignores its end should not take a core
                raise EpisodeOver(self._end)
            self._calls += 1
            try:
                limits = limits_of(request, self.limits)
                fresh = added(request["messages"], self.said)
            except ValueError as error:
                colon = "" if isinstance(error, RefusedError) else ":"
                raise self._refusal(f"call {self._calls}{colon} {error}") from error
            self.limits = self.limits or limits
            self._asked.put(fresh)
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                self._end = str(answer)
                raise answer
            made = completion(self._calls, answer, limits)
            self.said += [*fresh, normal(made["choices"][0]["message"])]
            return made
        finally:
            self._calling.release()

    def _refusal(self, fault: str) -> EpisodeOver:
        """End the episode because of a call; return the exception that this call raises."""
        self._end = self._end or fault
        self._asked.put(_failed(fault))
        return EpisodeOver(fault)

    def _run(self) -> None:
        """Run the program, and say how it ended."""
        try:
            returned = self.program.solve(unshared(self.problem), self._client)
            if inspect.iscoroutine(returned):
                from asyncio import run  # slow, and every worker process would wait for it

                returned = run(returned)
            verdict = self.program.judged(returned)
            if self._calling.locked():
                verdict = _failed(WAITS)
            elif not self._calls:
                verdict = _failed(f"{self.program.name} never calls the model")
        except BaseException as error:  # whatever the program raises
            unfinished = replace(UNFINISHED, reward=self.program.least)
            verdict = unfinished if self._end == SPENT else _failed(describe(error))
        self._end = self._end or "the episode is over: a call after its end has no answer"
        self._asked.put(verdict)


def _failed(reason: str) -> Verdict:
    return Verdict(0.0, status="error", reason=reason)
