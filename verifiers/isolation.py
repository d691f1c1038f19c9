"""A verifier in worker processes: it may hang, crash, flood or leak, and the trainer goes on."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import cloudpickle

from .base import Problem, Verdict, Verifier
from .posed import Posed
from .worker import Worker, WorkerError, WorkerTimeoutError
from .worker_process import describe

MEMORY_MB = 2048
INHERITED = (
    "alphabet", "prompt_length", "answer_length", "success_reward", "reward_range", "levels", "slow", "does_not_catch",
    "needs",
)  # fmt: skip


def isolate(
    verifier: Verifier, workers: int | None = None, timeout: float | None = None, memory_mb: int | None = None
) -> Verifier:
    """Return the verifier in worker processes where it wants that or the user does, else the verifier itself.

    Args:
        verifier: any.
        workers: how many; 0 for none, whatever the verifier wants; None for one a core.
        timeout: seconds a verdict may take; None for what the verifier says.
        memory_mb: of each worker, in MiB; None for 2048.

    Raises:
        ValueError: for a setting out of range.
    """
    wanted = verifier.isolated or any(setting is not None for setting in (workers, timeout, memory_mb))
    if workers == 0 or not wanted or isinstance(verifier, Isolated):
        return verifier
    return Isolated(verifier, workers, timeout, MEMORY_MB if memory_mb is None else memory_mb)


class Isolated(Posed):
    """Another verifier, judging in a pool of worker processes, one completion a time each.

    A verdict that takes too long is a `timeout`: the worker is killed with everything it started, and a new one takes
    its place. A verifier that raises, ends its process, returns nonsense, prints without end or asks for too much
    memory has `error`ed. The order of verdicts is that of the completions.

    Args:
        verifier: what judges; it travels to the workers with cloudpickle, and its answers come back as plain data.
        workers: how many; None for one a core. They start when they are needed.
        timeout: seconds a verdict may take; None for what the verifier says.
        memory_mb: of each worker, in MiB.

    Raises:
        ValueError: for a setting out of range, or a verifier that cannot be pickled.
    """

    isolated = True

    def __init__(
        self, verifier: Verifier, workers: int | None = None, timeout: float | None = None, memory_mb: int = MEMORY_MB
    ) -> None:
        workers = _cores() if workers is None else workers
        for name, value in (("verifier_workers", workers), ("verifier_memory_mb", memory_mb)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        timeout = verifier.timeout if timeout is None else timeout
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
            raise ValueError(f"verifier_timeout must be a positive number of seconds, got {timeout!r}")
        try:
            payload = cloudpickle.dumps(verifier)
        except Exception as error:  # whatever a user's object raises when it is pickled
            raise ValueError(f"{type(verifier).__name__} cannot be moved to worker processes: {error}") from error
        self.verifier, self.workers, self.timeout, self.memory_mb = verifier, workers, float(timeout), memory_mb
        self.poser = verifier  # posing problems is not dangerous: that stays here
        for name in INHERITED:
            setattr(self, name, getattr(verifier, name))
        self._pool = _Pool(payload, workers, self.timeout, memory_mb)
        self._finalizer = weakref.finalize(self, self._pool.close)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.verifier, self.workers, self.timeout, self.memory_mb)

    def submit(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Future[Verdict]]:
        """Hand completions to the workers and return at once; the futures never raise."""
        return [self._pool.submit(pair) for pair in zip(problems, completions, strict=True)]

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions in parallel."""
        return [future.result() for future in self.submit(problems, completions)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion."""
        return self.verify_batch([problem], [completion])[0]

    def close(self) -> None:
        """Kill the workers; verdicts that are still asked for are errors."""
        self._finalizer()

    def is_success(self, verdict: Verdict) -> bool:
        """Tell what the verifier counts as solved."""
        return self.verifier.is_success(verdict)


class _Pool:
    """Threads that each keep one worker busy; they wait on pipes, so the interpreter's lock is free meanwhile."""

    def __init__(self, verifier: bytes, workers: int, timeout: float, memory_mb: int) -> None:
        self.verifier, self.workers, self.timeout, self.memory_mb = verifier, workers, timeout, memory_mb
        self.jobs: queue.SimpleQueue[tuple[Future[Verdict], bytes] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.busy: set[Worker] = set()
        self.lock = threading.RLock()  # a pool that is collected as garbage closes wherever the collector runs
        self.waiting = 0
        self.closed = False

    def submit(self, pair: tuple[Problem, str]) -> Future[Verdict]:
        future: Future[Verdict] = Future()
        try:
            message = pickle.dumps(pair)
        except Exception as error:  # whatever stands in a problem's metadata
            future.set_result(_failure(f"the problem cannot be pickled: {describe(error)}"))
            return future
        with self.lock:
            if self.closed:
                raise RuntimeError("the verifier was closed")
            if len(self.threads) < min(self.workers, self.waiting + 1) and (reason := self._grow()):
                future.set_result(_failure(reason))
                return future
            self.waiting += 1
            self.jobs.put((future, message))
        return future

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            workers = list(self.busy)
        for _ in self.threads:
            self.jobs.put(None)
        for worker in workers:
            worker.stop()  # ends a verdict that is being waited for
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join()

    def _grow(self) -> str:
        """Start a thread; return why nobody can judge if there is none."""
        thread = threading.Thread(target=self._serve, name="rlenv-verifier", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return "" if self.threads else describe(error)
        self.threads.append(thread)
        return ""

    def _serve(self) -> None:
        """Judge until the pool closes. Every future is waited for, so every one gets a verdict."""
        worker: Worker | None = None
        while (job := self.jobs.get()) is not None:
            future, message = job
            wanted = future.set_running_or_notify_cancel()
            if wanted:
                verdict, worker = self._judge(worker, message)
            with self.lock:
                self.waiting -= 1
            if wanted:
                future.set_result(verdict)
            if worker is None and not self.closed:  # the next verdict should not wait for a new worker
                with contextlib.suppress(WorkerError):  # the next verdict says why
                    worker = self._hire()
        if worker is not None:
            self._retire(worker)

    def _judge(self, worker: Worker | None, message: bytes) -> tuple[Verdict, Worker | None]:
        """Return a verdict, whatever happens, and the worker if it can judge again."""
        try:
            if self.closed:
                raise WorkerError("the verifier was closed")
            worker = worker or self._hire()
            answer = worker.ask(message, self.timeout)
            leftover = answer.pop("leftover")  # what the verifier started and did not end goes with its worker
            verdict = Verdict(**{"reward": 0.0, **answer})
        except WorkerError as gone:
            verdict, leftover = _failure(str(gone), late=isinstance(gone, WorkerTimeoutError)), True
        except Exception as error:
            verdict, leftover = _failure(f"the worker's answer is not a verdict: {describe(error)}"), True
        if leftover and worker is not None:
            self._retire(worker)
            worker = None
        return verdict, worker

    def _hire(self) -> Worker:
        worker = Worker(self.memory_mb)
        with self.lock:
            self.busy.add(worker)
            if self.closed:
                worker.stop()
        try:
            worker.bring(self.verifier)
        except WorkerError:
            self._retire(worker)
            raise
        return worker

    def _retire(self, worker: Worker) -> None:
        with self.lock:
            self.busy.discard(worker)
        worker.kill()


def _failure(reason: str, late: bool = False) -> Verdict:
    return Verdict(0.0, status="timeout" if late else "error", reason=reason)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
