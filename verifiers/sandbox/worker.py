"""The trainer's side of a worker process: start it, ask it with a deadline, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
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
LONGEST_WAIT = 1e6  # seconds; poll() accepts at most 24 days
ANSWER_LIMIT = OUTPUT_LIMIT = 1 << 20  # bytes per verdict
LAST_WORDS = 200


class WorkerError(Exception):
    """The worker ended or had to be killed; the message says why."""


class WorkerTimeoutError(WorkerError):
    """The worker did not answer in time."""


class Worker:
    """A separate process for a verifier, which `bring` sends there.

    Args:
        memory_mb: limit on its address space, in MiB.

    Raises:
        WorkerError: if the process cannot be started.
    """

    def __init__(self, memory_mb: int) -> None:
        self._words, self._printed, self._asked = b"", 0, 0
        self._fault: WorkerError | None = None  # in its output
        self._reading = threading.Lock()  # of its output
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
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._listener = threading.Thread(target=self._listen, name="rlenv-output", daemon=True)
        self._listener.start()

    def bring(self, verifier: bytes) -> None:
        """Send the user's modules and a verifier, pickled in this order, to the worker.

        Raises:
            WorkerError: if the verifier cannot be unpickled there.
        """
        answer = self.ask(verifier, START_SECONDS)
        if answer.get("status") != "ready":
            raise WorkerError(f"the verifier cannot be moved to a worker process: {answer.get('reason')}")

    def ask(self, message: bytes, seconds: float) -> dict[str, Any]:
        """Return the worker's answer to a message.

        Raises:
            WorkerTimeoutError: if there is none after this many seconds; the worker has been killed then.
            WorkerError: if the worker died, or was killed because its output is too long or not an answer.
        """
        limit = min(seconds, LONGEST_WAIT)
        deadline, self._printed = time.monotonic() + limit, 0
        self._asked += 1
        try:
            self._pipe.settimeout(limit)
            self._pipe.sendall(HEADER.pack(self._asked, len(message)) + message)
            answer = self._answer(deadline)
            self._count_output()  # all of it that came before the answer
            if self._fault is None:
                return answer
            fault = self._fault
        except TimeoutError:
            fault = WorkerTimeoutError(f"no answer within {seconds:g} s")
        except (EOFError, OSError):
            fault = self._fault or WorkerError(self._end())
        except Exception as error:  # such as an answer that is not JSON
            fault = WorkerError(f"asking the worker failed: {describe(error)}")
        self.kill()
        raise fault

    def stop(self) -> None:
        """Kill the worker and everything it started; a caller that waits for an answer gets a `WorkerError`."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """Kill the worker and everything it started, and close its pipes."""
        self.stop()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # the supervisor was stopped or slowed down
            self._clear_away()
        self._listener.join(PATIENCE)
        self._pipe.close()

    def _clear_away(self) -> None:
        """Kill everything below the supervisor, then the supervisor, which adopts orphans."""
        deadline = time.monotonic() + CLEAR_SECONDS
        while (left := descendants(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answer(self, deadline: float) -> dict[str, Any]:
        """Read the answer to the last message; drop late answers to earlier ones."""
        while True:
            number, length = HEADER.unpack(self._read(HEADER.size, deadline))
            if number > self._asked:
                raise ValueError("the worker answered a question that was not asked")
            if length > ANSWER_LIMIT:
                raise ValueError(f"the worker's answer has {length} bytes; allowed: {ANSWER_LIMIT}")
            body = self._read(length, deadline)
            if number == self._asked:
                answer = json.loads(body)
                if not isinstance(answer, dict):
                    raise ValueError("the worker's answer is not a mapping")
                return answer

    def _read(self, size: int, deadline: float) -> bytes:
        received = b""
        while len(received) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._pipe.settimeout(left)
            part = self._pipe.recv(size - len(received))
            if not part:
                raise EOFError
            received += part
        return received

    def _listen(self) -> None:
        """Read the verifier's output to its end, also while nobody asks."""
        readable = select.poll()  # select() does not support descriptors above 1023
        readable.register(self._output, select.POLLIN)
        while self._count_output():
            readable.poll()
        with self._reading:
            self._output.close()

    def _count_output(self) -> bool:
        """Count the bytes printed by now, keep the last ones, and end a verifier of too many; False at their end."""
        with self._reading:
            while not self._output.closed:
                printed = self._output.read(1 << 16)
                if not printed:
                    return printed is None  # there may be more
                self._printed += len(printed)
                self._words = (self._words + printed)[-LAST_WORDS:]
                if self._printed > OUTPUT_LIMIT:
                    self._fault = WorkerError(f"the worker printed more than {OUTPUT_LIMIT} bytes")
                    self.stop()
                    return True
            return False

    def _end(self) -> str:
        """Return how a worker ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._listener.join(PATIENCE)
        words = " ".join(self._words.decode("utf-8", "replace").split())
        self.kill()
        code = self._process.returncode
        number = -code if code < 0 else code - 128
        how = f"was killed by signal {number}" if number > 0 else f"exited with code {code}"
        return f"the worker {how}" + (f": {words}" if words else "")
