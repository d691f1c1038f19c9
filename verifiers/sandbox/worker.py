"""The trainer's side of a worker process: start it, ask it with a deadline, kill it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..base import describe
from . import supervisor
from .supervisor import HEADER, descendants

START_SECONDS = 60.0  # to import and unpickle the verifier
PATIENCE = 0.25  # for the supervisor to kill everything below it; after that the trainer does
END_SECONDS = 5.0  # for the supervisor to report how the worker ended
CLEAR_SECONDS = 10.0  # after which processes that cannot be killed are left
ANSWER_LIMIT = OUTPUT_LIMIT = 1 << 20  # bytes per verdict
LAST_WORDS = 200
MOMENT = 0.002  # seconds between two looks at a process that ends


class WorkerError(Exception):
    """The worker ended or had to be killed; the message says why."""


class WorkerTimeoutError(WorkerError):
    """The worker did not answer in time."""


class Worker:
    """A separate process for a verifier, which `bring` sends there; the running event loop reads what it writes.

    Args:
        memory_mb: limit on its address space, in MiB.

    Raises:
        WorkerError: if the process cannot be started.
    """

    def __init__(self, memory_mb: int) -> None:
        self._words, self._printed, self._asked = b"", 0, 0
        self._fault: WorkerError | None = None  # in its output
        with contextlib.ExitStack() as unless_started:
            try:
                self._pipe, theirs = map(unless_started.enter_context, socket.socketpair())
                path = json.dumps(sys.path, default=str)
                command = [sys.executable, "-I", "-S", "-B", str(Path(supervisor.__file__)), path]
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(memory_mb)],
                    stdin=subprocess.PIPE,  # the control pipe: closing it kills the worker
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C reaches the trainer only
                )
            except Exception as error:  # no descriptors, no memory, no processes, no interpreter
                raise WorkerError(f"a worker process cannot be started: {describe(error)}") from error
            theirs.close()
            unless_started.pop_all()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._control, self._output, self._loop = self._process.stdin, self._process.stdout, asyncio.get_running_loop()
        self._pipe.setblocking(False)
        os.set_blocking(self._output.fileno(), False)
        self._loop.add_reader(self._output, self._listen)

    async def bring(self, verifier: bytes) -> None:
        """Send the user's modules and a verifier, pickled in this order, to the worker.

        Raises:
            WorkerError: if the verifier cannot be unpickled there.
        """
        answer = await self.ask(verifier, START_SECONDS)
        if answer.get("status") != "ready":
            raise WorkerError(f"the verifier cannot be moved to a worker process: {answer.get('reason')}")

    async def ask(self, message: bytes, seconds: float) -> dict[str, Any]:
        """Return the worker's answer to a message.

        Raises:
            WorkerTimeoutError: if there is none after this many seconds; the worker has been killed then.
            WorkerError: if the worker died, or was killed because its output is too long or not an answer.
        """
        self._asked, self._printed = self._asked + 1, 0
        try:
            async with asyncio.timeout(seconds):
                await self._loop.sock_sendall(self._pipe, HEADER.pack(self._asked, len(message)) + message)
                answer = await self._answer()
            self._listen()  # to all of it that came before the answer
            if self._fault is None:
                return answer
            fault = self._fault
        except TimeoutError:
            fault = WorkerTimeoutError(f"no answer within {seconds:g} s")
        except (EOFError, OSError):
            fault = self._fault or WorkerError(await self._end())
        except Exception as error:  # such as an answer that is not JSON
            fault = WorkerError(f"asking the worker failed: {describe(error)}")
        await self.kill()
        raise fault

    def stop(self) -> None:
        """Kill the worker and everything it started; a caller that waits for an answer gets a `WorkerError`."""
        self._control.close()

    async def kill(self) -> None:
        """Kill the worker and everything it started, and close its pipes."""
        self.stop()
        if not await self._ended(PATIENCE):  # the supervisor was stopped or slowed down
            await self._clear_away()
        if not self._output.closed:
            self._loop.remove_reader(self._output)
            self._output.close()
        self._pipe.close()

    async def _ended(self, seconds: float) -> bool:
        """Wait for the supervisor to end; tell whether it did."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(MOMENT)
        return self._process.returncode is not None

    async def _clear_away(self) -> None:
        """Kill everything below the supervisor, then the supervisor, which adopts orphans."""
        deadline = time.monotonic() + CLEAR_SECONDS
        while (left := descendants(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(MOMENT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._ended(math.inf)

    async def _answer(self) -> dict[str, Any]:
        """Read the answer to the last message; drop late answers to earlier ones."""
        while True:
            number, length = HEADER.unpack(await self._read(HEADER.size))
            if number > self._asked:
                raise ValueError("the worker answered a question that was not asked")
            if length > ANSWER_LIMIT:
                raise ValueError(f"the worker's answer has {length} bytes; allowed: {ANSWER_LIMIT}")
            body = await self._read(length)
            if number == self._asked:
                answer = json.loads(body)
                if not isinstance(answer, dict):
                    raise ValueError("the worker's answer is not a mapping")
                return answer

    async def _read(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = await self._loop.sock_recv(self._pipe, size - len(received))
            if not part:
                raise EOFError
            received += part
        return received

    def _listen(self) -> None:
        """Count the bytes that the verifier has printed, keep the last ones, and end a verifier of too many."""
        while not self._output.closed and (printed := self._output.read(1 << 16)) is not None:
            if not printed:
                self._loop.remove_reader(self._output)
                return
            self._printed += len(printed)
            self._words = (self._words + printed)[-LAST_WORDS:]
            if self._printed > OUTPUT_LIMIT:
                self._fault = WorkerError(f"the worker printed more than {OUTPUT_LIMIT} bytes")
                self.stop()
                return

    async def _end(self) -> str:
        """Return how a worker ended by itself."""
        await self._ended(END_SECONDS)
        self._listen()
        words = " ".join(self._words.decode("utf-8", "replace").split())
        await self.kill()
        code = self._process.returncode
        number = -code if code < 0 else code - 128
        how = f"was killed by signal {number}" if number > 0 else f"exited with code {code}"
        return f"the worker {how}" + (f": {words}" if words else "")
