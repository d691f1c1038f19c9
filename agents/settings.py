"""Settings: the keyword arguments of a class, each a dataclass field that knows what may be said of it.

    class Halved(Reinforce):
        factor: float = setting(0.5, "Of the advantages.", above=0, high=1)

The constructor takes `factor`, checks it and sets the attribute. The signature, the table under the docstring, what a
checkpoint keeps, the options of commands and the table in docs/settings.md are made from the fields of the classes.
Nothing here imports torch, so that `--help` need not.
"""

from __future__ import annotations

import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral, Real
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from . import peer_names
from .checks import check_choice, check_count, check_flag, check_number, check_schedule

ANY = "any"  # in `by_kind`: every kind of policy that is not named


def setting(default: Any = MISSING, help: Any = MISSING, **facts: Any) -> Any:
    """Return a field for the body of a class of an agent; `Setting` says what the facts are.

    A class that declares a setting of its parents again, without a type, changes the facts that it names.
    """
    named = {name: value for name, value in {"default": default, "help": help}.items() if value is not MISSING}
    return field(metadata=named | facts)


def by_settings(value: Callable[[Any], Any]) -> Any:
    """Return a declaration of a class of an agent that depends on its settings, given a function of the agent.

    On the class itself, which has no values of settings, it is what the parents declare.
    """
    return _BySettings(value)


