"""Settings: the keyword arguments of a class, each declared once, in a class body.

    class Halved(Reinforce):
        factor: float = setting(default=0.5, range="(0, 1]", help="Of the advantages.")

The constructor takes `factor`, checks it and sets the attribute. The signature, the table under the docstring, what a
checkpoint keeps, the options of commands and the table in docs/settings.md come from the declaration.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self, dataclass_transform

from . import foreign_names
from .declaration import ANY, Setting, type_of

WIDTH = 116


def setting(**facts: Any) -> Any:
    """Declare a setting in the body of a `Configured` class; see `Setting` for the facts.

    A class that declares a setting of its parents again, without a type, changes the facts that it names.
    """
    return _Declaration(facts)


def attribute(*, init: bool = True, kw_only: bool = True) -> Any:
    """Declare an attribute that is not a setting, for type checkers; it is None until it is set.

    Args:
        init: whether the class's own constructor takes it.
        kw_only: whether it takes it by name only.
    """


class _Declaration(dict[str, Any]):
    """The facts of a setting until the class is made."""


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, attribute))
class Configured:
    """A class whose keyword arguments are declared with `setting`, by itself and its parents; see `declared_by`."""

    _declared: ClassVar[dict[str, Setting]] = {}
    _own_settings: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        types = inspect.get_annotations(cls)
        given = _declarations(cls)
        for base in cls.__mro__[1:]:
            if strays := _declarations(base):
                raise TypeError(
                    f"{base.__name__}.{next(iter(strays))} is a setting of a class that is not Configured: "
                    f"write class {base.__name__}(Configured), from agents.settings"
                )
        parents = _merged(cls.__mro__[1:])
        _check_free(cls, given, parents)
        cls._own_settings = {name: _made(cls, name, types, facts, parents.get(name)) for name, facts in given.items()}
        for name in given:
            delattr(cls, name)
        cls._declared = _merged(cls.__mro__)
        cls.__signature__ = full_signature(cls)  # type: ignore[attr-defined]
        if vars(cls).get("__doc__"):
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nKeyword Args:\n{_table(cls._declared.values())}"

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Refuse unknown arguments before anything is made."""
        check_names(cls, settings, inspect.signature(cls).parameters)
        return super().__new__(cls)

    def _set_settings(self, given: Mapping[str, Any]) -> None:
        """Check settings and set the attributes; those that depend on the kind of policy may stay None.

        Raises:
            TypeError: for an unknown name.
            ValueError: for a value that is not allowed.
        """
        check_names(type(self), given, self._declared)
        for name, one in self._declared.items():
            setattr(self, name, one.check(given.get(name, one.default)))
        self.use_settings()

    def use_settings(self) -> None:
        """Check what settings say together, and set what follows from them; called before anything is made."""

    def _changed(self, *names: str) -> dict[str, Any]:
        """Return those of these settings that are not at their default, with their values."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != self._declared[name].default}

    def refuse_idle(self, where: str, *names: str) -> None:
        """Refuse settings that have no effect, unless they are the default: checkpoints keep all.

        Args:
            where: in the message, "without mismatch".
            names: of the settings.

        Raises:
            ValueError: naming the first one.
        """
        for name, given in self._changed(*names).items():
            raise ValueError(f"{name}={given!r} has no effect {where}; leave it at {self._declared[name].default!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a checkpoint keeps; functions, such as a learning rate, are left out (`functions_of`)."""
        return {name: _plain(value) for name, value in _kept(self).items() if not callable(value)}


def _declarations(cls: type) -> dict[str, _Declaration]:
    """Return the declarations in a class's body that are not settings yet."""
    return {name: facts for name, facts in vars(cls).items() if isinstance(facts, _Declaration)}


def _check_free(cls: type, given: Iterable[str], parents: Mapping[str, Setting]) -> None:
    """Check that what a class's body names does not hide something of its parents.

    Raises:
        TypeError: for a setting with the name of anything else, and a value with that of a setting or a method.
    """
    for name, value in vars(cls).items():
        where = f"{cls.__name__}.{name}"
        used = [base for base in cls.__mro__[1:] if issubclass(base, Configured) and name in vars(base)]
        if name in given and used and (_is_ours(used[0]) or hasattr(vars(used[0])[name], "__get__")):
            raise TypeError(f"{where}: {used[0].__name__} uses this name; choose another for the setting")
        if name in given or name.startswith("__"):
            continue
        if name in parents and not hasattr(value, "__set__"):  # a property may stand for a setting
            raise TypeError(f"{where} is a setting: write {name} = setting(default={value!r})")
        if used and callable(getattr(used[0], name)) and not (callable(value) or hasattr(value, "__get__")):
            raise TypeError(f"{where} is {value!r}, but {used[0].__name__} has a method {name}(); choose another name")


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _made(cls: type, name: str, types: Mapping[str, Any], facts: Mapping[str, Any], parent: Setting | None) -> Setting:
    """Return a declared setting, with the facts of the parents' that it leaves out.

    Raises:
        TypeError: for a declaration that is not one, naming the class and the setting.
    """
    where = f"{cls.__name__}.{name}"
    allowed = [one.name for one in fields(Setting) if one.name not in ("name", "type")]
    for fact in facts:
        if fact not in allowed:
            raise TypeError(f"{where}: setting() has no fact {fact!r}; allowed: {', '.join(allowed)}")
    if name not in types and parent is None:
        raise TypeError(f"{where} has no type: write {name}: float = setting(...), or another type")
    inherited = {} if parent is None else {one.name: getattr(parent, one.name) for one in fields(parent)}
    if name in types:
        inherited["type"] = type_of(types[name])
    if facts.get("default") is not None and inherited.get("by_kind"):  # None still stands for a default
        inherited |= {"by_kind": {ANY: facts["default"]}, "shown": ""}
    elif facts.get("default") is not None:
        inherited["shown"] = ""
    elif "by_kind" in facts:
        inherited |= {"default": None, "shown": ""}
    by_kind = {**inherited.get("by_kind", {}), **facts.get("by_kind", {})}
    made = Setting(**{**inherited, **facts, "name": name, "by_kind": by_kind})
    for value in (made.default, *by_kind.values()):
        if getattr(value, "__hash__", None) is None:
            raise TypeError(f"{where}: the default {value!r} can be changed in place; use a tuple, or None")
    try:
        _ = made.range and made.bounds
    except ValueError:
        raise TypeError(f"{where}: range={made.range!r} is not a range; write one like '[0, 1)'") from None
    open_to_none = made.takes_none or (made.kind == "other" and made.choices is None)
    if made.default is None and made.checked and not (by_kind or open_to_none):
        raise TypeError(f"{where} has no default: write setting(default=...), or the type {made.type} | None")
    try:
        for value in by_kind.values() if made.default is None and by_kind else (made.default,):
            if parent is None or facts.keys() & {"default", "by_kind"}:  # else the class narrows what it inherits
                made.check(value)
    except ValueError as error:
        raise TypeError(f"{where}: its default is wrong: {error}") from None
    return made


