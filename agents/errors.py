"""Errors that end a run, or that callers tell apart; and blocks that turn faults in files into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# If log-probabilities are NaN, the first action counts as the likeliest.
NOT_CHOSEN = "the log-probability of an action is NaN; the observation and the weights of the policy must be finite"


class VerifierError(RuntimeError):
    """The verifier failed on too many episodes; the message says how many and why."""


class DivergedError(RuntimeError):
    """Training cannot go on: weights or updates are not finite, or two policies that should be one differ."""


class EngineError(RuntimeError):
    """The engine does not answer, or does not write with the policy's weights; the message says what to do."""


class UserCodeError(ValueError):
    """A class of the user's does not keep to its interface, or raised an exception, which is then the cause."""


class UnknownModelError(ValueError):
    """A name that stands for no model: neither a preset, nor a folder or id from which one can be read."""


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Turn the errors that content of the wrong shape causes into one line.

    Errors of the machine pass: a lack of memory, and errors of the file system except files that are missing.

    Raises:
        ValueError: instead of another error of Python, naming `what`, and of a ValueError of another library.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error)) from error
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError) as error:
        import torch  # slow

        if isinstance(error, torch.OutOfMemoryError):
            raise
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"{str(what)!r} cannot be loaded: {type(error).__name__}: {said}") from error


@contextmanager
def checking(file: Path) -> Iterator[None]:
    """Name the file from which the values are that are checked.

    Raises:
        ValueError: for a value that is refused or missing.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error
    except KeyError as error:
        raise ValueError(f"{str(file)!r} is damaged: it has no {error}") from error
