"""A job as a typed object: dataclass fields, from which the options of its command are made."""

from __future__ import annotations

import ast
import copy
import difflib
import inspect
import json
import os
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import click

from rlenv.agents.algorithms import SETTINGS
from rlenv.agents.settings import check_names

from .defaults import about, advice, by_agent, shown_default
from .parameters import KeyValue, no_value

C = TypeVar("C", bound="Config")
_PARAMETERS: dict[tuple[Any, ...], dict[str, click.Option]] = {}  # by class and agents: making them takes a while
LOCAL = (  # options of one invocation, not of the run
    "log_dir", "overwrite", "as_json", "resume", "trust_checkpoint", "dry_run", "report", "process_timeout",
    "plan_processes", "plan_memory",
)  # fmt: skip
EXCLUSIVE = (("timesteps", "episodes"), ("save_every", "save_every_updates"))
_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "schedule": float, "str": str}


def option(
    *,
    default: Any,
    help: str,
    flag: str = "",
    kind: Any = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    shown: str | None = None,
    heading: str = "",
    required: bool = False,
    envvar: str | None = None,
    objects: bool = False,
) -> Any:
    """Return a field of a config that is an option of its command.

    Args:
        default: None for an argument that is not passed on. An option whose default is a tuple or a table may be
            given several times.
        help: one sentence.
        flag: such as "--env", if it is not the name.
        kind: click's type of the values; by default the annotation's, KEY=VALUE for a table.
        low: the smallest number.
        high: the largest number.
        above: instead of `low`, the exclusive lower bound of a number.
        shown: the default in words.
        heading: in `--help-all`, if not the class's.
        required: whether it has to be given.
        envvar: the environment variable that sets it, too.
        objects: whether Python may pass an object, a function or a list in place of its name.
    """
    facts = dict(locals())
    return field(default_factory=dict, metadata=facts) if default == {} else field(default=default, metadata=facts)


class _WithFields:
    """The docstring of a config, with the help of its fields, which is made when somebody reads it."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, config: Any, cls: type[Config]) -> str:
        own = {name: one for name, one in parameters(cls).items() if name in field_names(cls)}
        lines = (
            textwrap.fill(f"{name}: {one.help}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)
            for name, one in own.items()
        )
        return "\n".join([inspect.cleandoc(self.text or ""), "", "Args:", *lines])


@dataclass_transform(kw_only_default=True, field_specifiers=(option, field))
def with_options(cls: type[C]) -> type[C]:
    """Return a config or a group of its options as a dataclass; jedi asks for it at each class, not at their base."""
    text = cls.__doc__
    dataclass(kw_only=True, repr=False)(cls)
    cls.__doc__ = _WithFields(text)  # type: ignore[assignment]
    return cls


class Config:
    """The options of a job: keyword arguments in Python, options of a command, lines of a file, by the same names.

    Every subclass is a dataclass, by `with_options`.

    Attributes:
        chosen: the names that were given, in any of these ways.
        typed: the names that were given in Python or on the command line, and not in a file.
    """

    heading: ClassVar[str] = "Options"
    declares: ClassVar[str] = ""  # the command whose options the settings of agents are
    settings: dict[str, Any]
    chosen: frozenset[str]
    typed: frozenset[str]

    def __new__(cls, **values: Any) -> Self:
        """Record the names of the given fields, also if they have their defaults as values."""
        for name in values.keys() & by_agent().keys() - field_names(cls) if cls.declares else ():
            how = f"settings={{{name!r}: ...}}, or with the agent: agent=GRPO.config({name}=...)"
            raise TypeError(f"{cls.__name__}: {name} is a setting of the agent; pass it as {how}")
        check_names(cls, values, field_names(cls))
        new = super().__new__(cls)
        new.chosen = new.typed = frozenset(values) | frozenset(values.get("settings", ()))
        return new

    def __post_init__(self) -> None:
        """Check values from Python as the command checks its options.

        Raises:
            ValueError: in one line, for a value that the option does not take.
        """
        if twice := sorted(getattr(self, "settings", {}).keys() & field_names(type(self))):
            raise ValueError(f"settings name {twice[0]}, a field of {type(self).__name__}; pass {twice[0]} by itself")
        for name in self.typed & parameters(type(self)).keys():
            value = getattr(self, name, None)
            if value is not None and not _is_object(type(self), name, value) and is_plain(value):
                setattr(self, name, converted(type(self), name, value))

    def __repr__(self) -> str:
        usual = vars(type(self)())
        values = {
            name: value
            for name, value in vars(self).items()
            if name in field_names(type(self)) and value != usual[name]
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the config in a file of YAML or JSON, such as a recipe or the config.json of a run.

        Raises:
            ValueError: in one line, for a file that is not a table of options of the command.
        """
        config = cls(**read_file(cls, Path(path)))
        config.typed = frozenset()
        return config

    def but(self, **changes: Any) -> Self:
        """Return a copy of the config with other values, in which the same fields count as chosen by the user."""
        new = copy.copy(self)
        for name, value in changes.items():
            if name not in field_names(type(self)):
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            setattr(new, name, value)
        return new

    def set(self, **settings: Any) -> Self:
        """Return the config with other settings of the agent; None leaves one out."""
        both = {**self.settings, **settings}
        return self.but(settings={name: value for name, value in both.items() if value is not None})

    def into(self, cls: type[C], **changes: Any) -> C:
        """Return a config of another job with the fields that both have, and these changes."""
        new = cls()
        for name in field_names(cls) & field_names(type(self)):
            setattr(new, name, getattr(self, name))
        new.chosen, new.typed = self.chosen, self.typed
        return new.but(**changes)

    def flat(self) -> dict[str, Any]:
        """Return the values as config.json has them: settings with an option beside the fields, objects by name."""
        settings, known = getattr(self, "settings", {}), parameters(type(self))
        values = {name: getattr(self, name) for name in sorted(field_names(type(self)) - {*LOCAL, "settings"})}
        values |= {name: named(each) for name, each in values.items() if _is_object(type(self), name, each)}
        values |= {name: value for name, value in settings.items() if name in known}
        values["settings"] = {name: value for name, value in settings.items() if name not in known}
        return {name: value for name, value in written(values).items() if value not in (None, [], {})}

    def changed(self) -> dict[str, Any]:
        """Return the `flat` values that differ from the defaults."""
        usual = type(self)().flat()
        return {name: value for name, value in self.flat().items() if value != usual.get(name)}

    @classmethod
    def flag(cls, name: str) -> str:
        """Return the option of a field or setting as it is typed."""
        known = parameters(cls)
        return known[name].opts[0] if name in known else f"--{name.replace('_', '-')}"


