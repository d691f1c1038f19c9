"""Planted bugs: each is caught by a named test, which passes without the bug and fails with it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from loaded import loaded

TESTS = Path(__file__).parents[1]
OURS, MADE_UP = "this project", "made up"
FAILED = (AssertionError, pytest.fail.Exception)  # the second: an error that was expected did not come


@functools.cache
def load(file: str) -> ModuleType:
    """Import a file by its path below tests/."""
    return loaded(f"tests/{file}")


class Test:
    """A test of the suite, to be called with some of its parameters and fixtures.

    Args:
        name: path below tests/, two colons and the name of the function.
        given: its arguments. Those that are missing are `tmp_path`, `monkeypatch`, `generator` or fixtures of its own
            module.
    """

    __test__ = False

    def __init__(self, name: str, /, **given: Any) -> None:
        self.name, self.given = name, given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Test) and (self.name, str(self.given)) == (other.name, str(other.given))

    def find(self) -> Callable[..., None]:
        file, _, name = self.name.partition("::")
        return getattr(load(file), name)

    def __call__(self, folder: Path) -> None:
        test = self.find()
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            ready = {"tmp_path": folder, "monkeypatch": patch, "generator": torch.Generator().manual_seed(0)}
            folder.mkdir()

            def values(function: Callable[..., Any]) -> dict[str, Any]:
                return {name: value(name) for name in inspect.signature(function).parameters}

            def value(name: str) -> Any:
                known = ready | self.given
                if name in known:
                    return known[name]
                fixture = inspect.unwrap(getattr(sys.modules[test.__module__], name))
                if inspect.isgeneratorfunction(fixture):
                    return stack.enter_context(contextlib.contextmanager(fixture)(**values(fixture)))
                return fixture(**values(fixture))

            test(**values(test))


_healthy: list[Test] = []  # checks that the code has passed as it is


def planted(
    number: int | None, reference: str, check: Test, error: type[BaseException] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of a function that plants a bug: `check` passes before, and fails with it.

    The function's docstring says what goes wrong. It takes a monkeypatch and, if it has a second parameter, an empty
    folder.

    Args:
        number: of the kind of bug, see `docs/make_museum.py`; None if the reference is `OURS` or `MADE_UP`.
        reference: public issues or pull requests, "owner/repository#number, ..."; `OURS` if only this project had the
            bug; `MADE_UP` if nobody is known to have had it.
        check: catches it.
        error: what the check ends with, if an error of the product gets there before its assertions.
    """

    def decorate(plant: Callable[..., None]) -> Callable[..., None]:
        def apply(patch: pytest.MonkeyPatch, folder: Path) -> None:
            plant(patch, *[folder][: len(inspect.signature(plant).parameters) - 1])

        def test(tmp_path: Path) -> None:
            if check not in _healthy:  # several bugs may share a check
                check(tmp_path / "healthy")
                _healthy.append(check)
            with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
                apply(patch, tmp_path)
                with pytest.raises(error or FAILED):
                    check(tmp_path / "planted")

        test.__name__, test.__doc__, test.plant = plant.__name__, plant.__doc__, apply
        return caught_by(number, reference, check.name)(test)

    return decorate


def caught_by(number: int | None, reference: str, name: str) -> pytest.MarkDecorator:
    """Mark a test of the museum that plants its bug by itself; arguments as in `planted` and `Test`."""
    return pytest.mark.bug(number=number, reference=reference, caught_by=name)


class Entry(NamedTuple):
    """A bug of the museum: its name, what goes wrong, and the arguments of `caught_by`."""

    name: str
    text: str
    number: int | None
    reference: str
    caught_by: str


def entry_of(test: Any) -> Entry | None:
    """Return the entry that a test function of the museum is, if any."""
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "bug":
            name = test.__name__.removeprefix("test_").replace("_", " ")
            return Entry(name, " ".join(inspect.getdoc(test).split()), **mark.kwargs)
    return None


def museum_tests() -> list[Any]:
    """Return the test functions of all entries, file by file."""
    files = sorted(path.relative_to(TESTS).as_posix() for path in (TESTS / "museum").glob("test_*.py"))
    return [test for file in files for test in vars(load(file)).values() if entry_of(test)]


def entries() -> list[Entry]:
    """Return all entries, file by file."""
    return [entry for test in museum_tests() if (entry := entry_of(test))]
