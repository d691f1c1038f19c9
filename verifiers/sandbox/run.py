"""Runs untrusted Python programs: separate namespaces and root folder, limits of time and space that kill."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import marshal
import math
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_CLOCK = 10  # times the processor time
_SPENT = 128 + getattr(signal, "SIGXCPU", 24)  # the code of a program that has spent its processor time
_START_S = 20.0  # generous for a busy machine; does not count as the program's time
_STOP_S = 10.0
_CODE_S = 0.5  # between the end of the output and that of the process
_CHUNK = 1 << 16
_READY = b"ready"
_PIDFD_SEND_SIGNAL = 424  # signal.pidfd_send_signal is missing from a Python that was built on an old system


class SandboxError(RuntimeError):
    """The sandbox failed; this is not the program's fault."""


@dataclass(frozen=True)
class ProgramLimits:
    """Limits of a program.

    Args:
        seconds: processor time of the program, user and system; the kernel counts whole seconds, rounded up.
        clock: seconds of the clock from the moment the program starts, for those that sleep; None for 10 times
            `seconds`, so that a busy machine has no effect on what ends in time.
        memory: bytes of address space. Isolated programs cannot start processes, so this is the total, in addition to
            `disk`; without isolation it is the limit per process.
        processes: threads at a time; not limited without isolation.
        disk: bytes in /tmp, in total and per file.
        output: bytes that are read from standard output and standard error.
    """

    seconds: float = 5.0
    clock: float | None = None
    memory: int = 256 << 20
    processes: int = 16
    disk: int = 16 << 20
    output: int = 1 << 20

    @property
    def deadline(self) -> float:
        """Seconds of the clock that the program has."""
        return _CLOCK * self.seconds if self.clock is None else self.clock


@dataclass(frozen=True)
class Outcome:
    """The output of a program and how it ended.

    Args:
        output: standard output, up to the limit.
        errors: standard error, up to the limit.
        ended: "itself" (in any way), or killed after a "timeout", of the processor or the clock, or a "flood" of
            output.
        code: exit code of a program that ended itself, 128 and the signal if one killed it; None if unknown. To be
            shown, never judged: a program can choose any.
    """

    output: bytes
    errors: bytes
    ended: Literal["itself", "timeout", "flood"]
    code: int | None = None


def run(
    files: Mapping[str, str], stdin: bytes = b"", limits: ProgramLimits | None = None, isolated: bool = True
) -> Outcome:
    """Run a Python program until it ends or reaches a limit; none of its processes survives.

    The program sees the standard library and a /tmp that holds only its files; no network, no installed packages, no
    environment variables, no /proc. It may start threads but no processes. Without isolation it is an ordinary process
    of this user in a temporary folder, with the same limits except on processes and threads, and only its process group
    is killed.

    Args:
        files: texts by name; the first one is the program, the others are next to it.
        stdin: standard input.
        limits: of the sandbox.
        isolated: whether it runs in separate namespaces.

    Raises:
        SandboxError: if the program cannot be started, or it is unclear whether it ended.
    """
    limits = limits or ProgramLimits()
    times = {"seconds": math.ceil(limits.seconds), "clock": limits.deadline}
    job = asdict(limits) | times | {"files": dict(files), "isolated": isolated}
    text = marshal.dumps(job)
    message = len(text).to_bytes(4, "big") + text + stdin
    with contextlib.ExitStack() as stack:
        folder = "/" if isolated else stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        status, status_end = socket.socketpair()
        stack.enter_context(status)
        with status_end:
            try:
                process = _launch(folder, status_end.fileno())
            except OSError as error:
                raise SandboxError(f"the sandbox cannot be started: {error}") from error
        namespace: list[int] = []
        stack.callback(_end, process, namespace)
        return _talk(process, status, namespace, message, limits)