class _BySettings:
    def __init__(self, value: Callable[[Any], Any]) -> None:
        self.value = value

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, agent: Any, cls: type) -> Any:
        return getattr(super(self.owner, cls), self.name) if agent is None else self.value(agent)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of a setting.

    Attributes:
        name: of the argument and the attribute.
        type: the annotation, which says what is kept, as it is written.
        hint: the type that it stands for; Any if only type checkers know it.
        default: of the constructor. None stands for `by_kind`, or for what `shown` says.
        help: one sentence.
        more: what only Python's reader needs.
        by_kind: the defaults that depend on the kind of policy (`Policy.kind`, or `ANY`).
        low: the smallest number; of whole ones 1, if nothing is said.
        high: the largest number.
        above: instead of `low`, what a number must be larger than.
        below: instead of `high`, what a number must be smaller than.
        one_of: the allowed names.
        optional: whether None is allowed, which it is where it ever was a default.
        checked: whether `check` does so; otherwise `Agent.setup`, for what depends on other settings.
        checked_by: instead of the type, a function that returns a value as it is kept, or raises a ValueError.
        starts: whether the first value of a function of progress has to be in the range, too.
        saved: whether a checkpoint keeps it; not what says where and how an agent runs, rather than how it learns.
        commands: those of "train", "compare" and "sft" that have an option for it; others take `--agent-arg`.
        heading: of that option in `--help`.
        shown: how the default is described, if not by its value.
    """

    name: str
    type: str
    hint: Any
    default: Any = None
    help: str = ""
    more: str = ""
    by_kind: Mapping[str, Any] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    one_of: tuple[str, ...] = ()
    optional: bool = False
    checked: bool = True
    checked_by: Callable[[Any], Any] | None = None
    starts: bool = True
    saved: bool = True
    commands: tuple[str, ...] = ()
    heading: str = "Updates"
    shown: str = ""

    @cached_property
    def kind(self) -> str:
        """Whether values are "bool", "int", "float", "schedule" (a number, or a function of progress) or "other"."""
        types = {get_origin(each) or each for each in _alternatives(self.hint)} - {type(None)}
        if types & {int, float} and types <= {int, float, Callable}:
            return "schedule" if Callable in types else "float" if float in types else "int"
        return "bool" if types == {bool} else "other"

    def check(self, value: Any) -> Any:
        """Return a value as the type's.

        Raises:
            ValueError: naming the setting, the value and what is allowed.
        """
        if not self.checked or (value is None and self.optional):
            return value
        if self.checked_by is not None:
            return self.checked_by(value)
        if self.one_of:
            return check_choice(self.name, value, self.one_of)
        if self.kind == "bool":
            return check_flag(self.name, value)
        if self.kind == "other" or (self.kind == "schedule" and callable(value) and not self.starts):
            return value
        low, high, above, below = self.bounds
        if self.kind == "int":
            most = None if high == math.inf else int(high) - below
            return check_count(self.name, value, None if low == -math.inf else int(low) + above, most)
        check = check_schedule if self.kind == "schedule" else check_number
        return check(self.name, value, low=low, high=high, above=above, below=below)

    @property
    def bounds(self) -> tuple[float, float, bool, bool]:
        """The smallest and the largest number, and whether these are excluded."""
        least = 1 if self.kind == "int" else -math.inf
        low = next((each for each in (self.above, self.low) if each is not None), least)
        high = next((each for each in (self.below, self.high) if each is not None), math.inf)
        return low, high, self.above is not None, self.below is not None

    @property
    def allowed(self) -> str:
        """The allowed values, in words; empty if the type says it."""
        if self.one_of or not self.checked or self.kind in ("bool", "other"):
            return ", ".join(self.one_of)
        low, high, above, below = self.bounds
        least = "" if low == -math.inf else f"{'above' if above else 'at least'} {low}"
        most = "" if high == math.inf else f"{'below' if below else 'at most'} {high}"
        return " and ".join(filter(None, (least, most)))

    @property
    def about(self) -> str:
        """The text for readers of Python."""
        return f"{self.help} {self.more}".strip()

    @property
    def usual(self) -> str:
        """The default in words."""
        own = [f"{value} for {kind}" for kind, value in self.by_kind.items() if kind != ANY]
        rest = [f"{'else ' if own else ''}{self.by_kind[ANY]}"] if ANY in self.by_kind else []
        return self.shown or ", ".join(own + rest) or repr(self.default)

    @cached_property
    def described(self) -> str:
        """The lines of `help`."""
        allowed = f"Allowed: {self.allowed}. " if self.allowed else ""
        said = f"{self.name}: {self.about} {allowed}Default: {self.usual}."
        return textwrap.fill(said, 120, initial_indent="    ", subsequent_indent="        ")


FACTS = [one.name for one in fields(Setting) if one.name not in ("name", "type", "hint", "optional")]


def declare(cls: type) -> None:
    """Make a class a dataclass of its settings and those of its parents; its constructor stays.

    Raises:
        TypeError: for a declaration that is not one, or hides something, naming the class and the setting.
    """
    for base in cls.__mro__[1:]:
        if strays := [] if "_own_settings" in vars(base) else _declarations(base):
            raise TypeError(
                f"{base.__name__}.{next(iter(strays))} is a setting of a class without settings: "
                f"write class {base.__name__}(AgentSettings), from rlenv.agents.training.settings"
            )
    given, parents, written = _declarations(cls), _merged(cls.__mro__[1:]), inspect.get_annotations(cls)
    _check_free(cls, given, parents)
    own = {name: _made(cls, name, facts, parents.get(name)) for name, facts in given.items()}
    cls.__annotations__ = {name: one.hint for name, one in own.items()}  # other annotations are not fields
    for name, one in own.items():
        setattr(cls, name, field(default=one.default, metadata={"setting": one}))
    dataclass(init=False, eq=False, repr=False, match_args=False)(cls)
    cls.__annotations__ = {**{name: one.type for name, one in own.items()}, **written}
    made: Any = cls
    made._own_settings = own
    made._declared = _merged(cls.__mro__)
    owners = {name: base for base in reversed(cls.__mro__) for name in vars(base).get("_own_settings", ())}
    made.__dataclass_fields__ = {  # dataclass has those of the last parent that has one
        name: vars(owners[name])["__dataclass_fields__"][name] for name in made._declared
    }
    made.__signature__ = _signature(made)
    if vars(cls).get("__doc__"):
        table = "\n".join(one.described for one in made._declared.values())
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nKeyword Args:\n{table}"


def declared_by(cls: Any) -> dict[str, Setting]:
    """Return the settings of a class by name, those that it declares itself first."""
    return cls._declared


def default_of(name: str, cls: Any, kind: str, otherwise: str = "") -> Any:
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


def functions_of(agent: Any) -> list[str]:
    """Return the settings that are functions, one of those that are the same."""
    functions = {id(value): name for name, value in reversed(kept_of(agent).items()) if callable(value)}
    return sorted(functions.values())


def is_kept(cls: Any, name: str) -> bool:
    """Tell whether a checkpoint may keep an argument of this name."""
    return name not in ("policy", "env") and (name not in cls._declared or cls._declared[name].saved)


def check_names(cls: type, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Check that a class takes keyword arguments of these names.

    Raises:
        TypeError: with the unknown name and what is allowed, or what it is called here, in one line.
    """
    names = list(allowed)
    unknown = {name: repr(value) for name, value in given.items() if name not in names}
    for name in unknown:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else "see docs/stable-baselines3.md, docs/from-trl.md; "
        hint += f"allowed: {', '.join(names)}"
        if name in peer_names.KNOWN:
            hint = peer_names.advice(unknown, names)
        if name in inspect.get_annotations(cls):
            hint = f"its value in the class has to be setting({getattr(cls, name, None)!r}, HELP)"
        raise TypeError(f"{cls.__name__} has no setting {name!r}; {hint}")


