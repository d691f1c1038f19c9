"""Settings: the keyword arguments of a class, each a dataclass field, with its facts if it has any (see `Setting`).

    class Halved(Reinforce):
        factor: float = setting(default=0.5, help="Of the advantages.", above=0, high=1)

Every class of an agent, and of the config of a job, is a dataclass: its constructor takes `factor`, checks it and sets
the attribute. Type checkers and editors know that, the table under the docstring, what a checkpoint keeps, the options
of commands and the table in docs/appendix/settings.md are made from the fields. Nothing here imports torch, so that
`--help` need not.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, replace
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Optional,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from ._checks import did_you_mean
from ._setting import ANY, Setting, alternatives

Given = TypeVar("Given")
Kept = TypeVar("Kept")
C = TypeVar("C", bound=type)

if TYPE_CHECKING:

    class Converted(Generic[Given, Kept]):
        """The type of an argument that is kept as something else."""

        def __get__(self, agent: Any, cls: Any = None) -> Kept: ...
        def __set__(self, agent: Any, value: Given) -> None: ...

    class OrDefault(Converted[Kept | None, Kept]):
        """The type of a setting of which None stands for a default that depends on something else."""

else:
    OrDefault = Optional

    class Converted:
        """The type of an argument that is kept as something else."""

        def __class_getitem__(cls, types: Any) -> Any:
            """Return the type Any: a kept value is not checked."""
            return Any


def setting(*, default: Any, **facts: Any) -> Any:
    """Return a field for the body of a class with settings; `Setting` lists the facts.

    A class that declares a setting of its parents again, with its type, changes the facts that it names. Without facts,
    the default alone does: factor: float = 0.25.
    """
    return field(default=default, metadata=facts)


def argument(*, kw_only: bool) -> Any:
    """Return a field for an argument that is not a setting: the policy, the environment."""
    return field(kw_only=kw_only)


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
def with_settings(cls: C) -> C:
    """Return a class with settings as it is; jedi asks for this at each class, not at their base."""
    return cls


@functools.cache
def signature_of(cls: type) -> inspect.Signature:
    """Return the signature of a class of an agent: its constructor's, with the settings that this passes on."""
    parameters: dict[str, inspect.Parameter] = {}
    for init in (vars(base).get("__init__") for base in cls.__mro__):
        if inspect.isfunction(init):
            _, *own = inspect.signature(init).parameters.values()
            parameters |= {p.name: p for p in own if p.kind is not p.VAR_KEYWORD and p.name not in parameters}
            if all(p.kind is not p.VAR_KEYWORD for p in own):
                break
    return inspect.Signature(sorted(parameters.values(), key=lambda p: p.kind))


class Signature:
    """The signature of a class as an attribute of it."""

    def __get__(self, agent: Any, cls: type) -> inspect.Signature:
        """Return it for a class."""
        return signature_of(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, argument))
class WithSettings:
    """A class with settings: each of its children is a dataclass."""

    _declared: ClassVar[dict[str, Setting]]
    _own_settings: ClassVar[dict[str, Setting]]
    _own_arguments: ClassVar[list[str]]
    idle_settings: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})  # by why they have no effect
    __signature__ = Signature()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declare(cls)

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **settings: Any) -> Self:
            """Refuse unknown arguments before anything is made."""
            check_names(cls.__name__, settings, cls.__signature__.parameters)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check the settings, one by one and together, and keep each as its type; a default by kind may stay None.

        Raises:
            ValueError: for a value that is not allowed.
        """
        for name, one in self._declared.items():
            setattr(self, name, one.check(getattr(self, name)))
        self._check_together()

    def _check_together(self) -> None:
        """Check the settings together, before anything is made; `setup` checks the algorithm's requirements."""

    def refuse_idle(self, where: str, *names: str) -> None:
        """Refuse settings that have no effect, unless they are the default: checkpoints keep all.

        Args:
            where: in the message, "without mismatch".
            names: of the settings.

        Raises:
            ValueError: naming the first one.
        """
        for name in names:
            value, default = getattr(self, name), self._declared[name].default
            if value != default:
                raise ValueError(f"{name}={value!r} has no effect {where}; leave it at {default!r}")


def declare(cls: Any) -> None:
    """Make a class a dataclass of its settings and its parents' settings.

    Raises:
        TypeError: for a declaration that is not one, or hides something, naming the class and the setting.
    """
    parents, annotations = _merged(cls.__mro__[1:]), inspect.get_annotations(cls).items()
    types = {name: annotation for name, annotation in annotations if "ClassVar" not in str(annotation)}
    own = {name: vars(cls).get(name, MISSING) for name in types}
    own = {name: value for name, value in own.items() if getattr(value, "kw_only", True)}  # no `argument`
    _check_body(cls, own, parents)
    cls._own_settings = {name: _setting_of(cls, name, value, parents.get(name)) for name, value in own.items()}
    cls._declared = cls._own_settings | {name: one for name, one in parents.items() if name not in cls._own_settings}
    cls._own_arguments = _arguments(cls)
    if vars(cls).get("__doc__"):
        table = "\n".join(one.described for one in cls._declared.values())
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\nKeyword Args:\n{table}"
    dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)


def declared_by(cls: Any) -> dict[str, Setting]:
    """Return the settings of a class by name, its own declarations first."""
    return cls._declared


