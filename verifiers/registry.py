"""Makes verifiers from a name, an entry point, "module:Name", an object or a reward function."""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from .base import Verifier
from .function import FunctionVerifier

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ENTRY_POINT_GROUP = "rlenv.verifiers"

_REGISTRY: dict[str, type[Verifier]] = {}
_TRUST: ContextVar[bool] = ContextVar("trust", default=True)
VerifierType = TypeVar("VerifierType", bound=type[Verifier])


def register_verifier(name: str) -> Callable[[VerifierType], VerifierType]:
    """Class decorator that registers a verifier as `name`.

    Raises:
        ValueError: if another class already has the name.
    """

    def register(cls: VerifierType) -> VerifierType:
        holder = _REGISTRY.setdefault(name, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the verifier name {name!r} is taken by {holder.__module__}:{holder.__qualname__}")
        _REGISTRY[name] = cls
        return cls

    return register


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Set whether verifiers made in this block, and those inside them, may be of unregistered kinds.

    Args:
        trust: False for names that come from a checkpoint: only registered verifiers are allowed. A block inside
            such a block is not trusted either.
    """
    token = _TRUST.set(trust and _TRUST.get())
    try:
        yield
    finally:
        _TRUST.reset(token)


def require_trust(what: str) -> None:
    """Check that the user, not a checkpoint, chose this; it may run any code.

    Raises:
        ValueError: in a block of `trusting(False)`.
    """
    if not _TRUST.get():
        raise ValueError(
            f"the checkpoint names {what} and may run any code; if you trust it, pass --trust (Python: trust=True)"
        )


def list_verifiers() -> list[str]:
    """Return the names of all verifiers that can be made by name."""
    return sorted(set(_REGISTRY) | {entry.name for entry in _plugins()})


def make_verifier(spec: str | Verifier | Callable[..., Any], **kwargs: Any) -> Verifier:
    """Return the verifier that `spec` describes.

    Args:
        spec: a registered name ("arith"), a name with its first argument ("reasoning_gym:leg_counting"),
            "module:Name", a Verifier object or class, or a reward function
            `f(prompts, completions, **columns) -> list[float | None]`.
        kwargs: arguments of the verifier's constructor.

    Raises:
        ValueError: for an unknown name (with the closest matches), a module that cannot be imported, or unknown
            arguments.
    """
    if isinstance(spec, str):
        name, _, argument = spec.partition(":")
        if argument and name in list_verifiers():
            return _construct(_load(name), name, argument, **kwargs)
    found = find_verifier(spec) if isinstance(spec, str) else spec
    if isinstance(found, Verifier):
        if kwargs:
            raise ValueError(f"verifier arguments {sorted(kwargs)} given together with a finished verifier object")
        return found
    if isinstance(found, type) and issubclass(found, Verifier):
        return _construct(found, found.__name__, **kwargs)
    if callable(found):
        return _construct(FunctionVerifier, getattr(found, "__name__", "function"), found, **kwargs)
    raise ValueError(f"a verifier is a name, a Verifier or a reward function, got {found!r}")


def find_verifier(name: str) -> Any:
    """Return what a name or "module:Name" refers to: usually a class.

    Raises:
        ValueError: for an unknown name (with the closest matches), or a module that cannot be imported.
    """
    if ":" in name:
        require_trust(f"the unregistered verifier {name!r}")
        module_name, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
            raise ValueError(f"verifier {name!r} cannot be loaded: {_reason(error)}") from error
    known = list_verifiers()
    if name in known:
        return _load(name)
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"
    raise ValueError(f"unknown verifier {name!r}; {hint}")


def verifier_origin(name: str) -> str:
    """Return where a listed name comes from: "rlenv", the module that registered it, or the installed package."""
    if name in _REGISTRY:
        module = _REGISTRY[name].__module__
        return "rlenv" if module.startswith(f"{__package__}.") else module
    distributions = [entry.dist for entry in _plugins() if entry.name == name]
    return f"{distributions[0].name} {distributions[0].version}" if distributions and distributions[0] else "unknown"


def _plugins() -> EntryPoints:
    from importlib.metadata import entry_points  # slow, and worker processes never ask

    return entry_points(group=ENTRY_POINT_GROUP)


def _construct(cls: type[Verifier], name: str, *args: Any, **kwargs: Any) -> Verifier:
    try:
        return cls(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(inspect.signature(cls).parameters) or "none"
        problem = str(error).replace(f"{cls.__name__}.__init__() ", "")
        raise ValueError(f"verifier {name}: {problem}; its arguments: {takes}") from error


def _load(name: str) -> Any:
    """Return the class that a known name refers to."""
    if name in _REGISTRY:
        return _REGISTRY[name]
    entry = next(entry for entry in _plugins() if entry.name == name)
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # one plugin must not end the program for all others
        raise ValueError(f"verifier {name!r} of {verifier_origin(name)} cannot be loaded: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return an exception in one line, with the place that raised it unless the message explains it."""
    line = (str(error).splitlines() or [""])[0]
    if isinstance(error, (ImportError, AttributeError, SyntaxError)):
        return line
    place = traceback.extract_tb(error.__traceback__)[-1]
    named = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return f"{named} ({place.filename}, line {place.lineno})"