def _declarations(cls: type) -> dict[str, Mapping[str, Any]]:
    """Return the facts of the settings in a class's body that are not made yet."""
    return {name: each.metadata for name, each in vars(cls).items() if isinstance(each, Field)}


def _merged(classes: Iterable[type]) -> dict[str, Setting]:
    """Return the settings of classes; of those with the same name the first, as attributes are looked up."""
    found: dict[str, Setting] = {}
    for cls in classes:
        found = found | {name: one for name, one in vars(cls).get("_own_settings", {}).items() if name not in found}
    return found


def _check_free(cls: type, given: Iterable[str], parents: Mapping[str, Setting]) -> None:
    """Check that what a class's body names does not hide something of its parents.

    Raises:
        TypeError: for a setting with the name of anything else, and a value with that of a setting or a method.
    """
    for name, value in vars(cls).items():
        where = f"{cls.__name__}.{name}"
        known = [base for base in cls.__mro__[1:] if name in {*vars(base), *inspect.get_annotations(base)}]
        used = [base for base in known if name not in vars(base).get("_own_settings", {})]
        used = [base for base in used if vars(base).get(name, base) is not None]  # None: a setting of some children
        if name in given and used and (_is_ours(used[0]) or hasattr(vars(used[0]).get(name), "__get__")):
            raise TypeError(f"{where}: {used[0].__name__} uses this name; choose another for the setting")
        if name in given or name.startswith("__"):
            continue
        if name in parents and not hasattr(value, "__set__"):  # a property may stand for a setting
            raise TypeError(f"{where} is a setting: write {name} = setting({value!r})")
        if used and callable(getattr(used[0], name, None)) and not (callable(value) or hasattr(value, "__get__")):
            raise TypeError(f"{where} is {value!r}, but {used[0].__name__} has a method {name}(); choose another name")


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("rlenv.agents.")


