"""The worker's side of a worker process: it limits itself, and answers each question about a verifier."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import struct
import sys
from typing import Any

from ..base import REASON_LENGTH, MiscountError, checked, describe

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HEADER = struct.Struct(">I")  # the length of a message


def work(pipe: int, memory_mb: int) -> None:
    """Read a verifier and then problems with completions; write a verdict for each, as JSON.

    Each message has one answer. If a verifier forks and the child returns here, the child exits and the parent answers.

    Args:
        pipe: file descriptor of a socket with pickles, each after its header; for the answers, in the same frames.
        memory_mb: limit on the address space, in MiB.
    """
    _limit(memory_mb)
    worker = os.getpid()
    os.set_inheritable(pipe, False)
    source = os.fdopen(pipe, "rb")
    verifier = None
    while True:
        header = source.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        body = source.read(*HEADER.unpack(header))
        try:
            if verifier is None:
                _, verifier = pickle.loads(body)
                answer: dict[str, object] = {"status": "ready"}
            else:
                answer = _answer(verifier, *pickle.loads(body))
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: this process goes on
            if os.getpid() != worker:
                raise
            answer = _failure(error)
        if os.getpid() != worker:
            return
        answer["leftover"] = _has_children() or _has_programs()
        message = json.dumps(answer).encode()
        os.write(pipe, HEADER.pack(len(message)) + message)


def _limit(memory_mb: int) -> None:
    """Limit this process; on Linux it ends with the trainer, and adopts the orphans of what it starts."""
    import resource

    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS has this limit but refuses to set it
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))


def _answer(verifier: Any, problem: Any, said: Any) -> dict[str, object]:
    """Return the verdict on a completion, or the reply to the last of a dialogue's turns, as plain data."""
    if isinstance(said, str):
        return _plain(*checked(verifier, verifier.verify_batch([problem], [said]), 1))
    from ..dialogues import replay

    reply = replay(verifier, problem, said)
    verdict = None if reply.verdict is None else _plain(reply.verdict)
    counts = {name: int(count) for name, count in reply.counts.items()}
    return {"content": reply.content, "reward": float(reply.reward), "verdict": verdict, "counts": counts}


def _failure(error: BaseException) -> dict[str, object]:
    if isinstance(error, MiscountError):
        return {"miscount": str(error)}
    return {"status": "error", "reason": describe(error)}


def _plain(verdict: Any) -> dict[str, object]:
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
    import threading

    return any(thread.name == "rlenv-program" for thread in threading.enumerate())
