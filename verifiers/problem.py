"""A problem: a prompt, and a reference answer with metadata for the verifier; made from a row of a table."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any

from .conversation import NOT_UNICODE, Message, as_conversation, is_unicode, shown, text_of

NAMED_SPLITS = {"train": "train", "test": "test", "validation": "test"}  # by the names that rows give them
_LEVEL = re.compile(r"(?:level )?([1-9][0-9]{0,8})(?:\.0)?", re.IGNORECASE)  # pandas writes 3.0 beside empty cells


@dataclass(frozen=True)
class Problem:
    """A prompt, its reference answer if any, and further columns that the verifier needs.

    Args:
        prompt: what the model reads: a text, or a conversation, which is a list of messages such as
            {"role": "user", "content": "1+1="}. Roles are "system" (first message only), "user", "assistant", whose
            messages may have `tool_calls`, and "tool"; the last message is the user's or a tool's. The environment
            renders conversations with the tokenizer's chat template.
        answer: the reference answer; empty if there is none.
        metadata: further columns, passed on to reward functions by name.

    Raises:
        ValueError: for a malformed conversation, an answer that is not text, metadata without names, or texts that
            cannot be encoded.
    """

    prompt: str | list[Message]
    answer: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str):
            object.__setattr__(self, "prompt", as_conversation(self.prompt))
        if not isinstance(self.answer, str):
            raise ValueError(f"the answer of a Problem must be text, got {self.answer!r:.60}: pass str(answer)")
        if not isinstance(self.metadata, Mapping):
            raise ValueError(f"the metadata of a Problem must be values by name, got {self.metadata!r:.60}")
        if not is_unicode(f"{self.text}{self.answer}"):
            raise ValueError(NOT_UNICODE)

    @classmethod
    def from_row(
        cls, row: Mapping[str, Any], columns: Mapping[str, str] | None = None, prompt_template: str | None = None
    ) -> Problem:
        """Return the problem in a row of a table.

        The columns `prompt` (without it, `messages`) and `answer`, if any, become its prompt and answer, the others its
        metadata. `split` is train, test, or validation, which counts as test; `level` is a whole number from 1, or
        "Level 3". A column that is used as prompt or answer under another name is also metadata of that name.

        Args:
            row: its values by column.
            columns: which column holds what, such as {"prompt": "question", "answer": "target"}.
            prompt_template: makes the prompt from the columns, as in "Q: {question}\\nA:"; {name} is replaced, by the
                lines of a list of texts or of labelled choices ("A. Lima"), by JSON for other lists, and {{ and }} are
                braces.

        Raises:
            ValueError: in one line, for a missing column, a value that cannot be used, or a malformed template.
        """
        names = dict(columns or {})
        if prompt_template is None:
            names.setdefault("prompt", "messages" if "messages" in row and "prompt" not in row else "prompt")
        if "answer" in row:
            names.setdefault("answer", "answer")
        metadata, named = dict(row), {}
        for name, column in names.items():
            named[name] = _value(row, column)
            # A reward function may ask for `solution`, the answer, by its own name; a conversation is in the prompt.
            if name not in ("prompt", "answer") or isinstance(named[name], list):
                metadata.pop(column, None)
        metadata |= named
        prompt = named["prompt"] if prompt_template is None else _filled_in(prompt_template, {**row, **named})
        if not isinstance(prompt, (str, list, tuple)) or prompt == "":
            raise ValueError(f"the prompt must be text or a list of messages, got {shown(prompt)}")
        metadata.pop("prompt", None)
        metadata.pop("answer", None)
        if metadata.get("level") in ("Level ?", "", None):  # of two problems of MATH; an empty cell of CSV; null
            metadata.pop("level", None)
        if "split" in metadata:
            metadata["split"] = as_split(metadata["split"])
        if "level" in metadata:
            metadata["level"] = _level(metadata["level"])
        return cls(prompt, _answer(named.get("answer", "")), metadata)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """The prompt as text; a conversation of several messages has lines such as "user: 1+1="."""
        return text_of(self.prompt)


def unshared(value: Any) -> Any:
    """Return a problem or a column with copies of its lists and dictionaries, so that an episode changes no other."""
    if isinstance(value, Problem):
        made = copy(value)
        object.__setattr__(made, "prompt", unshared(value.prompt))
        object.__setattr__(made, "metadata", unshared(value.metadata))
        return made
    if isinstance(value, dict):
        return {key: unshared(each) for key, each in value.items()}
    return [unshared(each) for each in value] if isinstance(value, list) else value


def examples_beside(module: str) -> Callable[[Any], list[Problem]]:
    """Return a verifier's method `examples`: the problems in the rows of NAME.jsonl, beside its module NAME.py."""

    def examples(verifier: Any) -> list[Problem]:
        """Return the problems in the file beside the module."""
        lines = Path(module).with_suffix(".jsonl").read_text(encoding="utf-8").split("\n")
        return [Problem.from_row(json.loads(line)) for line in lines if line]

    return examples


