"""One setting: what is declared of it, and how its values are checked."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, get_args, get_origin, overload

from .checks import check_choice, check_count, check_flag, check_number, check_schedule

ANY = "any"  # in `by_kind`: every kind of policy that is not named
SCHEDULES = {"Scheduled", "Callable[[float], float]"}  # types of functions of the remaining progress
RANGE = re.compile(r"([\[(])(\S+), (\S+)([\])])")
G = TypeVar("G")
V = TypeVar("V")


class Given(Generic[G, V]):
    """The type of an attribute that is given as G and kept as V, in annotations only."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> V: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Tell type checkers what is kept."""
        raise NotImplementedError

    def __set__(self, instance: object, value: G) -> None:
        """Tell type checkers what is given."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is declared of a setting.

    Attributes:
        name: of the argument and the attribute.
        type: the annotation, which says how values are checked; of `Given`, the first part.
        default: of the constructor. None stands for `by_kind`, or for what `shown` says.
        by_kind: the defaults that depend on the kind of policy (`Policy.kind`, or `ANY`).
        range: of numbers, "[0, 1)" for at least 0 and below 1; "inf" for no limit. By default any, and counts from 1.
        choices: the allowed names.
        checked: whether `check` does so; otherwise `use_settings`, for what depends on other settings.
        starts: whether the first value of a function of progress has to be in the range, too.
        help: one sentence.
        more: what only Python's reader needs.
        saved: whether a checkpoint keeps it; not what says where and how an agent runs, rather than how it learns.
        commands: those of "train", "compare" and "sft" that have an option for it; others take `--agent-arg`.
        heading: of that option in `--help`.
        shown: how the default is described, if not by its value.
    """

    name: str
    type: str
    default: Any = None
    by_kind: Mapping[str, Any] = field(default_factory=dict)
    range: str = ""
    choices: Iterable[str] | None = None
    checked: bool = True
    starts: bool = True
    help: str = ""
    more: str = ""
    saved: bool = True
    commands: tuple[str, ...] = ()
    heading: str = "Updates"
    shown: str = ""

    @property
    def kind(self) -> str:
        """Whether values are "bool", "int", "float", "schedule" (a number, or a function of progress) or "other"."""
        types = set(_alternatives(self.type)) - {"None"}
        if types & SCHEDULES and types <= SCHEDULES | {"int", "float"}:
            return "schedule"
        if types and types <= {"int", "float"}:
            return "float" if "float" in types else "int"
        return "bool" if types == {"bool"} else "other"

    @property
    def takes_none(self) -> bool:
        """Whether the type allows None."""
        return "None" in _alternatives(self.type)

    def check(self, value: Any) -> Any:
        """Return a value as the type's.

        Raises:
            ValueError: naming the setting, the value and what is allowed.
        """
        if not self.checked or (value is None and self.takes_none):
            return value
        if self.kind == "bool":
            return check_flag(self.name, value)
        if self.kind == "other":
            return value if self.choices is None else check_choice(self.name, value, self.choices)
        if callable(value) and self.kind == "schedule" and not self.starts:
            return value
        low, high, above, below = self.bounds
        if self.kind == "int":
            least = None if low == -math.inf else math.floor(low) + 1 if above else math.ceil(low)
            most = None if high == math.inf else math.ceil(high) - 1 if below else math.floor(high)
            return check_count(self.name, value, least, most)
        check = check_schedule if self.kind == "schedule" else check_number
        return check(self.name, value, low=low, high=high, above=above, below=below)

    @property
    def bounds(self) -> tuple[float, float, bool, bool]:
        """The smallest and the largest value, and whether these are excluded."""
        text = self.range or ("[1, inf)" if self.kind == "int" else "[-inf, inf]")
        found = RANGE.fullmatch(text)
        if found is None:
            raise ValueError(f"range={text!r}")
        low, high = (int(end) if end.lstrip("-").isdecimal() else float(end) for end in found.group(2, 3))
        if not low <= high:
            raise ValueError(f"range={text!r}")
        return low, high, found[1] == "(", found[4] == ")"

    @property
    def allowed(self) -> str:
        """What values may be, in words; empty if the type says it."""
        if self.choices is not None:
            return ", ".join(self.choices)
        if not self.checked or self.kind in ("bool", "other"):
            return ""
        low, high, above, below = self.bounds
        least = "" if low == -math.inf else f"{'above' if above else 'at least'} {low}"
        most = "" if high == math.inf else f"{'below' if below else 'at most'} {high}"
        return " and ".join(filter(None, (least, most)))

    @property
    def about(self) -> str:
        """What Python's reader is told."""
        return f"{self.help} {self.more}".strip()

    @property
    def usual(self) -> str:
        """The default in words."""
        own = [f"{value} for {kind}" for kind, value in self.by_kind.items() if kind != ANY]
        rest = [f"{'else ' if own else ''}{self.by_kind[ANY]}"] if ANY in self.by_kind else []
        return self.shown or ", ".join(own + rest) or repr(self.default)


def type_of(annotation: Any) -> str:
    """Return the text of an annotation; of `Given`, that of the first part."""
    if get_origin(annotation) is Given:
        annotation = get_args(annotation)[0]
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return next(_parts(text[len("Given[") : -1], ",")) if text.startswith("Given[") else text


def _alternatives(text: str) -> list[str]:
    """Return the types of a union, without their modules."""
    found = []
    for part in _parts(re.sub(r"\s*,\s*", ", ", text), "|"):
        name, _, inner = re.sub(r"^[\w.]+\.", "", part).partition("[")
        if name == "Optional":
            found += [*_alternatives(inner[:-1]), "None"]
        elif name == "Union":
            found += [one for each in _parts(inner[:-1], ",") for one in _alternatives(each)]
        else:
            found.append(f"{name}[{inner}" if inner else name.replace("NoneType", "None"))
    return found


def _parts(text: str, mark: str) -> Iterator[str]:
    """Yield the parts of an annotation between marks that are not in brackets."""
    depth = start = 0
    for i, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == mark and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()
