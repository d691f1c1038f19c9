"""Makes verifiers from a name, an entry point, "module:Name", "file.py:name", an object, a function or a list."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from rlenv._checks import closest, first_line

from ..base import Execution, Turns, Verifier, describe
from ..function import FunctionVerifier
from .user_code import SUFFIX, import_user_object

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

ENTRY_POINT_GROUP = "rlenv.verifiers"

_REGISTRY: dict[str, type[Verifier]] = {}
_TRUST: ContextVar[bool] = ContextVar("trust", default=True)
PACKAGE = "rlenv.verifiers."
AROUND = ENVIRONMENT, PROGRAM = "environment", "program"  # the verifiers around classes and functions of the user
VerifierType = TypeVar("VerifierType", bound=type[Verifier])


def register_verifier(name: str) -> Callable[[VerifierType], VerifierType]:
    """Class decorator that registers a verifier as `name`.

    Raises:
        ValueError: if another class already has the name.
    """

    def register(cls: VerifierType) -> VerifierType:
        if not cls.__module__.startswith(PACKAGE):
            _registered()  # which may have the name
        holder = _REGISTRY.setdefault(name, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the verifier name {name!r} is taken by {holder.__module__}:{holder.__qualname__}")
        _REGISTRY[name] = cls
        return cls

    return register


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Set whether verifiers made in this block, including nested ones, may be of unregistered kinds.

    Args:
        trust: False for names that come from a checkpoint: only registered verifiers are allowed. It holds in
            nested blocks, too.
    """
    token = _TRUST.set(trust and _TRUST.get())
    try:
        yield
    finally:
        _TRUST.reset(token)


def require_trust(what: str, risk: str = "may run any code") -> None:
    """Check that the user, not a checkpoint, chose this.

    Raises:
        ValueError: in a block of `trusting(False)`.
    """
    if not _TRUST.get():
        raise ValueError(f"the checkpoint names {what} and {risk}; if you trust it, pass --trust (Python: trust=True)")


def list_verifiers() -> list[str]:
    """Return the names of all verifiers that can be made by name."""
    return sorted(set(_registered()) | {entry.name for entry in _plugins()})


def is_listed(name: str) -> bool:
    """Tell whether a verifier can be made by this name; looking through the installed packages takes milliseconds."""
    return name in _REGISTRY or name in list_verifiers()


def make_verifier(spec: str | Verifier | Callable[..., Any] | Sequence[Any], **kwargs: Any) -> Verifier:
    """Return the verifier that `spec` describes.

    Args:
        spec: a registered name ("arith"), a name with its first argument ("reasoning_gym:leg_counting"),
            "module:Name", "path/to/file.py:name", a Verifier object or class, an environment class of TRL, an agent
            `solve(problem, client)`, or a reward function `f(prompts, completions, **columns) -> list[float | None]`. A
            list of these, or names with weights in one text ("rewards.py:right,rewards.py:short=0.1"), is their
            weighted sum; the first one decides about success. Items after an environment class are reward
            functions for its episodes.
        kwargs: arguments of the verifier's constructor. For a list: `reward_weights`, one number each (1 by default).

    Raises:
        ValueError: for an unknown name (with the closest match), a module that cannot be imported, or unknown
            arguments.
    """
    members = split_list(spec) if isinstance(spec, str) else spec
    if isinstance(members, (list, tuple)):
        return _weighted(members, **kwargs)
    if isinstance(spec, str):
        name, _, argument = spec.partition(":")
        if argument and is_listed(name):
            return _construct(_load(name), name, argument, **kwargs)
    found = find_verifier(spec) if isinstance(spec, str) else spec
    if is_environment(found):
        return _construct(_load(ENVIRONMENT), found.__name__, found, **kwargs)
    if isinstance(found, Verifier):
        if kwargs:
            raise ValueError(f"verifier arguments {sorted(kwargs)} given together with a finished verifier object")
        return _declared(found)
    if isinstance(found, type) and issubclass(found, Verifier):
        return _construct(found, spec if isinstance(spec, str) else found.__name__, **kwargs)
    if is_program(found):
        return _construct(_load(PROGRAM), label_of(found), found, **kwargs)
    if callable(found):
        return _construct(FunctionVerifier, getattr(found, "__name__", "function"), found, **kwargs)
    raise ValueError(f"a verifier is a name, a Verifier or a reward function, or a list of them, got {found!r}")