def field_names(cls: type[Config]) -> frozenset[str]:
    """Return the names of the fields of a config."""
    return frozenset(one.name for one in fields(cls))  # type: ignore[arg-type]


def parameters(cls: type[Config]) -> dict[str, click.Option]:
    """Return the options of a config by name, in the order of its groups, including the agents' settings."""
    key = (cls, *SETTINGS)
    if key not in _PARAMETERS:
        _PARAMETERS[key] = _options(cls)
    return _PARAMETERS[key]


def _options(cls: type[Config]) -> dict[str, click.Option]:
    options: dict[str, click.Option] = {}
    by_name = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
    for group in cls.__mro__:
        for name in vars(group).get("__annotations__", ()):
            one = by_name.get(name)
            if one is not None and one.metadata and name not in options:
                options[name] = _option(one, getattr(group, "heading", "Options"))
    if cls.declares:
        options |= {name: one for name, one in declared(cls.declares).items() if name not in options}
    return options


def declared(command: str) -> dict[str, click.Option]:
    """Return the options for the settings that the agents declare for a command ("train", "compare" or "sft")."""
    options = {}
    for name, of_agents in by_agent(SETTINGS).items():
        first = next(iter(of_agents.values()))
        if command in first.commands:
            kind, shown = _TYPES.get(first.kind, str), shown_default(of_agents)
            options[name] = _click_option(name, "", kind, first.heading, help=about(of_agents), show_default=shown)
    return options


def _option(one: Field[Any], heading: str) -> click.Option:
    """Return the option of a field."""
    facts, written_type = one.metadata, str(one.type).removesuffix(" | None")
    kind, several = facts["kind"], facts["default"] in ((), {})
    if kind is None and written_type.startswith("Literal["):
        kind = click.Choice(ast.literal_eval(written_type.removeprefix("Literal")))
    elif kind is None:
        kind = KeyValue("str]" in written_type) if several else _TYPES[written_type]
    low, high, above = facts["low"], facts["high"], facts["above"]
    if (low, high, above) != (None, None, None):
        least, is_open = (low, False) if above is None else (above, True)
        kind = (click.IntRange if kind is int else click.FloatRange)(least, high, min_open=is_open)
    more = {"show_default": facts["shown"] or True, "multiple": several, "envvar": facts["envvar"]}
    if not facts["required"]:
        more["default"] = None if several else facts["default"]
    help = facts["help"] + "  [required]" * facts["required"]
    built: Any = _click_option(one.name, facts["flag"], kind, facts["heading"] or heading, help=help, **more)
    built.needed, built.objects = facts["required"], facts["objects"]
    return built


def _click_option(name: str, flag: str, kind: Any, heading: str, **more: Any) -> click.Option:
    """Return an option under a heading; one that is not off by default has a second flag, which turns it off."""
    flags = flag or f"--{name.replace('_', '-')}"
    if not flag and kind is bool and more.get("default") is not False:
        flags += f"/--no-{flags[2:]}"
    built: Any = click.Option([flags, name], type=kind, is_flag=kind is bool, **more)
    built.heading = heading
    return built


