"""The facts of a setting: its type, default, range and words, from which checks, options and pages are made.

Nothing here imports torch, so that `--help` need not.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from ._checks import check_choice, check_count, check_flag, check_number, check_schedule, in_one_line

ANY = "any"  # in `by_kind`: every kind of policy that is not named
IN_WORDS = {"language-model": "text"}  # a kind of policy, and how a default names it
NUMBERS = ("int", "float", "schedule")
HUGE = 2**20  # an upper bound that only an error names: nobody comes near by intention
KINDS = {bool: "bool", str: "text", dict: "table", Mapping: "table"}  # by type; see `Setting.kind`


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of an argument of an agent, of TextGen-v0, or of a job (see `scripts/config`).

    Attributes:
        name: of the argument and the attribute.
        type: the annotation of the attribute, as it is written.
        hint: the type that it stands for; Any if only type checkers know it.
        default: of the constructor. None stands for `by_kind`, or for what `shown` says; () for a table without
            entries, or for no value of several.
        help: one sentence. A setting of a job without it has no option.
        more: what only Python's reader needs.
        by_kind: the defaults that depend on the kind of policy (`Policy.kind`, or `ANY`).
        low: the smallest number; of whole ones 1, if nothing is said.
        high: the largest number.
        above: instead of `low`, the exclusive lower bound of a number.
        below: instead of `high`, the exclusive upper bound of a number.
        one_of: the allowed names, from a Literal.
        checked_by: instead of the type, a function that returns a value as it is kept, or raises a ValueError; of
            several values, each one.
        starts: whether the first value of a function of progress has to be in the range, too.
        fixed: whether it counts only when an agent is made, so that setting the attribute later is an error.
        saved: whether a checkpoint keeps it; not what says where and how an agent runs, rather than how it learns.
        commands: which of "train", "compare" and "sft" have an option for it; others take `--agent-arg`.
        heading: of that option in `--help`; by default of the class that declares the setting.
        flag: the option, such as "--env", if it is not the name.
        envvar: the environment variable that sets the option, too.
        required: whether the option has to be given.
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
    checked_by: Callable[[Any], Any] | None = None
    starts: bool = True
    fixed: bool = False
    saved: bool = True
    commands: tuple[str, ...] = ()
    heading: str = "Updates"
    flag: str = ""
    envvar: str | None = None
    required: bool = False
    shown: str = ""

    @cached_property
    def kind(self) -> str:
        """The kind of values: "bool", "int", "float", "schedule" (number or function), "text", "table" or "other"."""
        types = self._types
        if types & {int, float} and types <= {int, float, Callable}:
            return "schedule" if Callable in types else "float" if float in types else "int"
        if types == {str, Path}:
            return "text"
        return KINDS.get(next(iter(types)), "other") if len(types) == 1 else "other"

    @cached_property
    def _types(self) -> set[Any]:
        """The types of values, without their arguments and None."""
        return {get_origin(each) or each for each in alternatives(self.hint)} - {type(None)}

    @property
    def takes_several(self) -> bool:
        """Whether an option may be given several times: of a table, an entry each."""
        return self.default == ()

    @cached_property
    def optional(self) -> bool:
        """Whether None is allowed, which it is where it ever was a default."""
        return bool(self.by_kind) or type(None) in alternatives(self.hint) or (self.kind == "other" and not self.one_of)

    def read(self, value: Any) -> Any:
        """Return a value as `check` does, which may also be a number as text, or a text that looks like a number.

        They come from files and the command line.
        """
        if isinstance(value, str) and self.kind in NUMBERS and self.checked_by is None:
            with suppress(ValueError):  # which `check` raises with the name
                value = float(value) if value.strip("+-0123456789") else int(value)
        if self.kind == "text" and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return a value as the type's.

        Raises:
            ValueError: naming the setting, the value and the allowed ones.
        """
        if value is None and self.takes_several:
            value = ()
        if value is None and self.optional:
            return value
        if self.kind == "table" and self.checked_by is None:
            return self._table(value)
        if self.takes_several:
            single = isinstance(value, (str, os.PathLike)) or callable(value) or not isinstance(value, Iterable)
            each = [value] if single else value
            return tuple(each if self.checked_by is None else map(self.checked_by, each))
        if self.kind == "text" and not self.one_of:
            value = self._text(value)
        if self.checked_by is not None:
            return self.checked_by(value)
        if self.one_of:
            return check_choice(self.name, value, self.one_of)
        if self.kind == "bool":
            return check_flag(self.name, value)
        if self.kind == "other":
            return self._typed(value)
        if self.kind == "text" or (self.kind == "schedule" and callable(value) and not self.starts):
            return value
        low, high, above, below = self.bounds
        if self.kind == "int":
            most = None if high == math.inf else int(high) - below
            return check_count(self.name, value, None if low == -math.inf else int(low) + above, most)
        check = check_schedule if self.kind == "schedule" else check_number
        return check(self.name, value, low=low, high=high, above=above, below=below)

    def _text(self, value: Any) -> str:
        if not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"{self.name} must be a text, got {in_one_line(value)}")
        text = str(value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{self.name} must be text in UTF-8, got {in_one_line(text)}")
        if self.optional and not text.strip():
            raise ValueError(f"{self.name} must be a text, got {in_one_line(text)}; omit it for none")
        return text

    def _typed(self, value: Any) -> Any:
        """Return a list as a tuple, and a text as a path, if the type has only these: JSON, of checkpoints, has not."""
        types = self._types
        if isinstance(value, list) and tuple in types and list not in types:
            return tuple(value)
        if types == {tuple} and not isinstance(value, tuple):
            raise ValueError(f"{self.name} must be a list, such as [1, 2], or a tuple, got {in_one_line(value)}")
        return Path(value) if isinstance(value, str) and Path in types and str not in types else value

    def _table(self, value: Any) -> dict[str, Any]:
        try:
            table = dict(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name} must be a table, as KEY=VALUE, got {in_one_line(value)}") from None
        of_texts = get_args(self.hint)[1:] == (str,)  # as names of columns, which may look like numbers
        return {str(key): str(each) if of_texts else each for key, each in table.items()}

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
        if self.one_of or self.kind not in NUMBERS:
            return ", ".join(self.one_of)
        low, high, above, below = self.bounds
        least = "" if low == -math.inf else f"{'above' if above else 'at least'} {low}"
        most = "" if high >= HUGE else f"{'below' if below else 'at most'} {high}"
        return " and ".join(filter(None, (least, most)))

    @property
    def option(self) -> str:
        """The option as it is typed."""
        return (self.flag or f"--{self.name.replace('_', '-')}").partition("/")[0]

    @property
    def about(self) -> str:
        """The text for readers of Python."""
        return f"{self.help} {self.more}".strip()

    @property
    def usual(self) -> str:
        """The default in words."""
        own = [f"{value} for {IN_WORDS.get(kind, kind)}" for kind, value in self.by_kind.items() if kind != ANY]
        rest = [f"{'else ' if own else ''}{self.by_kind[ANY]}"] if ANY in self.by_kind else []
        return self.shown or ", ".join(own + rest) or str(self.default)

    @cached_property
    def described(self) -> str:
        """The lines of `help`."""
        allowed = f"Allowed: {self.allowed}. " if self.allowed else ""
        line = f"{self.name}: {self.about} {allowed}Default: {self.usual}."
        return textwrap.fill(line, 120, initial_indent="    ", subsequent_indent="        ")


def alternatives(hint: Any) -> set[Any]:
    """Return the types of a union; of any other type, itself."""
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