def split_list(spec: str) -> list[str] | None:
    """Return the members of "name,name=0.5,file.py:name=2", weights included; None for the name of one verifier."""
    members = spec.split(",")
    if len(members) == 1:
        return None
    begins_with_argument = ":" in members[0] and is_listed(members[0].partition(":")[0])
    if begins_with_argument and not all(":" in member or "=" in member for member in members[1:]):
        return None  # the comma is in the argument: format:plan,code
    return members


def split_weight(member: str) -> tuple[str, float]:
    """Return a member of a list as its name and its weight, 1 by default."""
    name, equals, number = member.rpartition("=")
    try:
        return (name.strip(), float(number)) if equals else (member.strip(), 1.0)
    except ValueError:  # the equals sign belongs to the name
        return member.strip(), 1.0


def _weighted(members: Sequence[Any], reward_weights: Any = None, **kwargs: Any) -> Verifier:
    """Return the weighted sum of a list of verifiers; of an environment class and reward functions, the class's."""
    pairs = [split_weight(one) if isinstance(one, str) else (one, 1.0) for one in members]
    env = _environment_of(pairs[0][0]) if pairs else None
    if kwargs and env is None:
        raise ValueError(
            f"verifier arguments {sorted(kwargs)} given for a list of verifiers, which takes reward_weights only; "
            "for arguments of its members use the verifier 'weighted'"
        )
    if reward_weights is not None:
        if not isinstance(reward_weights, (list, tuple)) or len(reward_weights) != len(pairs):
            raise ValueError(f"reward_weights must be {len(pairs)} numbers, one per verifier, got {reward_weights!r}")
        if any(isinstance(one, str) and split_weight(one)[0] != one.strip() for one in members):
            raise ValueError("weights are given twice, in the names (name=0.5) and as reward_weights")
        pairs = [(spec, weight) for (spec, _), weight in zip(pairs, reward_weights, strict=True)]
    if env is not None:
        functions, weights = [spec for spec, _ in pairs[1:]], [weight for _, weight in pairs]
        return _construct(_load(ENVIRONMENT), ENVIRONMENT, env, functions, weights, **kwargs)
    parts: dict[str, Mapping[str, Any]] = {}
    for spec, weight in pairs:
        label = name = label_of(spec)
        while label in parts:
            label = f"{name}-{len(parts) + 1}"
        parts[label] = {"verifier": spec, "weight": weight}
    return _construct(_load("weighted"), "weighted", parts, success_of=next(iter(parts), None))


def is_environment(found: Any) -> TypeGuard[type]:
    """Tell whether this is a class as TRL takes it for an environment, or one of its methods says that it is meant."""
    own = isinstance(found, type) and not issubclass(found, Verifier)
    return own and any(hasattr(found, name) for name in ("reset", "get_reward"))


def is_program(found: Any) -> TypeGuard[Callable[..., Any]]:
    """Tell whether this is an agent, `solve(problem, client)`: a function, a method or an object that is called."""
    if isinstance(found, (type, Verifier)) or not callable(found):
        return False
    try:
        return [*inspect.signature(found).parameters][:2] == ["problem", "client"]
    except ValueError:  # of a function that is not Python's
        return False


def _environment_of(spec: Any) -> Any:
    """Return the environment class that a member of a list is or names; None for anything else."""
    if isinstance(spec, str):
        name, _, argument = spec.partition(":")
        if not argument or is_listed(name):
            return argument if name == ENVIRONMENT and argument else None
        spec = find_verifier(spec)
    return spec if is_environment(spec) else None


def label_of(spec: Any) -> str:
    """Return a short name of a verifier for the log."""
    if not isinstance(spec, str):
        return str(getattr(spec, "__name__", type(spec).__name__))
    name, _, argument = spec.partition(":")
    return name if not argument or is_listed(name) else spec.rpartition(":")[2]


def find_verifier(name: str) -> Any:
    """Return the object, usually a class, of a name, "module:Name" or "file.py:name".

    Raises:
        ValueError: for an unknown name (with the closest match), or a module that cannot be imported.
    """
    if ":" in name:
        require_trust(f"the unregistered verifier {name!r}")
        try:
            return import_user_object(name)
        except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
            raise ValueError(f"verifier {name!r} cannot be loaded: {reason_of(error)}") from error
    if is_listed(name):
        return _load(name)
    package = "if a package of plugins has it, install that first"
    raise ValueError(f"unknown verifier {name!r}; {advice(name, list_verifiers())}; {package}")


def advice(name: str, known: Sequence[str]) -> str:
    """Return how to name a function in a file, or the known names closest to an unknown one."""
    return f"name the function in it: {name}:my_function" if name.endswith(SUFFIX) else closest(name, known)