def converted(cls: type[Config], name: str, value: Any, where: str = "") -> Any:
    """Return a value from Python or a file, converted to the type of its option.

    Raises:
        ValueError: in one line, for a value that the option does not take.
    """
    one = parameters(cls)[name]
    if isinstance(value, (list, tuple)) and name in ("verifier", "agents", "lora_targets"):
        value = ",".join(map(str, value))
    try:
        if isinstance(one.type, KeyValue):
            pairs = value.items() if isinstance(value, Mapping) else value
            if isinstance(pairs, (str, int, float)) or not all(len(pair) == 2 for pair in pairs):
                raise ValueError(f"{where}{name}={value!r} is not a table of KEY=VALUE")
            return dict(one.type.convert(tuple(pair), one, None) for pair in pairs)
        if one.multiple:
            each = [value] if isinstance(value, (str, int)) else value
            return tuple(one.type.convert(member, one, None) for member in each)
        if isinstance(value, (list, tuple, dict)):
            raise ValueError(f"{where}{name} is a list or table, {value!r}; allowed: a value")
        plain = one.type.convert(value, one, None)
    except click.BadParameter as error:
        raise ValueError(f"{where}{name}={value!r}: {error.message}") from error
    if reason := no_value(plain):
        raise ValueError(f"{where}{name} {reason}")
    return plain


def read_file(cls: type[Config], path: Path) -> dict[str, Any]:
    """Return the values in a file of YAML or JSON, as `read_table` does.

    Raises:
        ValueError: in one line, for a file that is not a table of options of the command.
    """
    import yaml  # slow

    class Loader(yaml.SafeLoader):
        """YAML 1.1, in which 1e-3 is a text and 1.0e-3 a number, with both as numbers."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+e[-+]?\d+$", re.I), "+-0123456789")
    is_yaml = path.suffix in (".yaml", ".yml")
    kind, parse = ("YAML", partial(yaml.load, Loader=Loader)) if is_yaml else ("JSON", json.loads)
    try:
        table = parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())  # YAML's messages have several lines
        raise ValueError(f"{path} is not a valid {kind} file: {reason}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path} must hold a table of options")
    return read_table(cls, table, f"{path} sets ")


def read_table(cls: type[Config], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a table of options by the names of the fields; those of agents are in "settings".

    Args:
        cls: of the config.
        table: by the names of options, as they are typed or as in Python.
        where: in errors, before the name of an option.

    Raises:
        ValueError: in one line, for an unknown option, or a value that it does not take.
    """
    known, values = _spellings(cls), dict[str, Any]()
    for key, value in table.items():
        name = known.get(str(key).replace("-", "_"))
        if name is None:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = advice(str(key), parameters(cls)) or (f"did you mean {close[0]!r}?" if close else "see --help-all")
            raise ValueError(f"{where}the unknown option {key!r}; {hint}")
        if value is not None:
            values[name] = converted(cls, name, value, where)
    return by_field(cls, values)


def by_field(cls: type[Config], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options as a config takes them: options without a field are its "settings"."""
    settings = {name: value for name, value in options.items() if name not in field_names(cls)}
    fields_alone = {name: value for name, value in options.items() if name not in settings}
    return fields_alone | ({"settings": {**fields_alone.get("settings", {}), **settings}} if settings else {})


def overlaid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file, or of the run that is resumed, in which those given now replace others.

    One of two options that exclude each other replaces the other one; settings of the agent are added.
    """
    pairs = [each for pair in EXCLUSIVE for each in (pair, pair[::-1])]
    replaced = {other for name, other in pairs if above.get(name) is not None}
    kept = {name: value for name, value in below.items() if name not in replaced}
    settings = {**below.get("settings", {}), **above.get("settings", {})}
    return kept | above | ({"settings": settings} if settings else {})


def _spellings(cls: type[Config]) -> dict[str, str]:
    """Return the names of a config's options by their spellings in a file: as typed, or as in Python."""
    known = parameters(cls)
    typed = {flag.lstrip("-").replace("-", "_"): name for name, one in known.items() for flag in one.opts}
    return typed | {name: name for name in known}


def written(value: Any) -> Any:
    """Return a value as config.json has it: a path as its text, an object or function of Python as its name."""
    if isinstance(value, Mapping):
        return {str(name): written(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else named(value)


def named(value: Any) -> str:
    """Return how an object or function of Python is named in config.json, in <>; a text as it is."""
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, type) and vars(value).get("name") in SETTINGS:
        return str(vars(value)["name"])  # of an agent
    which = value if hasattr(value, "__qualname__") else type(value)
    return f"<{which.__module__}.{which.__qualname__}>"


def is_plain(value: Any) -> bool:
    """Return whether a value can be written in a file, and is not an object or function of Python."""
    try:
        json.dumps(value, default=os.fspath)
    except TypeError:
        return False
    return True


def _is_object(cls: type[Config], name: str, value: Any) -> bool:
    """Tell whether a value is passed by Python in place of a name."""
    takes = getattr(parameters(cls).get(name), "objects", False)
    return takes and not (value is None or isinstance(value, (str, Path)))


def check_free(flag: str, values: Iterable[str], options: Collection[str]) -> None:
    """Refuse names for which there is an option.

    Raises:
        ValueError: naming the option.
    """
    for name in values:
        if name in options:
            raise ValueError(f"{flag} {name}: there is an option for it, --{name.replace('_', '-')}")
