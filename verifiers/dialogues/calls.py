"""Calls of tools in a turn of the model: as families of models write them, and in plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..text import conclusion

MOST_CALLS = 8  # in a turn
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_UNQUOTED = "(?<![\"'`])"  # what stands in quotes is spoken of
_TAGGED = re.compile(rf"{_UNQUOTED}<tool_call>(.*?)(?:</tool_call>|(?={_UNQUOTED}<tool_call>)|\Z)", re.DOTALL)
_PYTHON_TAG, _MISTRAL = (re.compile(_UNQUOTED + re.escape(tag)) for tag in ("<|python_tag|>", "[TOOL_CALLS]"))
_TAGS = _TAGGED, _PYTHON_TAG, _MISTRAL
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_LINE = re.compile(r"\s*(\w+)\((.*)\)\s*")
_JSON = json.JSONDecoder()
_KEYS = ("arguments", "parameters")


@dataclass(frozen=True)
class Call:
    """A call of a tool.

    Attributes:
        name: of the tool.
        arguments: by name; of the plain form, the text between the parentheses.
        fault: why the call cannot be read; empty if it can.
    """

    name: str = ""
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    fault: str = ""


def read_calls(turn: str, names: Collection[str]) -> list[Call]:
    """Return the calls in a turn, in order, and one too many of a turn with more than `MOST_CALLS`; none without any.

    Thoughts, `<think>...</think>`, and blocks between fences are passed over, and tags right after a quotation mark.

    The forms, of which the first that occurs counts:

    - Hermes and Qwen: `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>`, of which the last may be open;
    - Mistral: `[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]`, or `[TOOL_CALLS]f[ARGS]{"a": 1}`;
    - Llama: `{"name": "f", "parameters": {"a": 1}}` and nothing else, or after `<|python_tag|>`;
    - in plain text: a line `f(1)` or `f(a=1)`, if f is the name of a tool.

    Args:
        turn: any text, in which special tokens are spelled out.
        names: of the tools.
    """
    text = _FENCED.sub("", conclusion(turn))
    for read in (_tagged, _mistral, _llama):
        if calls := list(islice(read(text), MOST_CALLS + 1)):
            return calls
    lines = map(_LINE.fullmatch, text.splitlines())
    plain = (Call(found[1], found[2]) for found in lines if found is not None and found[1] in names)
    return list(islice(plain, MOST_CALLS + 1))


def calls_in(turn: str, names: Collection[str]) -> Sequence[Call]:
    """Return the calls in a turn: the turn's `calls` if it has them, else the result of `read_calls`."""
    found = getattr(turn, "calls", None)
    return read_calls(turn, names) if found is None else found


def said(turn: str) -> str:
    """Return the text of a turn before its calls; empty if they have no tags."""
    found = [each for tag in _TAGS if (each := tag.search(turn))]
    return turn[: min(each.start() for each in found)].strip() if found else ""


def as_call(found: Any) -> Call:
    """Return the call that a JSON value is; one with a fault for any other value."""
    if isinstance(found, Mapping) and isinstance(found.get("function"), Mapping):  # as OpenAI's interface has it
        found = found["function"]
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        return Call(fault='a call is {"name": ..., "arguments": {...}}')
    arguments: Any = next((found[key] for key in _KEYS if found.get(key) is not None), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return Call(found["name"], fault="the arguments are not JSON")
    if not isinstance(arguments, Mapping):
        return Call(found["name"], fault="the arguments must be a JSON object")
    return Call(found["name"], dict(arguments))


def _tagged(text: str) -> Iterator[Call]:
    return (call for found in _TAGGED.finditer(text) for call in _values(found[1].strip()))


def _mistral(text: str) -> Iterator[Call]:
    return (call for part in _MISTRAL.split(text)[1:] for call in _named(part))


def _named(part: str) -> Iterator[Call]:
    named = _NAMED.match(part)
    if named is None:
        return _values(part.strip())
    try:
        arguments, _ = _JSON.raw_decode(part, named.end())
    except (ValueError, RecursionError):
        return iter([Call(named[1], fault="the arguments are not JSON")])
    return iter([as_call({"name": named[1], "arguments": arguments})])


def _llama(text: str) -> Iterator[Call]:
    if tag := _PYTHON_TAG.search(text):
        return _values(text[tag.end() :].strip())
    if not (text.strip().startswith("{") and '"name"' in text):
        return iter(())
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return iter(())
    keys = set(found) - {"type"}
    is_call = any(keys == {"name", key} for key in _KEYS) and isinstance(found["name"], str)
    return iter([as_call(found)] if is_call else ())


def _values(text: str) -> Iterator[Call]:
    """Yield the calls in JSON values, lists of them included, that follow each other, perhaps with a semicolon."""
    place = 0
    while place < len(text) or not place:
        try:
            found, place = _JSON.raw_decode(text, place)
        except (ValueError, RecursionError):
            yield Call(fault="the call is not JSON")
            return
        yield from map(as_call, found if isinstance(found, list) and found else [found])
        while place < len(text) and text[place] in "; \t\r\n":
            place += 1
