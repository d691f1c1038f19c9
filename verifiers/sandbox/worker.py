"""The trainer's side of a worker process: start it, ask it with a deadline, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
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
LONGEST_WAIT = 3600.0  # seconds; poll() accepts at most 24 days
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
        self._jobs = self._results = self._output = -1
        self._words, self._printed, self._output_open, self._asked = b"", 0, True, 0
        theirs: list[int] = []
        try:
            jobs, self._jobs = os.pipe()
            theirs.append(jobs)
            self._results, results = os.pipe()
            theirs.append(results)
            self._output, output = os.pipe()
            theirs.append(output)
            os.set_blocking(self._jobs, False)
            path = json.dumps(sys.path, default=str)
            command = [sys.executable, "-I", "-S", "-B", str(Path(supervisor.__file__)), path]
            self._process = subprocess.Popen(
                [*command, str(jobs), str(results), str(memory_mb)],
                stdin=subprocess.PIPE,  # the control pipe: closing it kills the worker
                stdout=output,
                stderr=output,
                pass_fds=(jobs, results),
                start_new_session=True,  # Ctrl-C reaches the trainer only
            )
        except Exception as error:  # no descriptors, no memory, no processes, no interpreter
            self._close()
            raise WorkerError(f"a worker process cannot be started: {describe(error)}") from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)

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
        deadline, self._printed = time.monotonic() + seconds, 0
        self._asked += 1
        try:
            self._send(HEADER.pack(self._asked, len(message)) + message, deadline)
            return self._answer(deadline)
        except TimeoutError:
            self.kill()
            raise WorkerTimeoutError(f"no answer within {seconds:g} s") from None
        except EOFError:
            raise WorkerError(self._end()) from None
        except WorkerError:
            self.kill()
            raise
        except Exception as error:  # such as an answer that is not JSON
            self.kill()
            raise WorkerError(f"asking the worker failed: {describe(error)}") from error

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
        self._close()

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

    def _close(self) -> None:
        for name in ("_jobs", "_results", "_output"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _answer(self, deadline: float) -> dict[str, Any]:
        """Read the answer to the last message; drop late answers to earlier ones."""
        while True:
            number, length = HEADER.unpack(self._receive(HEADER.size, deadline))
            if number > self._asked:
                raise WorkerError("the worker answered a question that was not asked")
            if length > ANSWER_LIMIT:
                raise WorkerError(f"the worker's answer has {length} bytes; allowed: {ANSWER_LIMIT}")
            body = self._receive(length, deadline)
            if number == self._asked:
                answer = json.loads(body)
                if not isinstance(answer, dict):
                    raise WorkerError("the worker's answer is not a mapping")
                return answer

    def _send(self, message: bytes, deadline: float) -> None:
        rest = memoryview(message)
        while rest:
            self._wait(deadline, writing=True)
            with contextlib.suppress(BlockingIOError):
                try:
                    rest = rest[os.write(self._jobs, rest) :]
                except BrokenPipeError:
                    raise EOFError from None

    def _receive(self, size: int, deadline: float) -> bytes:
        received = b""
        while len(received) < size:
            self._wait(deadline)
            part = os.read(self._results, size - len(received))
            if not part:
                raise EOFError
            received += part
        return received

    def _wait(self, deadline: float, writing: bool = False) -> None:
        """Wait until the pipe for messages is ready; meanwhile read the verifier's output."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            poll = select.poll()  # select() does not support descriptors above 1023
            poll.register(self._jobs if writing else self._results, select.POLLOUT if writing else select.POLLIN)
            if self._output_open:
                poll.register(self._output, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(min(left, LONGEST_WAIT) * 1000)}
            if self._output in ready:
                self._listen()
            if ready - {self._output}:
                return

    def _listen(self) -> None:
        """Read the verifier's output: count its bytes and keep its end."""
        printed = os.read(self._output, 1 << 16)
        if not printed:
            self._output_open = False
        self._printed += len(printed)
        self._words = (self._words + printed)[-LAST_WORDS:]
        if self._printed > OUTPUT_LIMIT:
            raise WorkerError(f"the worker printed more than {OUTPUT_LIMIT} bytes")

    def _end(self) -> str:
        """Clean up after a worker that ended, and return how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with contextlib.suppress(OSError, WorkerError):
            os.set_blocking(self._output, False)
            self._listen()
        words = " ".join(self._words.decode("utf-8", "replace").split())
        self.kill()
        code = self._process.returncode
        number = -code if code < 0 else code - 128
        how = f"was killed by signal {number}" if number > 0 else f"exited with code {code}"
        return f"the worker {how}" + (f": {words}" if words else "")
