"""Runs a verifier in worker processes: it may hang, crash, print without end or leak, and training goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import cloudpickle

from rlenv._checks import check_count, check_number
from rlenv._loop import begin, runs_in

from ..base import MiscountError, Problem, Reply, Verdict, Verifier, describe
from ..plugins.user_code import CODE
from .worker import Worker, WorkerError, WorkerTimeoutError

MEMORY_MB = 2048
LOOP = "workers"
Reader = Callable[[dict[str, Any]], Any]  # makes a verdict or a reply of a worker's answer


class Isolated:
    """Worker processes that run a verifier, one completion at a time in each.

    A verdict that takes too long has the status `timeout`: its worker is killed with everything it started, and
    replaced. If the verifier raises, exits, returns nonsense, prints without end or asks for too much memory, the
    status is `error`. Verdicts come in the order of the completions. Only a `MiscountError` is raised.

    Args:
        verifier: sent to the workers with cloudpickle; its verdicts come back as plain data.
        workers: number of processes; None for one per core. They start when they are needed.
        timeout: seconds per verdict; None for the timeout of the verifier's `execution`.
        memory_mb: memory of each worker, in MiB; None for 2048.

    Raises:
        ValueError: for a setting out of range, or a verifier that cannot be pickled.
    """

    def __init__(
        self, verifier: Verifier, workers: int | None = None, timeout: float | None = None, memory_mb: int | None = None
    ) -> None:
        workers = check_count("verifier_workers", available_cores() if workers is None else workers)
        memory_mb = check_count("verifier_memory_mb", MEMORY_MB if memory_mb is None else memory_mb)
        timeout = verifier.execution.timeout if timeout is None else timeout
        timeout = check_number("verifier_timeout", timeout, 0, above=True)
        try:
            payload = cloudpickle.dumps((CODE, verifier))  # in this order: the modules first
        except Exception as error:  # whatever a user's object raises when it is pickled
            name = getattr(verifier, "name", type(verifier).__name__)  # of a reward function its own
            advice = "make it when it is first used, or pass verifier_workers=0"
            raise ValueError(f"{name} cannot be moved to worker processes: {error}; {advice}") from error
        self.verifier, self.workers, self.timeout, self.memory_mb = verifier, workers, timeout, memory_mb
        self._workers = _Workers(payload, workers, timeout, memory_mb)
        self._finalizer = weakref.finalize(self, self._workers.close)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.verifier, self.workers, self.timeout, self.memory_mb)

    def submit(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Future[Verdict]]:
        """Give completions to the workers and return at once; the futures raise nothing but a `MiscountError`.

        Raises:
            RuntimeError: if it was closed.
        """
        return [self._workers.submit(pair, _verdict) for pair in zip(problems, completions, strict=True)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""
        return self.verify_batch([problem], [completion])[0]

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions, in order."""
        return [future.result() for future in self.submit(problems, completions)]

    def ask(self, asked: Sequence[tuple[Problem, Sequence[str | None]]]) -> list[Future[Reply]]:
        """Have the workers reply to the last turns of dialogues, and return at once; see `submit` and `reply_to`.

        Workers keep nothing of a dialogue: each gets the problem and all turns, and replays them. Instead of a reply
        that fails there is the verifier's (`Turns.instead`), else a verdict that says how, as for a completion.

        Args:
            asked: of each dialogue the problem and its turns so far, of which the last may be None.
        """
        questions = [(problem, tuple(turns)) for problem, turns in asked]
        return [self._workers.submit(each, partial(_reply, self.verifier, each[1][-1])) for each in questions]

    def close(self) -> None:
        """Kill the workers; verdicts that are still being waited for get the status "error"."""
        self._finalizer()


class _Workers:
    """Worker processes, driven by one event loop; they start when they are needed."""

    def __init__(self, verifier: bytes, workers: int, timeout: float, memory_mb: int) -> None:
        self.verifier, self.timeout, self.memory_mb, self.most = verifier, timeout, memory_mb, workers
        self.free = asyncio.Semaphore(workers)
        self.running: set[Worker] = set()
        self.idle: list[Worker] = []
        self.lock = threading.RLock()  # garbage collection may close a pool in any thread
        self.used = self.closed = False
        self.owner = os.getpid()  # a child of a fork has copies of the pipes, and must leave them alone

    def submit(self, question: tuple[Any, ...], read: Reader) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            message = pickle.dumps(question)
        except Exception as error:  # metadata may hold anything
            future.set_result(read(_failure(f"the problem cannot be pickled: {describe(error)}")))
            return future
        with self.lock:
            if self.closed or self.owner != os.getpid():
                raise RuntimeError("the verifier was closed, or is another process's: a fork needs one of its own")
            self.used = True
            begin(self._judge(future, message, read), LOOP)
        return future

    def close(self) -> None:
        with self.lock:
            begun, self.closed = self.used and not self.closed, True
        if begun and self.owner == os.getpid():
            ended = begin(self._end(), LOOP)
            if not runs_in(LOOP):
                ended.result()

    async def _end(self) -> None:
        for worker in self.running:
            worker.stop("the verifier was closed")  # interrupts the verdict in progress
        for _ in range(self.most):  # after all that wait for a worker
            await self.free.acquire()
        for worker in self.idle:
            await self._retire(worker)

    async def _judge(self, future: Future[Any], message: bytes, read: Reader) -> None:
        """Ask a worker that is free. Every future gets a verdict or a reply: a caller may wait for it."""
        async with self.free:
            if not future.set_running_or_notify_cancel():
                return
            worker = self.idle.pop() if self.idle else None
            try:
                if self.closed:
                    raise WorkerError("the verifier was closed")
                worker = worker or await self._hire()
                answer = await worker.ask(message, self.timeout)
                leftover = answer.pop("leftover")  # processes that the verifier left running are killed with the worker
                if "miscount" in answer:
                    future.set_exception(MiscountError(answer["miscount"]))
                else:
                    future.set_result(read(answer))
            except Exception as error:
                gone, leftover = isinstance(error, WorkerError), True
                reason = str(error) if gone else f"the worker's answer is not a verdict: {describe(error)}"
                future.set_result(read(_failure(reason, late=isinstance(error, WorkerTimeoutError))))
            if leftover and worker is not None:
                await self._retire(worker)
                worker = None
            if worker is None and not self.closed:  # now, so that the next verdict need not wait for it
                with contextlib.suppress(WorkerError):  # the next verdict reports it
                    worker = await self._hire()
            if worker is not None:
                self.idle.append(worker)

    async def _hire(self) -> Worker:
        worker = Worker(self.memory_mb)
        self.running.add(worker)
        try:
            await worker.bring(self.verifier)
        except WorkerError:
            await self._retire(worker)
            raise
        return worker

    async def _retire(self, worker: Worker) -> None:
        self.running.discard(worker)
        await worker.kill()


def _failure(reason: str, late: bool = False) -> dict[str, Any]:
    return {"status": "timeout" if late else "error", "reason": reason}


def _verdict(answer: dict[str, Any]) -> Verdict:
    return Verdict(**{"reward": 0.0, **answer})


def _reply(verifier: Verifier, turn: str | None, answer: dict[str, Any]) -> Reply:
    if "status" in answer:  # it failed
        try:
            other = None if turn is None else verifier.turns.in_place(turn, answer["reason"])
        except (Exception, SystemExit) as error:  # whatever a plugin raises
            other, answer = None, _failure(describe(error))
        return Reply(verdict=_verdict(answer)) if other is None else other
    verdict = answer.pop("verdict")
    return Reply(**answer, verdict=None if verdict is None else _verdict(verdict))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
