"""The examples of `json_schema`: questions, documents that answer them, schemas, and documents that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def _shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _format(name: str) -> dict[str, str]:
    return {"type": "string", "format": name}


_TEXT, _COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number"}
_TREE = {"$ref": "#/$defs/node"}
_MACHINE = {"id": "123e4567-e89b-12d3-a456-426614174000", "at": "192.0.2.1", "or": "::1"}

# Question, right documents (the first one is the reference), schema, wrong documents by family.
EXAMPLES: list[tuple[str, Sequence[Any], Mapping[str, Any], Mapping[str, Sequence[Any]]]] = [
    ("Who wrote Emma, and when did it appear?",
     [{"author": "Jane Austen", "year": 1815}, {"author": "J. Austen", "year": 1815.0}],
     _shape(author=_TEXT, year=_COUNT), {"nonsense-of-the-form": [{"author": "?", "year": 0}]}),
    ("List three prime numbers.", [[2, 3, 5], [7, 11, 13], [2, 2147483647, 1000000007]],
     {"type": "array", "items": {"type": "integer", "minimum": 2}, "minItems": 3}, {}),
    ("Name a colour of the rainbow.", [{"colour": "red"}, {"colour": "green"}, {"colour": "blue"}],
     _shape(colour={"enum": ["red", "green", "blue"]}), {}),
    ("What does a loaf cost, and is there one left?",
     [{"price": 3.2, "left": None}, {"price": 6.02e23, "left": True}], _shape(price=_NUMBER, left={}), {}),
    ("Give a tree of two nodes.", [{"name": "root", "children": [{"name": "leaf", "children": []}]}],
     {**_TREE, "$defs": {"node": _shape(name=_TEXT, children={"type": "array", "items": _TREE})}}, {}),
    ("When was the leap day, and whom do we ask?",
     [{"day": "2024-02-29", "mail": "jane@example.com"}, {"day": "2000-02-29", "mail": "j.a+b@mail.example"}],
     _shape(day=_format("date"), mail=_format("email")),
     {"broken-format": [{"day": "2023-02-29", "mail": "a@b"}, {"day": "2024-02-29", "mail": "jane"}]}),
    ("Which machine is it?", [_MACHINE], _shape(id=_format("uuid"), at=_format("ipv4"), **{"or": _format("ipv6")}),
     {"broken-format": [{**_MACHINE, **wrong} for wrong in ({"id": "1"}, {"at": "192.0.2.256"}, {"or": ":"})]}),
    ("Is it a circle with a radius or a square with a side?", [{"circle": {"radius": 2}}, {"square": {"side": 0.1}}],
     {"oneOf": [_shape(circle=_shape(radius=_NUMBER)), _shape(square=_shape(side=_NUMBER))]}, {}),
    ("How many of each fruit are there?",
     [{"pears": 2, "plums": 3}, {"figs": 1, "dates": 0}, {"crème brûlée": 7, "a\"b\\c\n": 1}],
     {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}, {}),
    ("Give a row, a column and what stands there.", [[1, 2, "x"], [0, 0, "é\U0001f600"]],
     {"type": "array", "prefixItems": [_COUNT, _COUNT, {"type": "string"}], "items": False, "minItems": 3}, {}),
]  # fmt: skip
