"""Calls functions as root and as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ORDINARY = 65534
ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.executable).resolve()
NEW_MOUNTS, BIND, RECURSIVE, PRIVATE = 1 << 17, 4096, 16384, 1 << 18
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)


class OtherUser:
    """A process of a user that calls what it is sent: functions, which go there by their names."""

    def __init__(self, uid: int = ORDINARY) -> None:
        command = [PYTHON, "-B", __file__, str(uid), str(ROOT), *sys.path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")

    def send(self, function: Any, *args: Any, **options: Any) -> None:
        pickle.dump((function, args, options), self.process.stdin)
        self.process.stdin.flush()

    def receive(self) -> Any:
        worked, result = pickle.load(self.process.stdout)
        if not worked:
            raise result
        return result

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


_current: OtherUser | None = None


def call(function: Any, *args: Any, **options: Any) -> Any:
    """Call a function as the user of this test."""
    if not _current:
        return function(*args, **options)
    _current.send(function, *args, **options)
    return _current.receive()


def uid() -> int:
    return ORDINARY if _current else os.geteuid()


@contextlib.contextmanager
def calls_by(user: OtherUser | None) -> Iterator[None]:
    """Have `call` go to this user, None being the one who runs the tests."""
    global _current
    _current = user
    try:
        yield
    finally:
        _current = None


def run_here(
    files: dict[str, str], stdin: bytes = b"", isolated: bool = True, stop_s: float = 10, **limits: Any
) -> Any:
    from verifiers.sandbox import run as sandbox

    sandbox._STOP_S = stop_s  # how long it waits for a guard that does not end
    return sandbox.run(files, stdin, sandbox.Limits(**limits), isolated)


def run_at_once(programs: Sequence[str], isolated: bool = True, **limits: Any) -> list[Any]:
    """Run programs at the same time, each in a sandbox of this user."""
    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(lambda program: run_here({"main.py": program}, b"", isolated, **limits), programs))


def main() -> None:
    """Become the user and answer calls."""
    user = int(sys.argv[1])
    if user != os.geteuid():
        libc = ctypes.CDLL(None, use_errno=True)
        open_the_way(libc, [Path(sys.base_prefix).resolve(), PYTHON, ROOT])
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.prctl(4, 1)  # else /proc/self belongs to root
    sys.path[:] = sys.argv[2:]
    while True:
        try:
            function, args, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, function(*args, **options)
        except Exception as error:
            answer = False, error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def open_the_way(libc: ctypes.CDLL, paths: list[Path]) -> None:
    """Make paths reachable for everybody, in this mount namespace alone: closed folders above them are replaced."""

    def check(result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    check(libc.unshare(NEW_MOUNTS))
    check(libc.mount(None, b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None))
    sources = {path: os.open(path, os.O_PATH) for path in paths}
    for path in paths:
        for folder in reversed(path.parents):
            if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
                check(libc.mount(b"tmpfs", bytes(folder), b"tmpfs", ctypes.c_ulong(0), b"mode=755"))
    for path, source in sources.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if stat.S_ISDIR(os.fstat(source).st_mode) else path.touch()
            origin = f"/proc/self/fd/{source}".encode()
            check(libc.mount(origin, bytes(path), None, ctypes.c_ulong(BIND | RECURSIVE), None))
        os.close(source)


if __name__ == "__main__":
    main()