def _merged(classes: Iterable[type]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for cls in classes:
        found |= {name: one for name, one in vars(cls).get("_own_settings", {}).items() if name not in found}
    return found


def _table(settings: Iterable[Setting]) -> str:
    """Return what `help` shows of settings."""
    rows = []
    for one in settings:
        allowed = f"Allowed: {one.allowed}. " if one.allowed else ""
        said = f"{one.name}: {one.about} {allowed}Default: {one.usual}."
        rows.append(textwrap.fill(said, WIDTH, subsequent_indent="    "))
    return textwrap.indent("\n".join(rows), "    ")


def full_signature(cls: type) -> inspect.Signature:
    """Return the signature of a class's constructor, with the keyword arguments that it passes on to its parents."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init, own = vars(base).get("__init__"), list[inspect.Parameter]()
        if inspect.isfunction(init):
            _, *own = inspect.signature(init).parameters.values()
        open_ended = [p for p in own if p.kind is p.VAR_KEYWORD]
        declared = vars(base).get("_own_settings", {}).values()
        own = [p for p in own if p not in open_ended] + [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for one in declared
        ]
        found = found | {p.name: p for p in own if p.name not in found}
        if inspect.isfunction(init) and not open_ended:
            break
    return inspect.Signature(sorted(found.values(), key=lambda p: p.kind))


def check_names(cls: type, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Check that a class takes keyword arguments of these names.

    Raises:
        TypeError: with the unknown name, the closest match and what is allowed, in one line.
    """
    names = list(allowed)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            said = foreign_names.hint(name) or (f"did you mean {close[0]!r}?" if close else "")
            hint = f"{said}{'' if said.endswith('?') else ';'} " if said else ""
            raise TypeError(f"{cls.__name__} has no setting {name!r}; {hint}allowed: {', '.join(names)}")


def declared_by(cls: type[Configured]) -> dict[str, Setting]:
    """Return the settings of a class by name, those that it declares itself first."""
    return cls._declared


def default_of(name: str, cls: type[Configured], kind: str, otherwise: str = "") -> Any:
    """Return the default of a setting for a kind of policy (`Policy.kind`).

    Args:
        name: of the setting.
        cls: of the agent.
        kind: of the policy.
        otherwise: the kind whose default is taken if there is none for `kind`, as for a policy class of your own.

    Raises:
        ValueError: if none is declared.
    """
    by_kind = cls._declared[name].by_kind if name in cls._declared else {}
    found = next((each for each in (kind, ANY, otherwise) if each in by_kind), None)
    if found is None:
        raise ValueError(
            f"{name} has no default for a policy of kind {kind!r}; pass {name}=..., or name it in the "
            "`defaults` of the policy's class"
        )
    return by_kind[found]


def functions_of(agent: Configured) -> list[str]:
    """Return the settings that are functions, one of those that are the same."""
    functions = {id(value): name for name, value in reversed(_kept(agent).items()) if callable(value)}
    return sorted(functions.values())


def _kept(agent: Configured) -> dict[str, Any]:
    """Return what a checkpoint keeps: the attributes named like a setting, or like an argument of a constructor."""
    named = (name for cls in type(agent).__mro__ for name in (*_arguments(cls), *vars(cls).get("_own_settings", ())))
    return {name: getattr(agent, name) for name in named if is_kept(type(agent), name) and hasattr(agent, name)}


def is_kept(cls: type[Configured], name: str) -> bool:
    """Tell whether a checkpoint may keep an argument of this name."""
    return name not in ("policy", "env") and (name not in cls._declared or cls._declared[name].saved)


def _arguments(cls: type) -> list[str]:
    """Return the arguments of a class's own constructor that have a default."""
    init = vars(cls).get("__init__")
    parameters = inspect.signature(init).parameters.values() if inspect.isfunction(init) else ()
    return [p.name for p in parameters if p.default is not p.empty]


def _plain(value: Any) -> Any:
    """Return a number of any library as Python's own, which JSON can hold; everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