def check_names(owner: str, arguments: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Check that a class, or an environment, takes keyword arguments of these names.

    Raises:
        TypeError: with the unknown name and the allowed ones, or its name here, in one line.
    """
    names = list(allowed)
    unknown = [name for name in arguments if name not in names]
    for name in unknown:
        from ._peer_names import name_here  # for this error alone

        close = did_you_mean(name, names) or "see docs/appendix/names.md, docs/from-trl.md; "
        hint = name_here(name) or f"{close}allowed: {', '.join(names)}"
        raise TypeError(f"{owner} has no setting {name!r}; {hint}")


def _merged(classes: Iterable[type]) -> dict[str, Setting]:
    """Return the settings of classes; of several with the same name the first, as attributes are looked up."""
    settings: dict[str, Setting] = {}
    for cls in classes:
        for name, one in vars(cls).get("_own_settings", {}).items():
            settings.setdefault(name, one)
    return settings


def _check_body(cls: type, own: Mapping[str, Any], parents: Mapping[str, Setting]) -> None:
    """Check that a class and its mixins set no plain value for a setting, which is ignored, and hide nothing of ours.

    Raises:
        TypeError: for such a value, a setting of a mixin without settings, or one with a name that a parent needs.
    """
    for body in (cls, *(base for base in cls.__mro__ if not issubclass(base, WithSettings))):
        where = "" if body is cls else f" in {cls.__name__}"
        for name, value in vars(body).items():
            if where and isinstance(value, Field):
                raise TypeError(f"{body.__name__}.{name} is a setting: derive {body.__name__} from Agent, or another")
            if name not in own and name in parents and not hasattr(value, "__set__"):  # a property may stand for one
                raise TypeError(
                    f"{body.__name__}.{name} is a setting: write {name}: {parents[name].type} = {value!r}{where}"
                )
    for name, base in ((name, base) for name in own.keys() - parents.keys() for base in cls.__mro__[1:]):
        needed = name in inspect.get_annotations(base) or vars(base).get(name) is not None  # see `absent`
        if needed and issubclass(base, WithSettings) and base.__module__.startswith("rlenv."):
            raise TypeError(f"{cls.__name__}.{name}: {base.__name__} uses this name; choose another for the setting")


def _setting_of(cls: type, name: str, value: Any, parent: Setting | None) -> Setting:
    """Return a declared setting, with the facts of the parents' that it leaves out.

    Raises:
        TypeError: for a default that is missing or wrong, naming the class and the setting.
    """
    where, annotation = f"{cls.__name__}.{name}", inspect.get_annotations(cls)[name]
    default, facts = (value.default, dict(value.metadata)) if isinstance(value, Field) else (value, dict[str, Any]())
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    hint, by_kind = _hint(cls, annotation), {} if parent is None else parent.by_kind
    names = [name for each in alternatives(hint) if get_origin(each) is Literal for name in get_args(each)]
    if default is not None:
        by_kind = {ANY: default} if by_kind else {}  # None still stands for a default
    if default is not None or "by_kind" in facts:
        facts.setdefault("shown", "")
    for ends in (("low", "above"), ("high", "below")):
        if not facts.keys().isdisjoint(ends):
            facts = dict.fromkeys(ends) | facts
    if parent is None or "heading" in vars(cls):
        facts.setdefault("heading", getattr(cls, "heading", "Updates"))
    facts |= {"type": _shown_type(written), "hint": hint, "one_of": tuple(names), "default": default}
    narrows = parent is not None and default is None and "by_kind" not in facts  # what it inherits, which stays
    facts["by_kind"] = {**by_kind, **facts.get("by_kind", {})}
    new = Setting(name=name, **facts) if parent is None else replace(parent, **facts)
    if default is MISSING or (default is None and not new.optional):
        raise TypeError(f"{where} has no default: write setting(default=...), or {new.type} | None = None")
    others = {each for each in alternatives(hint) if get_origin(each) is not Literal} - {type(None)}
    if names and others and new.checked_by is None:
        raise TypeError(f"{where}: names beside another type need checked_by=..., a function that returns what is kept")
    if type(default).__hash__ is None:
        raise TypeError(f"{where}: all agents would share its default {default!r}; write a tuple, or None")
    try:
        for each in () if narrows or new.checked_by else new.by_kind.values() or (default,):
            new.check(each)
    except ValueError as error:
        raise TypeError(f"{where}: its default is wrong: {error}") from None
    return new


def _shown_type(written: str) -> str:
    """Return a type as readers see it: the type after conversion, and str for a choice among names."""
    if wrapped := re.fullmatch(r"(?:OrDefault\[|Converted\[.*, )(.*)\]", written):
        written = wrapped[1]
    return re.sub(r"Literal\[[^]]*\]", "str", written)


def _hint(cls: type, annotation: Any) -> Any:
    """Return the type that an annotation stands for; Any if its names are not imported when the code runs."""
    holder = type(cls.__name__, (), {"__annotations__": {"value": annotation}, "__module__": cls.__module__})
    try:
        return get_type_hints(holder)["value"]
    except (NameError, AttributeError):
        return Any


def _arguments(cls: type) -> list[str]:
    """Return the arguments with a default of the constructor that a class's body has, if any."""
    init = vars(cls).get("__init__")
    parameters = inspect.signature(init).parameters.values() if inspect.isfunction(init) else ()
    return [p.name for p in parameters if p.default is not p.empty]
