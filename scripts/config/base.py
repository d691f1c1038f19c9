"""A job as a typed object: its settings, from which the options of its command are made."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from rlenv._checks import did_you_mean
from rlenv._json import plain
from rlenv._setting import Setting
from rlenv._settings import WithSettings, declared_by
from rlenv.agents.algorithms.options import SETTINGS

from .defaults import about, advice, by_agent, shown_default
from .parameters import read

C = TypeVar("C", bound="Config")
LOCAL = (  # options of one invocation, not of the run
    "log_dir", "overwrite", "as_json", "resume", "trust", "dry_run", "report", "process_timeout",
    "plan_processes", "plan_memory",
)  # fmt: skip
EXCLUSIVE = (("timesteps", "episodes"), ("save_every", "save_every_updates"))
PLAIN = (str, bool, int, float, type(None))


class _Chosen:
    """The attributes of a config that have no option."""

    settings: dict[str, Any]
    chosen: frozenset[str]
    typed: frozenset[str]
    _made = False  # whether the constructor has ended


class Config(_Chosen, WithSettings):
    """The options of a job: keyword arguments in Python, options of a command, lines of a file, by the same names.

    Attributes:
        chosen: the names that were given, in any of these ways.
        typed: the names that were given in Python or on the command line, and not in a file.
    """

    heading: ClassVar[str] = "Options"
    declares: ClassVar[str] = ""  # the command whose options the settings of agents are

    if not TYPE_CHECKING:

        def __new__(cls, **values: Any) -> Self:
            """Record the names of the given settings, also if they have their defaults as values."""
            for name in values.keys() - declared_by(cls).keys() if cls.declares else ():
                if name in by_agent():
                    how = f"settings={{{name!r}: ...}}, or with the agent: agent=GRPO.config({name}=...)"
                    raise TypeError(f"{cls.__name__}: {name} is a setting of the agent; pass it as {how}")
            new = super().__new__(cls, **values)
            settings = values.get("settings", ())
            # dataclasses.replace(config) and TrainConfig(**asdict(config)) pass every field.
            given = cls._unusual(values) if len(values) == len(declared_by(cls)) else values
            new.chosen = new.typed = frozenset([*given, *(settings if isinstance(settings, Mapping) else ())])
            return new

        def __setattr__(self, name: str, value: Any) -> None:
            """Check a value that is assigned to a finished config, as the constructor does; it counts as given."""
            if not self._made or name in ("chosen", "typed"):
                return super().__setattr__(name, value)
            new, before = replace(self, **{name: value}), getattr(self, "settings", {})
            given = {name} | {each for each, one in getattr(new, "settings", {}).items() if before.get(each) is not one}
            vars(self).update(vars(new), chosen=self.chosen | given, typed=self.typed | given)
            return None

    def __post_init__(self) -> None:
        """Check the given values, and keep each as its type.

        Raises:
            ValueError: in one line, for a value that is not allowed.
        """
        for name, one in declared_by(type(self)).items():
            if name in self.chosen or one.takes_several:
                setattr(self, name, read(one, getattr(self, name)))
        self._check_together()
        self._made = True

    def _check_together(self) -> None:
        if twice := sorted(getattr(self, "settings", {}).keys() & declared_by(type(self)).keys()):
            raise ValueError(f"settings name {twice[0]}, a field of {type(self).__name__}; pass {twice[0]} by itself")
        super()._check_together()

    def __eq__(self, other: object) -> bool:
        names = declared_by(type(self))
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # its values may be set

    def __repr__(self) -> str:
        values = self._unusual({name: getattr(self, name) for name in declared_by(type(self))})
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @classmethod
    def _unusual(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of fields that differ from the defaults."""
        usual = vars(cls())
        return {name: value for name, value in values.items() if written(value) != written(usual[name])}

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
            if name not in declared_by(type(self)):
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            vars(new)[name] = value
        return new

    def set(self, **settings: Any) -> Self:
        """Return the config with other settings of the agent; None leaves one out."""
        both = {**self.settings, **settings}
        return self.but(settings={name: value for name, value in both.items() if value is not None})

    def into(self, cls: type[C], **changes: Any) -> C:
        """Return a config of another job with the fields that both have, and these changes."""
        new = cls()
        for name in declared_by(cls).keys() & declared_by(type(self)).keys():
            vars(new)[name] = getattr(self, name)
        new.chosen, new.typed = self.chosen, self.typed
        return new.but(**changes)

    def flat(self) -> dict[str, Any]:
        """Return the values as config.json has them: settings with an option beside the fields, objects by name."""
        settings, known, own = getattr(self, "settings", {}), options_of(type(self)), declared_by(type(self))
        values = {name: getattr(self, name) for name in sorted(own.keys() - {*LOCAL, "settings"})}
        values |= {
            name: named(value)
            for name, value in values.items()
            if own[name].kind == "other" and not own[name].takes_several and not isinstance(value, PLAIN)
        }
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
        known = options_of(cls)
        return known[name].option if name in known else f"--{name.replace('_', '-')}"


