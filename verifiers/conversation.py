"""Prompts that are conversations: lists of messages, each with a role and a content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

Message = dict[str, str]
ROLES = ("system", "user", "assistant")
REPLYING = ("user", "tool")
_ENCODER: list[str] = []  # "module:Name" of what knows chat templates, once it has registered


def as_conversation(value: Any) -> list[Message]:
    """Return messages as a new list of dictionaries {"role": ..., "content": ...}, after checking them.

    Raises:
        ValueError: in one line that names the message, for anything that is not a conversation whose next message is
            the assistant's.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ValueError(f"a prompt must be text or a list of messages, got {_shown(value)}")
    if not value:
        raise ValueError("the conversation is empty: it needs at least one message of the user")
    messages = [_message(f"message {number}", item) for number, item in enumerate(value, 1)]
    if any(message["role"] == "system" for message in messages[1:]):
        raise ValueError("only the first message of a conversation may have the role 'system'")
    if messages[-1]["role"] != "user":
        raise ValueError(
            f"the last message of a conversation must have the role 'user', got {messages[-1]['role']!r}; "
            "the completion is the assistant's next message, and a right one belongs into the answer"
        )
    return messages


def as_reply(value: Any) -> list[Message]:
    """Return the messages that answer a turn of the assistant, after checking them.

    Raises:
        ValueError: in one line that names the message.
    """
    if not isinstance(value, Sequence) or not value:
        raise ValueError(f"a reply must be text or a list of messages, got {_shown(value)}")
    return [_message(f"message {number} of the reply", item, REPLYING) for number, item in enumerate(value, 1)]


def text_of(prompt: str | Sequence[Message]) -> str:
    """Return a prompt as text: itself, the content of a single message, or lines such as "user: 1+1="."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def last_of(prompt: str | Sequence[Message]) -> str:
    """Return a prompt that is a text, or the content of a conversation's last message."""
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def register_encoder(entry_point: str) -> None:
    """Name the class that renders conversations, as "module:Name"; it is imported when it is asked for."""
    _ENCODER[:] = [entry_point]


def make_encoder(tokenizer: Any) -> Any:
    """Return what renders conversations with a tokenizer's chat template; None if nothing that can has registered.

    It has `answered(prompts, answers)`, which returns the tokens of each.
    """
    if not _ENCODER:
        return None
    module, _, name = _ENCODER[0].partition(":")
    return getattr(import_module(module), name)(tokenizer)


def _message(place: str, item: Any, roles: Sequence[str] = ROLES) -> Message:
    if not isinstance(item, Mapping):
        raise ValueError(f"{place} must have a role and a content, got {_shown(item)}")
    for key in ("role", "content"):
        if item.get(key) is None:
            raise ValueError(f"{place} has no {key}: {_shown(dict(item))}")
    more = [key for key, value in item.items() if key not in ("role", "content") and value is not None]
    if more:
        raise ValueError(f"{place} has the key {more[0]!r}; allowed: role, content")
    if item["role"] not in roles:
        raise ValueError(f"{place} has the unknown role {_shown(item['role'])}; allowed: {', '.join(roles)}")
    content = item["content"]
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"{place} must have text as its content, got {_shown(content)}")
    return {"role": str(item["role"]), "content": content}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