def verifier_origin(name: str) -> str:
    """Return where a listed name comes from: "rlenv", the module that registered it, or the installed package."""
    if name in _registered():
        module = _REGISTRY[name].__module__
        return "rlenv" if module.startswith(PACKAGE) else module
    return next((_package_of(entry) for entry in _plugins() if entry.name == name), "unknown")


def hidden_plugins() -> list[dict[str, str]]:
    """Return the verifiers of installed packages whose name is that of a built-in one, as rows of `summaries`."""
    registered, rows = _registered(), []
    for entry in _plugins():
        if entry.name in registered and registered[entry.name].__module__.startswith(PACKAGE):
            summary = f"rlenv has a verifier of this name: use {entry.value}"
            rows.append({"name": entry.name, "summary": summary, "from": _package_of(entry), "missing": ""})
    return rows


def _package_of(entry: EntryPoint) -> str:
    """Return the installed package that offers a verifier, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"


def _registered() -> dict[str, type[Verifier]]:
    """Return the registered classes by name, after an import of the built-in ones."""
    import_module(PACKAGE + "builtin")  # slow, and worker processes need one of them at most
    return _REGISTRY


def _plugins() -> EntryPoints:
    from importlib.metadata import entry_points  # slow, and worker processes never ask

    return entry_points(group=ENTRY_POINT_GROUP)


def _construct(cls: type[Verifier], name: str, *args: Any, **kwargs: Any) -> Verifier:
    try:
        made = cls(*args, **kwargs)
    except TypeError as error:
        problem = str(error).replace(f"{cls.__name__}.__init__() ", "")
        parameters = [*inspect.signature(cls).parameters.values()]
        open_ones = (each for each in parameters[len(args) :] if each.kind is each.POSITIONAL_OR_KEYWORD)
        missing = next((each.name for each in open_ones if each.default is each.empty and each.name not in kwargs), "")
        if missing:
            short = f"name it {name}:{missing.upper()}, or " if not args and is_listed(name) else ""
            problem = f"{missing} is missing: {short}pass --verifier-arg {missing}=... (Python: {missing}=...)"
        takes = ", ".join(each.name for each in parameters) or "none"
        raise ValueError(f"verifier {name}: {problem}; its arguments: {takes}") from error
    return _declared(made)


def _declared(verifier: Verifier) -> Verifier:
    """Refuse a verifier whose attributes are of another kind than a verifier's, such as a number in its `turns`."""
    for name, (fits, allowed) in DECLARED.items():
        if not fits(value := getattr(verifier, name)):
            what = f"{type(verifier).__name__}.{name} must be {allowed}, got {value!r:.60}"
            raise ValueError(f"{what}; of another kind, give it another name")
    return verifier


def _is_range(value: Any) -> bool:
    ends = value if isinstance(value, (tuple, list)) and len(value) == 2 else (1, 0)
    return all(isinstance(end, Real) for end in ends) and ends[0] <= ends[1]


def _are_names(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(name, str) for name in value)


DECLARED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "turns": (lambda value: isinstance(value, Turns), "turns = Turns(...)"),
    "execution": (lambda value: isinstance(value, Execution), "execution = Execution(...)"),
    "alphabet": (lambda value: isinstance(value, str), "a text"),
    "levels": (lambda value: isinstance(value, Integral) and int(value) >= 1, "a whole number of at least 1"),
    "reward_range": (_is_range, "the lowest and the highest reward, such as (0.0, 1.0)"),
    "success_reward": (lambda value: isinstance(value, Real), "a number"),
    "inputs": (_are_names, "a tuple of names, such as ('tolerance',)"),
    "part_weights": (lambda value: isinstance(value, Mapping), "numbers by name"),
    "does_not_catch": (lambda value: isinstance(value, Mapping), "reasons by the name of the attack"),
}


def _load(name: str) -> Any:
    """Return the class that a known name refers to."""
    if name in _registered():
        return _REGISTRY[name]
    entry, *others = (entry for entry in _plugins() if entry.name == name)
    if others:
        offers = " and ".join(f"{_package_of(each)} ({each.value})" for each in (entry, *others))
        raise ValueError(f"verifier {name!r} is in {offers}: uninstall one, or use what is in brackets")
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # one plugin must not end the program for all others
        raise ValueError(f"verifier {name!r} of {_package_of(entry)} cannot be loaded: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return an exception of a module in one line, with the place that raised it unless the message explains it."""
    return first_line(error) if isinstance(error, (ImportError, SyntaxError)) else describe(error)