def _made(cls: type, name: str, facts: Mapping[str, Any], parent: Setting | None) -> Setting:
    """Return a declared setting, with the facts of the parents' that it leaves out.

    Raises:
        TypeError: for a declaration that is not one, naming the class and the setting.
    """
    where, types = f"{cls.__name__}.{name}", inspect.get_annotations(cls)
    for fact in facts:
        if fact not in FACTS:
            raise TypeError(f"{where}: setting() has no fact {fact!r}; allowed: {', '.join(FACTS)}")
    if name not in types and parent is None:
        raise TypeError(f"{where} has no type: write {name}: float = setting(...), or another type")
    made = parent or Setting(name=name, type="", hint=Any)
    if name in types:
        written = types[name] if isinstance(types[name], str) else inspect.formatannotation(types[name])
        made = replace(made, type=written, hint=_hint(cls, name, types[name]))
    open_to_none = type(None) in _alternatives(made.hint) or (made.kind == "other" and "one_of" not in facts)
    if not (parent or open_to_none or facts.keys() & {"default", "by_kind"}):
        raise TypeError(f"{where} has no default: write setting(DEFAULT, ...), or the type {made.type} | None")
    changed, by_kind = dict(facts), made.by_kind
    if facts.get("default") is not None:
        by_kind = {ANY: facts["default"]} if by_kind else {}  # None still stands for a default
        changed.setdefault("shown", "")
    elif "by_kind" in facts:
        changed = {"default": None, "shown": "", **changed}
    for one, other in (("low", "above"), ("above", "low"), ("high", "below"), ("below", "high")):
        if one in facts:
            changed.setdefault(other, None)
    made = replace(made, **changed | {"by_kind": {**by_kind, **facts.get("by_kind", {})}})
    made = replace(made, optional=made.optional or open_to_none or made.default is None)
    for value in (made.default, *made.by_kind.values()):
        if getattr(value, "__hash__", None) is None:
            raise TypeError(f"{where}: the default {value!r} can be changed in place; use a tuple, or None")
    try:
        for value in made.by_kind.values() if made.default is None and made.by_kind else (made.default,):
            if parent is None or facts.keys() & {"default", "by_kind"}:  # else the class narrows what it inherits
                made.check(value)
    except ValueError as error:
        raise TypeError(f"{where}: its default is wrong: {error}") from None
    return made


def _hint(cls: type, name: str, annotation: Any) -> Any:
    """Return the type that an annotation stands for; Any if its names are not imported when the code runs."""
    holder = type(cls.__name__, (), {"__annotations__": {name: annotation}, "__module__": cls.__module__})
    try:
        return get_type_hints(holder)[name]
    except (NameError, AttributeError):
        return Any


def _alternatives(hint: Any) -> set[Any]:
    """Return the types of a union; of any other type, itself."""
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}


def _signature(cls: Any) -> inspect.Signature:
    """Return the signature of a class's constructor, with its settings if it passes keyword arguments on to them."""
    found: dict[str, inspect.Parameter] = {}
    for init in (vars(base).get("__init__") for base in cls.__mro__):
        if inspect.isfunction(init):
            _, *own = inspect.signature(init).parameters.values()
            found = found | {p.name: p for p in own if p.kind is not p.VAR_KEYWORD and p.name not in found}
            if all(p.kind is not p.VAR_KEYWORD for p in own):
                return inspect.Signature(sorted(found.values(), key=lambda p: p.kind))
    for one in (one for name, one in cls._declared.items() if name not in found):
        kind = inspect.Parameter.KEYWORD_ONLY
        found[one.name] = inspect.Parameter(one.name, kind, default=one.default, annotation=one.type)
    return inspect.Signature(sorted(found.values(), key=lambda p: p.kind))


def kept_of(agent: Any) -> dict[str, Any]:
    """Return the attributes for a checkpoint: those named like a setting, or like an argument of a constructor."""
    named = (name for cls in type(agent).__mro__ for name in (*_arguments(cls), *vars(cls).get("_own_settings", ())))
    return {name: getattr(agent, name) for name in named if is_kept(type(agent), name) and hasattr(agent, name)}


def _arguments(cls: type) -> list[str]:
    """Return the arguments of a class's own constructor that have a default."""
    init = vars(cls).get("__init__")
    parameters = inspect.signature(init).parameters.values() if inspect.isfunction(init) else ()
    return [p.name for p in parameters if p.default is not p.empty]


def plain(value: Any) -> Any:
    """Return a number of any library as Python's own, which JSON can hold; everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
