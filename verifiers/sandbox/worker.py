"""The trainer's side of a worker process: start it, ask it with a deadline, kill it with everything it started.

What a verifier starts may outlive the worker if that crashes by itself, and has left the worker's process group.
"""

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
from .judging import HEADER

START_SECONDS = 60.0  # to import and unpickle the verifier
END_SECONDS = 5.0  # for a worker that has closed its pipe to end
CLEAR_SECONDS = 10.0  # after which processes that cannot be killed are left
ANSWER_LIMIT = OUTPUT_LIMIT = 1 << 20  # bytes per verdict
LAST_WORDS = 200
MOMENT = 0.002  # seconds between two looks at a process that ends
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # one worker per core
BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlenv.verifiers.sandbox.judging import work; work(*map(int, sys.argv[2:]))"
)


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
        self._words, self._printed = b"", 0
        self._fault: WorkerError | None = None  # why it was stopped
        with contextlib.ExitStack() as unless_started:
            try:
                self._pipe, theirs = map(unless_started.enter_context, socket.socketpair())
                # Python warns programmers, but where a verifier compiles a text of the model, nobody can mend it.
                command = [sys.executable, "-P", "-W", "ignore", "-c", BOOT, json.dumps(sys.path, default=str)]
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(memory_mb)],
                    env={**ONE_THREAD, **os.environ},
                    stdin=subprocess.DEVNULL,
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
        assert self._process.stdout is not None
        self._output, self._loop = self._process.stdout, asyncio.get_running_loop()
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
        self._printed = 0
        try:
            async with asyncio.timeout(seconds):
                await self._loop.sock_sendall(self._pipe, HEADER.pack(len(message)) + message)
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

    def stop(self, why: str = "the worker was stopped") -> None:
        """Ask no more: a caller that waits for an answer gets a `WorkerError`, and has the worker killed."""
        self._fault = self._fault or WorkerError(why)
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)

    async def kill(self) -> None:
        """Kill the worker and everything it started, and close its pipes.

        It is stopped first, so that it starts nothing more, and killed last, because it adopts orphans.
        """
        if self._output.closed:
            return
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + CLEAR_SECONDS
        while self._process.poll() is None and (left := descendants(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(MOMENT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._ended(math.inf)
        self._loop.remove_reader(self._output)
        self._output.close()
        self._pipe.close()

    async def _ended(self, seconds: float) -> None:
        """Wait for the worker to end."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(MOMENT)

    async def _answer(self) -> dict[str, Any]:
        (length,) = HEADER.unpack(await self._read(HEADER.size))
        if length > ANSWER_LIMIT:
            raise ValueError(f"the worker's answer has {length} bytes; allowed: {ANSWER_LIMIT}")
        answer = json.loads(await self._read(length))
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
                self._loop.remove_reader(self._output)
                self.stop(f"the worker printed more than {OUTPUT_LIMIT} bytes")
                return

    async def _end(self) -> str:
        """Return how a worker ended by itself."""
        await self._ended(END_SECONDS)
        self._listen()
        words = " ".join(self._words.decode("utf-8", "replace").split())
        await self.kill()
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"the worker {how}" + (f": {words}" if words else "")


def descendants(root: int) -> list[int]:
    """Return the living descendants of a process, from /proc; none if there is no /proc."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # it has ended, or is not a process
                pid, stat = int(entry.name), (entry / "stat").read_bytes()  # bytes, because a name need not be text
                state, parent = stat.rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    children.setdefault(int(parent), []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:  # the list grows in the loop
        found += children.get(pid, ())
    return found
