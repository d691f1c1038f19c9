"""Tools in conversations: what templates show of them, and calls as a tokenizer says that they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import get_json_schema

from verifiers.base import first_line
from verifiers.dialogues.calls import MOST_CALLS, Call, as_call
from verifiers.text import conclusion

THINK = "<think>"

_HERMES = (
    "You may call functions. Their signatures, in JSON:\n{tools}\nTo call one, answer with "
    '<tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call>; its result is the next message.'
)


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of a function, from its signature and its docstring.

    Raises:
        ValueError: in one line, if a parameter has no type or no description, or the docstring is missing.
    """
    try:
        return dict(get_json_schema(function))
    except Exception as error:  # of three kinds of transformers', and what a signature raises
        raise ValueError(
            f"tool {function.__name__!r}: {first_line(error)}; chat templates show a tool's docstring and, from its "
            "`Args:`, each parameter, which also needs a type"
        ) from error


def described(schemas: Sequence[dict[str, Any]]) -> str:
    """Return what a system message says about tools, for templates that do not show them."""
    return _HERMES.format(tools="\n".join(map(json.dumps, schemas)))


def written_calls(
    tokenizer: PreTrainedTokenizerBase, prompt: str, schemas: Sequence[dict[str, Any]], turn: str
) -> list[Call] | None:
    """Return the calls in a turn; None if the tokenizer does not say, or the turn does not follow its template.

    Args:
        tokenizer: perhaps with a `response_template`.
        prompt: what the chat template writes before a turn, for it may begin the turn, or a thought.
        schemas: of the tools.
        turn: of a conversation.
    """
    if prompt.rstrip().endswith(THINK) and not conclusion(f"{THINK}{turn}"):
        return []  # all of it is a thought
    if getattr(tokenizer, "response_template", None) is None:
        return None
    try:
        message = tokenizer.parse_response(turn, prefix=prompt, tools=list(schemas))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return [as_call(each) for each in islice(message.get("tool_calls") or (), MOST_CALLS + 1)]