@functools.cache
def unavailable() -> str:
    """Return why programs cannot be isolated on this machine; "" if they can. This runs a test program once."""
    if sys.platform != "linux":
        return f"namespaces need Linux, this is {sys.platform}"
    try:
        outcome = run({"main.py": "print('inside')"}, limits=ProgramLimits(seconds=_START_S, clock=_START_S))
    except SandboxError as error:
        return str(error)
    return "" if outcome.output == b"inside\n" else f"Python does not run in it: {_last_line(outcome.errors)}"


def _launch(folder: str, status: int) -> subprocess.Popen[bytes]:
    """Start the launcher in a new interpreter, because a process with threads must not fork and continue in Python."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", _LAUNCHER, str(status)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(status,),
        env={},
        cwd=folder,
        start_new_session=True,
    )


def _talk(
    process: subprocess.Popen[bytes],
    channel: socket.socket,
    namespace: list[int],
    message: bytes,
    limits: ProgramLimits,
) -> Outcome:
    """Send the job and collect the output until all pipes are closed or a limit is reached."""
    assert process.stdin and process.stdout and process.stderr
    stdin, stdout, stderr = process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()
    status = channel.fileno()
    received = {status: bytearray(), stdout: bytearray(), stderr: bytearray()}
    ended: Literal["itself", "timeout", "flood"] = "itself"
    deadline = time.monotonic() + _START_S
    os.set_blocking(stdin, False)
    with selectors.DefaultSelector() as selector:
        for pipe in received:
            selector.register(pipe, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_WRITE)
        unread = memoryview(message)
        while ended == "itself" and received.keys() & selector.get_map().keys():
            left = deadline - time.monotonic()
            if left <= 0:
                ended = "timeout"
                break
            for key, _ in selector.select(left):
                if key.fd == stdin:
                    unread = _send(stdin, unread)
                    if not unread:
                        selector.unregister(stdin)
                        process.stdin.close()
                elif chunk := _receive(channel, namespace) if key.fd == status else os.read(key.fd, _CHUNK):
                    received[key.fd] += chunk
                    if len(received[key.fd]) > limits.output:
                        ended = "flood"
                else:
                    selector.unregister(key.fd)
                    if key.fd == status and received[status] == _READY:
                        deadline = time.monotonic() + limits.deadline
    if received[status] != _READY:
        reason = bytes(received[status] or received[stderr])
        raise SandboxError(_last_line(reason) or f"the sandbox did not start within {_START_S:g} s")
    if ended == "itself":
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its output and goes on
            process.wait(_CODE_S)
    code = process.returncode if process.returncode is None or process.returncode >= 0 else 128 - process.returncode
    if ended == "itself" and code == _SPENT:
        ended = "timeout"
    return Outcome(bytes(received[stdout][: limits.output]), bytes(received[stderr][: limits.output]), ended, code)


def _send(pipe: int, message: memoryview) -> memoryview:
    """Write as many bytes as fit into the pipe and return the rest; empty if the reader has gone."""
    try:
        return message[os.write(pipe, message[:_CHUNK]) :]
    except BrokenPipeError:
        return memoryview(b"")


def _receive(status: socket.socket, namespace: list[int]) -> bytes:
    """Read the launcher's status, and keep the pidfd that comes with it."""
    text, descriptors, _, _ = socket.recv_fds(status, _CHUNK, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    namespace += descriptors
    return text


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _end(process: subprocess.Popen[bytes], namespace: list[int]) -> None:
    """Kill the launcher and every process that it started, also after an error.

    Args:
        process: the launcher: the program itself or, with isolation, the guard.
        namespace: the pidfd of process 1 of the program's namespace; empty if none came.
    """
    try:
        for first in namespace:
            ctypes.CDLL(None).syscall(_PIDFD_SEND_SIGNAL, first, int(signal.SIGKILL), None, 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)  # the guard reaps process 1 and ends
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # guard and process 1, even if they are stopped
            process.wait()
        for first in namespace:
            poll = select.poll()
            poll.register(first, select.POLLIN)
            if not poll.poll(_STOP_S * 1000):
                raise SandboxError(f"the program is still running {_STOP_S:g} s after it was killed")
    finally:
        for first in namespace:
            os.close(first)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