def options_of(cls: type[Config]) -> dict[str, Setting]:
    """Return the settings of a config that are options, by name, in the order of its groups, then those of agents."""
    own = {name: one for name, one in declared_by(cls).items() if one.help}
    of_agents = declared(cls.declares) if cls.declares else {}
    return own | {name: one for name, one in of_agents.items() if name not in own}


@cache
def declared(command: str) -> dict[str, Setting]:
    """Return the settings that agents declare for a command ("train", "compare" or "sft"), with the types alone.

    Which values are allowed depends on the agent, which checks them.
    """
    found = {name: (next(iter(agents.values())), agents) for name, agents in by_agent(SETTINGS).items()}
    free: dict[str, Any] = {"default": None, "by_kind": {}, "one_of": (), "checked_by": None, "low": -math.inf}
    free |= dict.fromkeys(("high", "above", "below"))
    return {
        name: replace(first, help=about(agents), shown=shown_default(agents), **free)
        for name, (first, agents) in found.items()
        if command in first.commands
    }


def read_file(cls: type[Config], path: Path) -> dict[str, Any]:
    """Return the values in a file of YAML or JSON, as `read_table` does.

    Raises:
        ValueError: in one line, for a file that is not a table of options of the command.
    """
    import yaml  # slow

    class Loader(yaml.SafeLoader):
        """YAML 1.1, in which 1e-3 is a text and 1.0e-3 a number, with both as numbers; no key may occur twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            once((str(key.value), None) for key, _ in node.value)
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+e[-+]?\d+$", re.I), "+-0123456789")
    kind: str = "JSON"
    parse: Any = partial(json.loads, object_pairs_hook=once)
    if path.suffix in (".yaml", ".yml"):
        kind, parse = "YAML", partial(yaml.load, Loader=Loader)
    try:
        table = parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError) as error:  # !!bool x is a KeyError
        reason = " ".join(str(error).split())  # YAML's messages have several lines
        raise ValueError(f"{path} is not a valid {kind} file: {reason}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path} must hold a table of options")
    return read_table(cls, table, str(path))


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs of a key and a value as a table.

    Raises:
        ValueError: for a key that occurs twice; one of its values would be dropped.
    """
    table = dict[str, Any]()
    for key, value in pairs:
        if key in table:
            raise ValueError(f"it sets {key!r} twice; leave one of the two")
        table[key] = value
    return table


def read_table(cls: type[Config], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a table of options by the names of the fields; those of agents are in "settings".

    Args:
        cls: of the config.
        table: by the names of options, as they are typed or as in Python.
        where: in errors, the file.

    Raises:
        ValueError: in one line, for an unknown option, or a value that it does not take.
    """
    options, values = options_of(cls), dict[str, Any]()
    known = {one.option.lstrip("-").replace("-", "_"): name for name, one in options.items()}
    known |= {name: name for name in options}
    for key, value in table.items():
        name = known.get(str(key).replace("-", "_"))
        if name is None:
            hint = advice(str(key), options) or did_you_mean(key, known).strip() or "see --help-all"
            raise ValueError(f"{where} sets the unknown option {key!r}; {hint}")
        if name in values:
            raise ValueError(f"{where} sets {name} twice, as {key!r}, too; leave one of the two")
        if value is not None:
            try:
                values[name] = read(replace(options[name], name=str(key)), value)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
    return by_field(cls, values)


def by_field(cls: type[Config], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options as a config takes them: options without a field are its "settings"."""
    settings = {name: value for name, value in options.items() if name not in declared_by(cls)}
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


def written(value: Any) -> Any:
    """Return a value as config.json has it: numbers of numpy as Python's, paths as texts, other objects by name."""
    if isinstance(value, Mapping):
        return {str(name): written(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    if isinstance(value, PLAIN):
        return value
    try:
        return written(plain(value))
    except TypeError:
        return named(value)


def named(value: Any) -> str:
    """Return how an object or function of Python is named in config.json, in <>; a text as it is."""
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, type) and vars(value).get("name") in SETTINGS:
        return str(vars(value)["name"])  # of an agent
    which = value if hasattr(value, "__qualname__") else type(value)
    return f"<{which.__module__}.{which.__qualname__}>"


def check_free(flag: str, values: Iterable[str], options: Mapping[str, Setting]) -> None:
    """Refuse names for which there is an option.

    Raises:
        ValueError: naming the option.
    """
    for name in values:
        if name in options:
            raise ValueError(f"{flag} {name}: there is an option for it, {options[name].option}")
