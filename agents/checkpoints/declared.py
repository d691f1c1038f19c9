"""Tables of plain values that others may have written, compared with the TypedDict that declares them."""

from __future__ import annotations

import math
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

MOST_STEPS = 2**53  # that a counter may have: floats, and the files of TensorBoard, hold them exactly
Count = Annotated[int, range(MOST_STEPS + 1)]


def misfit(table: dict[str, Any], declared: Any) -> str:
    """Return which value in a table is not what a TypedDict declares, such as "seconds is -1"; empty if all fit.

    Names that are not declared pass. Numbers have to be finite.

    Args:
        table: to be checked.
        declared: a TypedDict of plain types, dict[str, ...], list[...], unions, other TypedDicts, Any, and `Annotated`
            with what has to contain the value, such as a range.
    """
    for name, kind in get_type_hints(declared, include_extras=True).items():
        if not (_fits(table[name], kind) if name in table else name in declared.__optional_keys__):
            return f"{name} is {table[name]!r:.80}" if name in table else f"{name} is missing"
    return ""


def _fits(value: Any, kind: Any) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        return _fits(value, args[0]) and all(value in allowed for allowed in args[1:])
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in args)
    if origin is list:
        return isinstance(value, list) and all(_fits(each, args[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(key, str) and _fits(value[key], args[1]) for key in value)
    if is_typeddict(kind):
        return isinstance(value, dict) and not misfit(value, kind)
    if kind is float:
        return _fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
