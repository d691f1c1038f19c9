"""json_schema: completions that are one JSON document of a given shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from typing_extensions import override

from ...base import RIGHT, WRONG, Problem, Verdict, Verifier
from ...plugins.arguments import whole_number
from ...plugins.extras import require
from ...plugins.registry import register_verifier
from ...reading.extraction import STRICT
from ...reading.quiet import quiet
from ...reading.statements.documents import document_rule
from .examples import EXAMPLES
from .reading import find_document, read_json, real, unfenced

_ASKED = "{} Answer in JSON.\n"
_FRAMES = "{}", "\n{}\n", "```json\n{}\n```", "```\n{}\n```", "``` JSON\n{}\n```"
_FORMATS = "date", "email", "ipv4", "ipv6", "uuid"  # what jsonschema checks whatever else is installed


@register_verifier("json_schema")
class JsonSchema(Verifier):
    """One JSON document that a JSON Schema accepts; reward 1.0, else 0.0.

    The document is the whole completion, or the last block fenced as `json` or as nothing in it, or the only object or
    array in its sentences; words may stand before and after it. JSON is read strictly: no NaN, Infinity or number
    beyond a float, no key twice in an object, no comment, no comma at the end; at most 32 levels deep, whole numbers of
    at most 300 digits. Numbers are compared exactly: 19.99 is a multiple of 0.01.

    "format" is checked for date, email (a text with @), ipv4, ipv6, regex and uuid; others are ignored, as JSON Schema
    allows.

    The problem's metadata may have a "schema", which is used first. A schema may refer to its own parts
    (`#/$defs/name`) and to nothing else; nothing is ever loaded from a network.

    Prompts and alphabet: those of the listed problems; the answer, if any, is a
    document that the schema accepts. Not caught: whatever the schema lets through; without "required" and
    "additionalProperties" that is a lot. Some schemas take exponential time ("pattern", references), so verdicts are
    reached in worker processes that are killed at the deadline.

    Args:
        schema: the schema as a mapping, or the path of a JSON file with it.
        max_length: the longest completion that is looked at, 1 to 100000 characters.
        extract: "stated", or "strict": nothing but the document, alone or in a fence of three backticks.

    Raises:
        ValueError: if jsonschema is not installed, the schema is none, the file is not there, or the length is out of
            range.
    """

    isolated = True
    needs = {"jsonschema": "json"}
    does_not_catch = {"nonsense-of-the-form": "whatever the schema lets through is paid for"}

    def __init__(
        self, schema: Mapping[str, Any] | str | None = None, max_length: int = 10_000, extract: str | None = None
    ) -> None:
        require("jsonschema", "json", "verifier 'json_schema'")
        self.max_length = whole_number("json_schema", "max_length", max_length, 1, 100_000)
        self.rule = document_rule("json_schema", extract)
        self.schema = _loaded(schema) if isinstance(schema, (str, Path)) else schema
        if self.schema is not None:
            validator(self.schema)

    def examples(self) -> list[Problem]:
        """Return problems that each have a schema."""
        return [
            Problem(_ASKED.format(task), json.dumps(right[0]), {"schema": schema})
            for task, right, schema, _ in EXAMPLES
        ]

    @override
    @quiet()
    def verify(self, problem: Problem, completion: str) -> Verdict:
        schema = problem.metadata.get("schema", self.schema)
        try:
            accepts = validator(schema)
        except ValueError as error:
            return Verdict(0.0, status="error", reason=str(error))
        if len(completion) > self.max_length:
            return WRONG
        try:
            document = read_json(unfenced(completion) if self.rule == STRICT else find_document(completion))
        except ValueError:
            return WRONG
        try:
            return RIGHT if accepts.is_valid(document) else WRONG
        except RecursionError:
            return Verdict(0.0, status="error", reason="json_schema: the schema refers to itself without end")

    def counterexamples(self, problem: Problem) -> dict[str, list[str]]:
        """Return documents with a broken format, and those that an example's schema accepts and a reader would not."""
        wrong = next((wrong for task, _, _, wrong in EXAMPLES if problem.text == _ASKED.format(task)), {})
        return {
            family: [json.dumps(document) for document in wrong.get(family, ())]
            for family in ("nonsense-of-the-form", "broken-format")
        }

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the reference document in other writing and in fences, and other right documents of an example."""
        if not problem.answer:
            return []
        document = json.loads(problem.answer)
        others = next((right[1:] for task, right, _, _ in EXAMPLES if problem.text == _ASKED.format(task)), [])
        dense = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        written = (json.dumps(document, indent=2), json.dumps(document, indent="\t"), dense, problem.answer)
        return [*(frame.format(text) for frame in _FRAMES for text in written), *map(json.dumps, others)]


def validator(schema: Any) -> Any:
    """Return a validator for a schema; it loads nothing from outside.

    Raises:
        ValueError: if the schema is none, or refers to something outside of it.
    """
    if not isinstance(schema, Mapping):
        raise ValueError(f"json_schema: a schema is a mapping such as {{'type': 'object'}}, got {schema!r}")
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"json_schema: the schema is no JSON: {error}") from error
    return _validator(text)


@lru_cache(maxsize=1024)
def _validator(text: str) -> Any:
    purpose = ("json", "verifier 'json_schema'")
    jsonschema, referencing = require("jsonschema", *purpose), require("referencing.jsonschema", *purpose)
    schema = json.loads(text, parse_float=real)
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
    root = referencing.specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    unresolvable = require("referencing.exceptions", *purpose).Unresolvable
    for reference in _references(schema):
        try:
            if not reference.startswith("#"):
                raise unresolvable(reference)
            nothing.resolver_with_root(root).lookup(reference)
        except unresolvable as error:
            raise ValueError(
                f"json_schema: the schema has no part {reference!r}; allowed: its own parts, as in #/$defs/x"
            ) from error
    formats = jsonschema.FormatChecker(formats=_FORMATS)
    formats.checks("regex", raises=(re.error, OverflowError, RecursionError))(
        lambda value: not isinstance(value, str) or bool(re.compile(value))
    )
    return kind(schema, registry=nothing, format_checker=formats)


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [reference for part in schema for reference in _references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema[key] for key in ("$ref", "$dynamicRef", "$recursiveRef") if isinstance(schema.get(key), str)]
    return own + _references(list(schema.values()))


def _loaded(path: str | Path) -> Any:
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would keep everybody waiting
            raise ValueError("it is a folder, pipe or device")
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"json_schema: {str(path)!r} is no JSON file with a schema: {error}") from error