@lru_cache
def template_parts(template: str) -> list[tuple[str, str | None]]:
    """Return a template for prompts as literal texts, each with the name of the column that follows it.

    Raises:
        ValueError: if it is malformed, or has no column.
    """
    if not isinstance(template, str):
        raise ValueError(f"a prompt template must be text, got {template!r}")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"prompt template {template!r}: {error}; braces are written {{{{ and }}}}") from error
    if all(name is None for _, name, _, _ in parts):
        raise ValueError(f"prompt template {template!r} has no field such as {{question}}")
    if any(name == "" or form or conversion for _, name, form, conversion in parts):
        raise ValueError(f"prompt template {template!r}: only plain {{name}} fields are allowed")
    return [(literal, name) for literal, name, _, _ in parts]


def _filled_in(template: str, row: Mapping[str, Any]) -> str:
    return "".join(
        literal + ("" if name is None else _inserted(name, _value(row, name)))
        for literal, name in template_parts(template)
    )


def _inserted(name: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"there is nothing in {name!r}")
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    if _are_labelled(value):
        return "\n".join(f"{label}. {text}" for label, text in choices_in(value).items())
    if isinstance(value, (list, dict, bool)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _are_labelled(value: Any) -> bool:
    """Tell whether these are choices as two lists, {"label": [...], "text": [...]}."""
    two_lists = isinstance(value, Mapping) and all(isinstance(each, (list, tuple)) for each in value.values())
    return two_lists and value.keys() == {"label", "text"}


def choices_in(value: Any) -> dict[str, str]:
    """Return the texts of a problem's choices by their labels; those of a list are A, B, C and so on.

    Args:
        value: a list of texts, labels with their texts, or two lists {"label": [...], "text": [...]}, which rows of ARC
            and OpenBookQA have. Anything else has no choices.
    """
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        pairs = zip(value["label"], value["text"], strict=False) if _are_labelled(value) else value.items()
    elif isinstance(value, (list, tuple)):
        pairs = zip(string.ascii_uppercase, value, strict=False)
    return {str(label): str(text) for label, text in pairs}


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column not in row:
        raise ValueError(f"there is no {column!r}")
    return row[column]


def _answer(value: Any) -> str:
    if isinstance(value, str):
        return value
    finite = isinstance(value, int) or (isinstance(value, (Real, Decimal)) and math.isfinite(value))
    if not finite or isinstance(value, bool):
        raise ValueError(f"the answer must be text or a number, got {shown(value)}")
    return str(value)


def as_split(value: Any) -> str | None:
    """Return the split, train or test, that a row names; None if it is null or empty.

    Raises:
        ValueError: if it is unknown.
    """
    if value in (None, ""):
        return None
    if not isinstance(value, str) or value not in NAMED_SPLITS:
        raise ValueError(f"the split must be one of {', '.join(NAMED_SPLITS)}, got {shown(value)}")
    return NAMED_SPLITS[value]


def _level(value: Any) -> int:
    found = _LEVEL.fullmatch(value) if isinstance(value, str) else None
    level = value if found is None else int(found[1])
    if not isinstance(level, (int, float)) or isinstance(level, bool) or level % 1 or not 1 <= level < 10**9:
        raise ValueError(f"the level must be a whole number from 1, got {shown(value)}")
    return int(level)
