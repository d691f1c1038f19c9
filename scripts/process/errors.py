"""Errors that are printed in one line; all others are bugs, and keep their traceback.

A full disk, and a folder that is read-only or was deleted, are recognized here and not in every place that writes.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from . import torchrun

PACKAGE = __name__.partition(".")[0]
USER = 2  # exit code of an error of the user
CPU_ALLOCATOR = "can't allocate memory"  # torch's on a CPU raises a plain RuntimeError
_FREE = "free some space"
_FULL = {errno.ENOSPC: _FREE, errno.EDQUOT: _FREE, errno.EFBIG: "raise the limit of ulimit -f"}
_DISK = {*_FULL, errno.EROFS, errno.EIO}  # for any file
_RUST = re.compile(r"\(os error (\d+)\)")  # safetensors and tokenizers
_format_warning = warnings.formatwarning


def explain(error: BaseException) -> tuple[str, int] | None:
    """Return the line and the exit code for an error of the user or the disk; None for a bug, here or in a library."""
    from rlenv.agents import DivergedError, EngineError, VerifierError  # slow

    modules = (_module(error), type(error).__module__)  # a future raises what a worker's call did
    if isinstance(error, ValueError) and any(name.split(".")[0] == PACKAGE for name in modules):
        return str(error), USER
    if isinstance(error, (DivergedError, EngineError, VerifierError)):
        return str(error), 1
    if is_out_of_memory(error):
        lower = "lower --micro-batch-tokens (training) or --num-envs (acting)"
        return f"out of memory: {lower}; rlenv train --dry-run with the same options says what takes how much", 1
    return (torchrun.LOST, 1) if torchrun.is_lost(error) else _of_disk(error)


def own_traceback(error: BaseException) -> str:
    """Return the traceback of the exception in a user's class that an error is about; empty if it is about none."""
    from rlenv.agents.errors import UserCodeError

    cause = error.__cause__ if isinstance(error, UserCodeError) else None
    return "" if cause is None else "".join(traceback.format_exception(cause))


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory has run out, on a GPU or on the CPU."""
    import torch

    full = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return full or (isinstance(error, RuntimeError) and CPU_ALLOCATOR in str(error))


def _of_disk(error: BaseException) -> tuple[str, int] | None:
    """Return why a file could not be read or written, and the exit code; None for other errors, such as a network's."""
    name: Any = getattr(error, "filename", None)
    named = isinstance(name, (str, bytes))
    if isinstance(error, OSError):
        code = error.errno or 0
        if not named and code not in _DISK:
            return None
    elif match := _RUST.search(str(error)):
        code = int(match[1])
    else:
        return None
    where = repr(os.fsdecode(name)) if named else "a file"
    failed = f"cannot read or write {where}: {os.strerror(code)}"
    if code == errno.ENAMETOOLONG:
        return f"{failed}; use a shorter name", USER
    return f"{failed}; {_FULL.get(code, 'check that its folder exists and that you may write there')}", 1


def reader_gone() -> bool:
    """Tell whether the reader of standard output has closed it, as in `rlenv ... | head`; then silence it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush succeeds
        return True
    return False


def one_line(message: Warning | str, category: type[Warning], filename: str, *more: Any, **named: Any) -> str:
    """Return a warning of ours without the place in the code; one of others as Python formats it."""
    if category is UserWarning and Path(filename).is_relative_to(sys.modules[PACKAGE].__path__[0]):
        return f"warning: {message}\n"
    return _format_warning(message, category, filename, *more, **named)


def _module(error: BaseException) -> str:
    """Return the module that raised an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_globals.get("__name__", "") if frames else ""
