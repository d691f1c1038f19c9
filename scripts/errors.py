"""Which errors are printed in one line, and which are bugs that keep their traceback.

A full disk, a folder that is read-only or was deleted, and a closed terminal are one line each. They are recognized
here and not in every place that writes.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OURS = ("rlenv", "agents", "verifiers", "_rlenv_benchmarks", "_rlenv_labs", __name__.split(".")[0])
CPU_ALLOCATOR = "can't allocate memory"  # torch's on a CPU raises a plain RuntimeError
LOWER = {  # which setting to lower if the memory runs out, by phase of a run
    "acting": "--num-envs",
    "evaluation": "--eval-episodes",
    "warm start": "--micro-batch-tokens or --sft-batch-size",
    "training": "--micro-batch-tokens",
    "optimizer step": "the size of --model",
}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DISK = {*_FULL, errno.EROFS, errno.EIO}  # for any file
_RUST = re.compile(r"\(os error (\d+)\)")  # safetensors and tokenizers
_TORCH = re.compile(r"inline_container|PytorchStreamWriter|Parent directory .* does not exist")


def explain(error: BaseException) -> tuple[str, int] | None:
    """Return the line and the exit code for an error of the user or the disk; None for a bug, here or in a library."""
    if isinstance(error, ValueError) and _module(error).split(".")[0] in OURS:
        return str(error), 2
    if isinstance(error, RuntimeError):
        from agents import DivergedError, VerifierError  # already imported if raised

        if isinstance(error, (DivergedError, VerifierError)):
            return str(error), 1
    if is_out_of_memory(error):
        lower = f"lower {LOWER['training']} (training) or {LOWER['acting']} (acting)"
        return f"out of memory: {lower}; rlenv train --dry-run with the same options says what takes how much", 1
    reason = _of_disk(error)
    return None if reason is None else (reason, 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory has run out, on a GPU or on the CPU."""
    import torch

    full = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return full or (isinstance(error, RuntimeError) and CPU_ALLOCATOR in str(error))


def _of_disk(error: BaseException) -> str | None:
    """Return why a file of the user could not be read or written; None for any other error."""
    if isinstance(error, OSError):
        code, name = error.errno, error.filename
        if code is None or (code not in _DISK and (name is None or not _of_user(name, error))):
            return None
        where = "a file" if name is None else repr(os.fsdecode(name))
    elif match := _RUST.search(str(error)):
        code, where = int(match[1]), "a file"
    elif isinstance(error, RuntimeError) and _TORCH.search(str(error)):
        return "cannot write a checkpoint: the disk is full, or the folder has gone"
    else:
        return None
    hint = "free some space" if code in _FULL else "check that its folder exists and that you may write there"
    return f"cannot read or write {where}: {os.strerror(code)}; {hint}"


def _of_user(name: str | bytes | int, error: BaseException) -> bool:
    """Tell whether a file belongs to the user: outside the installation, and not a program that cannot be started."""
    if isinstance(name, int) or _module(error) == "subprocess":
        return False
    path = Path(os.fsdecode(name)).absolute()
    installed = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), *_our_folders()]
    return not any(path.is_relative_to(folder) for folder in installed)


def _our_folders() -> list[str]:
    return [folder for package in OURS if package in sys.modules for folder in sys.modules[package].__path__]


def take_streams() -> None:
    """Open the null device for closed standard streams, so that no other file gets their numbers.

    Raises:
        ValueError: if standard output is closed: results are printed there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        raise ValueError("standard output is closed, and results are printed there; send it to a file or to /dev/null")


def reader_gone() -> bool:
    """Tell whether the reader of standard output has closed it, as in `rlenv ... | head`; then silence it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush succeeds
        return True
    return False


@contextmanager
def thread_faults() -> Iterator[list[BaseException]]:
    """Collect errors in threads that `explain` knows, instead of printing tracebacks; yields their list."""
    kept: list[BaseException] = []
    previous = threading.excepthook

    def keep(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and explain(args.exc_value) is not None:
            kept.append(args.exc_value)
        else:
            previous(args)

    threading.excepthook = keep
    try:
        yield kept
    finally:
        threading.excepthook = previous


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print warnings of ours as one line, without the place in the code; those of others as Python does."""
    previous = warnings.formatwarning

    def one_line(message: Warning | str, category: type[Warning], filename: str, *more: Any, **named: Any) -> str:
        of_user = category is UserWarning and filename.startswith(tuple(_our_folders()))
        return f"warning: {message}\n" if of_user else previous(message, category, filename, *more, **named)

    warnings.formatwarning = one_line
    try:
        yield
    finally:
        warnings.formatwarning = previous


def _module(error: BaseException) -> str:
    """Return the module that raised an error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else traceback.tb_frame.f_globals.get("__name__", "")
