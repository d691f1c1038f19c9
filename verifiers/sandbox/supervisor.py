"""A worker is two processes: a supervisor that runs no user code, and below it the process with the verifier.

On Linux the supervisor adopts every orphan of the worker, so it can kill them all: when the worker ends, or the trainer
closes the control pipe or dies, everything below the supervisor is killed. This file runs by path, in a bare
interpreter, as the supervisor; the worker imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import select
import signal
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HEADER = struct.Struct(">QI")  # the number of a message, which its answer repeats, and the length of the body
BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlenv.verifiers.sandbox.supervisor import work; work(int(sys.argv[2]))"
)


def supervise(path: str, pipe: int, memory_mb: int) -> None:
    """Start the worker; when it ends or the control pipe (standard input) closes, kill everything that is left.

    Args:
        path: the trainer's module search path, as JSON.
        pipe: file descriptor of the socket that the worker reads from and writes to.
        memory_mb: limit on the worker's address space, in MiB.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    worker = os.fork()
    if worker == 0:
        _become_worker(path, pipe, memory_mb)
    os.close(pipe)
    status = None
    while status is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready:
            break
        os.read(woken, 64)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == worker else status
    _kill_all(worker)
    os._exit(0 if status is None else _exit_code(status))


def _become_worker(path: str, pipe: int, memory_mb: int) -> None:
    import resource

    os.setpgid(0, 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS has this limit but refuses to set it
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # there is one worker per core
    # Python warns programmers, but where a verifier compiles a text of the model, nobody can mend it.
    os.execv(sys.executable, [sys.executable, "-P", "-W", "ignore", "-c", BOOT, path, str(pipe)])


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill_all(worker: int) -> None:
    """Kill the worker's group and all descendants of this process."""
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        select.select([], [], [], 0.002)


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


# The worker.


def work(pipe: int) -> None:
    """Read a verifier and then problems with completions; write a verdict for each, as JSON.

    If a verifier forks and the child returns here, the child exits and the parent answers.

    Args:
        pipe: file descriptor of a socket with pickles, each after its header; for the answers, in the same frames.
    """
    worker = os.getpid()
    os.set_inheritable(pipe, False)
    source = os.fdopen(pipe, "rb")
    verifier = None
    while True:
        header = source.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        number, length = HEADER.unpack(header)
        body = source.read(length)
        raised: BaseException | None = None
        try:
            if verifier is None:
                _, verifier = pickle.loads(body)
                answer: dict[str, object] = {"status": "ready"}
            else:
                answer = _answer(verifier, *pickle.loads(body))
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: this process goes on
            answer, raised = _failure(error), error
        if os.getpid() != worker:
            _leave(raised)
        answer["leftover"] = _has_children() or _has_programs()
        message = json.dumps(answer).encode()
        os.write(pipe, HEADER.pack(number, len(message)) + message)


def _leave(error: BaseException | None) -> NoReturn:
    """Exit the child of a fork with the exit code that Python would use."""
    code = error.code if isinstance(error, SystemExit) else None if error is None else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed
            stream.flush()
    os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)


def _answer(verifier: Any, problem: Any, said: Any, *out_of_budget: bool) -> dict[str, object]:
    """Return the verdict on a completion, or the reply to the last turn of a dialogue, as plain data."""
    if not out_of_budget:
        from ..base import checked

        return _plain(*checked(verifier, verifier.verify_batch([problem], [said]), 1))
    from ..dialogues import replay

    reply = replay(verifier, problem, said, *out_of_budget)
    verdict = None if reply.verdict is None else _plain(reply.verdict)
    counts = {name: int(count) for name, count in reply.counts.items()}
    return {"content": reply.content, "reward": float(reply.reward), "verdict": verdict, "counts": counts}


def _failure(error: BaseException) -> dict[str, object]:
    from ..base import MiscountError, describe

    if isinstance(error, MiscountError):
        return {"miscount": str(error)}
    return {"status": "error", "reason": describe(error)}


def _plain(verdict: Any) -> dict[str, object]:
    from ..base import REASON_LENGTH

    return {
        "reward": float(verdict.reward),
        "parts": {str(name): float(value) for name, value in verdict.parts.items()},
        "status": verdict.status,
        "reason": verdict.reason[:REASON_LENGTH],
        "success": None if verdict.success is None else bool(verdict.success),
    }


def _has_children() -> bool:
    """Tell whether the verifier has left processes running."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _has_programs() -> bool:
    """Tell whether the thread of a program (`dialogues/program_run.py`) goes on that was given up."""
    import threading  # the supervisor has no use for it

    return any(thread.name == "rlenv-program" for thread in threading.enumerate())


if __name__ == "__main__":
    supervise(sys.argv[1], *map(int, sys.argv[2:]))
