"""Planted bugs: each is caught by a named test, which passes without the bug and fails with it."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

TESTS = Path(__file__).parents[1]
OURS = "this project"
FAILED = (AssertionError, pytest.fail.Exception)  # the second: an error that was expected did not come


@functools.cache
def load(file: str) -> ModuleType:
    """Import a file by its path below tests/."""
    name = "museum_" + file.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, TESTS / file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Test:
    """A test of the suite, to be called with some of its parameters and fixtures.

    Args:
        name: path below tests/, two colons and the name of the function.
        given: its arguments; `tmp_path`, `monkeypatch` and `generator` are added if it takes them, and fixtures of its
            own module.
    """

    __test__ = False

    def __init__(self, name: str, /, **given: Any) -> None:
        self.name, self.given = name, given

    def find(self) -> Callable[..., None]:
        file, _, name = self.name.partition("::")
        return getattr(load(file), name)

    def __call__(self, folder: Path) -> None:
        test, fixtures = self.find(), dict(self.given)
        with pytest.MonkeyPatch.context() as patch:
            for name in inspect.signature(test).parameters.keys() - self.given.keys():
                if name == "tmp_path":
                    folder.mkdir()
                fixtures[name] = {
                    "tmp_path": folder,
                    "monkeypatch": patch,
                    "generator": torch.Generator().manual_seed(0),
                }[name]
            test(**fixtures)


def planted(
    number: int | None, reference: str, check: Test, by_guard: type[Exception] | None = None
) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[..., None]]:
    """Make a test of a function that plants a bug: `check` passes before, and fails with it.

    The function's docstring says what goes wrong.

    Args:
        number: in the list of bugs; None for one that only this project had.
        reference: public issues or pull requests, "owner/repository#number, ...", or `OURS`.
        check: catches it.
        by_guard: the error by which the product itself stops; None if the check fails.
    """

    def decorate(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[..., None]:
        def test(tmp_path: Path) -> None:
            check(tmp_path / "healthy")
            with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
                plant(patch)
                with pytest.raises(by_guard or FAILED):
                    check(tmp_path / "planted")

        test.__name__, test.__doc__ = plant.__name__, plant.__doc__
        return caught_by(number, reference, check.name)(test)

    return decorate


def caught_by(number: int | None, reference: str, name: str) -> pytest.MarkDecorator:
    """Mark a test of the museum that plants its bug by itself; arguments as in `planted` and `Test`."""
    return pytest.mark.bug(number=number, reference=reference, caught_by=name)
