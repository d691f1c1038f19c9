"""json_schema: completions that are one JSON document of a given shape."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from typing_extensions import override

from rlenv._checks import require

from ..answer import document_in
from ..base import RIGHT, WRONG, Execution, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier
from ..problem import examples_beside

LONGEST = 100_000  # characters of a completion
DEEPEST = 32  # arrays and objects inside each other
MOST_DIGITS = 300  # of a number: what a float can hold too
NEEDED = "json", "verifier 'json_schema'"

_FORMATS = "date", "email", "ipv4", "ipv6", "uuid"  # jsonschema checks these alike with any other packages
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # an open one goes to the end: linear time
_NO_BRACKET = re.compile(r"[^][{}]+")


@register_verifier("json_schema")
class JsonSchema(Verifier):
    """One JSON document that a JSON Schema accepts; reward 1.0, else 0.0.

    The document is the first fenced block of the completion, or all of it without a block; thoughts are cut off first.
    JSON is read strictly: no NaN, Infinity or number beyond a float, no key twice in an object, no comment, no comma at
    the end; at most 32 levels deep, whole numbers of at most 300 digits, completions of at most 100,000
    characters. Numbers are compared exactly: 19.99 is a multiple of 0.01.

    "format" is checked for date, email (a text with @), ipv4, ipv6 and uuid; others are ignored, as JSON Schema allows.

    The problem's metadata may have a "schema", a mapping or JSON text, which is used first. A schema may refer to its
    own parts (`#/$defs/name`); a reference to anything else is an error of the completion that needs it. Nothing is
    ever loaded from a network.

    Prompts and alphabet: from the listed problems; the answer, if any, is a
    document that the schema accepts. Not caught: whatever the schema lets through; without "required" and
    "additionalProperties" that is a lot. Some schemas take exponential time ("pattern", references), so verdicts are
    reached in worker processes that are killed at the deadline.

    Args:
        schema: the schema as a mapping, or the path of a JSON file with it.

    Raises:
        ValueError: if jsonschema is not installed, the schema is none, or the file is not there.
    """

    execution = Execution(isolated=True, needs={"jsonschema": "json"})
    examples = examples_beside(__file__)
    request = "Put the document between two lines of three backticks."

    def __init__(self, schema: Mapping[str, Any] | str | None = None) -> None:
        require("jsonschema", *NEEDED)
        self.schema = _loaded(schema) if isinstance(schema, (str, Path)) else schema
        if self.schema is not None:
            validator(self.schema)

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        schema = problem.metadata.get("schema", self.schema)
        try:
            accepts = validator(schema)
        except ValueError as error:
            return Verdict(0.0, status="error", reason=str(error))
        if len(completion) > LONGEST:
            return WRONG
        try:
            document = read_json(document_in(completion))
        except ValueError:
            return WRONG
        try:
            return RIGHT if accepts.is_valid(document) else WRONG
        except RecursionError:
            return Verdict(0.0, status="error", reason="json_schema: the schema refers to itself without end")
        except require("referencing.exceptions", *NEEDED).Unresolvable as error:
            part = getattr(error, "anchor", error.ref)
            reason = f"json_schema: the schema has no part {part!r}; allowed: its own parts, as in #/$defs/x"
            return Verdict(0.0, status="error", reason=reason)

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        try:
            return json.dumps(read_json(document_in(completion)), sort_keys=True, default=str)
        except ValueError:
            return None


def read_json(text: str) -> Any:
    """Return the value of one JSON document, parsed strictly; its numbers are whole or exact fractions.

    Args:
        text: any text.

    Raises:
        ValueError: if it is not one, is nested too deeply, or has a number or a key that is not allowed.
    """
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    depths = itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
    if any(depth > DEEPEST for depth in depths):
        raise ValueError(f"more than {DEEPEST} levels deep")
    return json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_refused, object_pairs_hook=_no_repeats)


def validator(schema: Any) -> Any:
    """Return a validator for a schema, a mapping or JSON text; it loads nothing from outside.

    Raises:
        ValueError: if the schema is none.
    """
    if isinstance(schema, str):  # tables of Arrow and CSV have no mappings of different keys
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"json_schema: the schema {schema!r:.100} is no JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise ValueError(f"json_schema: a schema is a mapping such as {{'type': 'object'}}, got {schema!r:.100}")
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"json_schema: the schema is no JSON: {error}") from error
    return _validator(text)


@lru_cache(maxsize=1024)
def _validator(text: str) -> Any:
    jsonschema, referencing = require("jsonschema", *NEEDED), require("referencing", *NEEDED)
    schema = json.loads(text, parse_float=_real)
    name = schema.get("$schema")
    kind = jsonschema.Draft202012Validator if name is None else jsonschema.validators.validator_for(
        {"$schema": str(name)}, default=None
    )  # fmt: skip
    if kind is None:
        raise ValueError(f"json_schema: unknown $schema {name!r}; allowed: that of a published draft, or none")
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"json_schema: bad schema at {error.json_path}: {error.message[:300]}") from error
    nothing: Any = referencing.Registry()  # the default one would fetch what it does not know
    return kind(schema, registry=nothing, format_checker=jsonschema.FormatChecker(formats=_FORMATS))


def _loaded(path: str | Path) -> Any:
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would keep everybody waiting
            raise ValueError("it is a folder, pipe or device")
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"json_schema: {str(path)!r} is no JSON file with a schema: {error}") from error


def _real(text: str) -> int | Fraction:
    """Return the exact value of a decimal number, so that 19.99 is a multiple of 0.01.

    Raises:
        ValueError: if a float cannot hold it.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond what a float holds")
    exact = Fraction(text) if number and len(text) <= MOST_DIGITS else Fraction(repr(number))
    return exact.numerator if exact.denominator == 1 else exact


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    return int(text)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key twice in one object")
    return dict(pairs)
