"""From a model's turn to an action, as the server's schema has it, and from an observation to text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..answer import document_in

_APART = "metadata"  # a field of every action and observation, which is not for the model


class ActionForm:
    """What the actions of a server look like.

    Args:
        schema: of the action, a JSON schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties", {})
        self.fields = {name: kind for name, kind in properties.items() if name != _APART}
        needed = [name for name in schema.get("required", ()) if name in self.fields]
        self.needed = needed
        self.single = needed[0] if len(needed) == 1 else None
        self.is_text = self.single is not None and _type(self.fields[self.single]) == "string"

    def read(self, turn: str) -> dict[str, Any] | None:
        """Return the action that a turn states, None if it states none.

        It is an object in JSON, alone or in the first fenced block. If the action has one required field, the turn may
        be its value alone: any text for a field of text, else JSON.
        """
        found = _json(document_in(turn))
        if isinstance(found, dict) and set(self.needed) <= found.keys() <= self.fields.keys():
            return found
        if self.single is None or (found is None and not self.is_text):
            return None
        if self.is_text:
            return {self.single: turn}
        return None if isinstance(found, dict) else {self.single: found}

    def __str__(self) -> str:
        shown = ", ".join(f'"{name}": {_type(self.fields[name]) or "value"}' for name in self.needed or self.fields)
        return f"{{{shown}}}"


def text_of(observation: Mapping[str, Any], field: str | None = None) -> str:
    """Return an observation as text: one of its fields, its only text, or else JSON.

    Args:
        observation: of a server.
        field: the field to show; None for the only one that is a text.
    """
    shown = {name: value for name, value in observation.items() if name != _APART}
    if field is not None:
        shown = {field: shown.get(field, "")}
    texts = [value for value in shown.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else json.dumps(shown, ensure_ascii=False)


def _type(kind: Any) -> str | None:
    """Return the type that a schema names; None for several."""
    named = kind.get("type") if isinstance(kind, dict) else None
    return named if isinstance(named, str) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
