"""The examples of `json_schema`: questions, documents that answer them, schemas, and documents that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def _shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _format(name: str) -> dict[str, str]:
    return {"type": "string", "format": name}


_TEXT, _COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
_BOOLEAN, _NUMBER = {"type": "boolean"}, {"type": "number"}
_TREE = {"$ref": "#/$defs/node"}

# Question, right documents (the first one is the reference), schema, wrong documents by family.
EXAMPLES: list[tuple[str, Sequence[Any], Mapping[str, Any], Mapping[str, Sequence[Any]]]] = [
    (
        "Who wrote Emma, and when did it appear?",
        [{"author": "Jane Austen", "year": 1815}, {"author": "J. Austen", "year": 1815.0}],
        _shape(author=_TEXT, year=_COUNT),
        {"nonsense-of-the-form": [{"author": "?", "year": 0}]},
    ),
    (
        "List three prime numbers.",
        [[2, 3, 5], [7, 11, 13], [2, 2147483647, 1000000007]],
        {"type": "array", "items": {"type": "integer", "minimum": 2}, "minItems": 3},
        {},
    ),
    ("Is water wet?", [{"wet": True}], _shape(wet=_BOOLEAN), {"nonsense-of-the-form": [{"wet": False}]}),
    (
        "Name a colour of the rainbow.",
        [{"colour": "red"}, {"colour": "green"}, {"colour": "blue"}],
        _shape(colour={"enum": ["red", "green", "blue"]}),
        {},
    ),
    (
        "Give a point in the plane.",
        [{"x": 0.5, "y": -2}, {"x": 0, "y": 0}, {"x": 1e-9, "y": 6.02e23}],
        _shape(x=_NUMBER, y=_NUMBER),
        {},
    ),
    (
        "Name a town and its country.",
        [{"town": "Oslo", "country": "Norway"}, {"town": "São Paulo", "country": "Brazil"}],
        _shape(town=_TEXT, country=_TEXT),
        {"nonsense-of-the-form": [{"town": "?", "country": "?"}]},
    ),
    (
        "What does a loaf cost, and is there one left?",
        [{"price": 3.2, "left": None}, {"price": 3.2, "left": True}],
        _shape(price=_NUMBER, left={}),
        {},
    ),
    (
        "Give a tree of two nodes.",
        [{"name": "root", "children": [{"name": "leaf", "children": []}]}],
        {**_TREE, "$defs": {"node": _shape(name=_TEXT, children={"type": "array", "items": _TREE})}},
        {},
    ),
    (
        "When was the first day of March 2024, and the leap day before it?",
        [{"first": "2024-03-01", "leap": "2024-02-29"}, {"first": "2024-03-01", "leap": "2000-02-29"}],
        _shape(first=_format("date"), leap=_format("date")),
        {"broken-format": [{"first": "2024-03-01", "leap": "2023-02-29"}, {"first": "1 March", "leap": "29 February"}]},
    ),
    (
        "When did the train leave, and when is the next one?",
        [
            {"left": "2024-05-01T09:30:00Z", "next": "10:00:00+02:00"},
            {"left": "1990-12-31t23:59:60.5z", "next": "00:00:00.25-11:30"},
        ],
        _shape(left=_format("date-time"), next=_format("time")),
        {"broken-format": [{"left": "2024-05-01", "next": "10:00"}, {"left": "09:30", "next": "25:00:00Z"}]},
    ),
    (
        "Who is to be written to, and where is more to be read?",
        [
            {"mail": "jane@example.com", "page": "https://example.com/a?b#c"},
            {"mail": "j.a+b@mail.example.co.uk", "page": "http://[2001:db8::1]:8080/%20"},
            {"mail": "postmaster@[192.0.2.1]", "page": "urn:isbn:0141439580"},
        ],
        _shape(mail=_format("email"), page=_format("uri")),
        {"broken-format": [{"mail": "@", "page": "https://example.com"}, {"mail": "a@b.c", "page": "my page"}]},
    ),
    (
        "Which machine is it?",
        [{"id": "123e4567-e89b-12d3-a456-426614174000", "name": "host.example", "at": "192.0.2.1", "or": "::1"}],
        _shape(id=_format("uuid"), name=_format("hostname"), at=_format("ipv4"), **{"or": _format("ipv6")}),
        {
            "broken-format": [
                {"id": "1", "name": "host.example", "at": "192.0.2.1", "or": "::1"},
                {"id": "123e4567-e89b-12d3-a456-426614174000", "name": "-", "at": "192.0.2.256", "or": ":"},
            ]
        },
    ),
    (
        "How long does it boil, and which pattern does the label have?",
        [{"boil": "PT10M", "label": "[A-Z]{2}"}, {"boil": "P1DT2H", "label": ""}],
        _shape(boil=_format("duration"), label=_format("regex")),
        {"broken-format": [{"boil": "10 minutes", "label": "[A-Z]{2}"}, {"boil": "PT10M", "label": "[A-Z"}]},
    ),
    (
        "Is it a circle with a radius or a square with a side?",
        [{"circle": {"radius": 2}}, {"square": {"side": 0.1}}],
        {"oneOf": [_shape(circle=_shape(radius=_NUMBER)), _shape(square=_shape(side=_NUMBER))]},
        {},
    ),
    (
        "How many of each fruit are there?",
        [{"pears": 2, "plums": 3}, {"figs": 1, "dates": 0}, {"crème brûlée": 7, "a\"b\\c\n": 1}],
        {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
        {},
    ),
    (
        "Give a row, a column and what stands there.",
        [[1, 2, "x"], [0, 0, "é\U0001f600"]],
        {"type": "array", "prefixItems": [_COUNT, _COUNT, {"type": "string"}], "items": False, "minItems": 3},
        {},
    ),
    (
        "Which lights are on?",
        [[True, False], [False, True, True]],
        {"type": "array", "items": _BOOLEAN, "minItems": 2, "uniqueItems": False},
        {},
    ),
]  # fmt: skip
