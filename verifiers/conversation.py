"""Prompts: texts, or conversations, which are lists of messages, each with a role and a content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Message = dict[str, Any]  # a role and a content, and perhaps what MORE names
PromptText = str | list[Message]
ROLES = ("system", "user", "assistant", "tool")
MORE = {"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}  # keys of messages in prompts
REPLYING = ("user", "tool")
WORDS = 5  # letters of a prompt in words, which may be asked for a place of the answer: "12+7=" is none
NOT_UNICODE = "this is not Unicode text: it contains half of a surrogate pair"


def shown(value: Any) -> str:
    """Return a value for an error message: in one line, and shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded; half of a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def as_conversation(value: Any) -> list[Message]:
    """Return messages as a new list of dictionaries {"role": ..., "content": ...}, after checking them.

    Raises:
        ValueError: in one line that names the message, for anything that is not a conversation whose next message is
            the assistant's.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ValueError(f"a prompt must be text or a list of messages, got {shown(value)}")
    if not value:
        raise ValueError("the conversation is empty: it needs at least one message of the user")
    messages = [_message(f"message {number}", item) for number, item in enumerate(value, 1)]
    for number, (before, message) in enumerate(pairwise([{"role": ""}, *messages]), 1):
        if message["role"] == "tool" and before["role"] != "tool" and "tool_calls" not in before:
            raise ValueError(f"message {number} is a tool's result, but the message before it calls no tool")
    if any(message["role"] == "system" for message in messages[1:]):
        raise ValueError("only the first message of a conversation may have the role 'system'")
    if messages[-1]["role"] not in REPLYING:
        raise ValueError(
            f"the last message of a conversation must have the role 'user' or 'tool', got {messages[-1]['role']!r}; "
            "the completion is the assistant's next message, and a right one belongs into the answer"
        )
    if not any(message["role"] == "user" for message in messages):
        raise ValueError("a conversation needs at least one message of the user")
    return messages


def as_reply(value: Any) -> list[Message]:
    """Return the messages that answer a turn of the assistant, after checking them.

    Raises:
        ValueError: in one line that names the message.
    """
    if not isinstance(value, Sequence) or not value:
        raise ValueError(f"a reply must be text or a list of messages, got {shown(value)}")
    return [_message(f"message {number} of the reply", item, REPLYING, {}) for number, item in enumerate(value, 1)]


def as_messages(prompt: PromptText) -> list[Message]:
    """Return a prompt or a reply as messages; a text is one of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def text_of(prompt: str | Sequence[Message]) -> str:
    """Return a prompt as text: itself, the content of a single message, or lines such as "user: 1+1="."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0]["content"]
    return "\n".join(f"{message['role']}: {with_calls(message)}" for message in prompt)


def with_calls(message: Message) -> str:
    """Return a message's content, followed by the calls of tools in it as Hermes writes them, a line each."""
    calls = [json.dumps(each["function"], ensure_ascii=False) for each in message.get("tool_calls", ())]
    written = [f"<tool_call>{call}</tool_call>" for call in calls]
    return "\n".join([message["content"], *written] if message["content"] else written)


def last_of(prompt: str | Sequence[Message]) -> str:
    """Return a prompt that is a text, or the content of a conversation's last message."""
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def with_cue(prompt: str, cue: str) -> str:
    """Return a prompt that ends with a cue, such as "\\nSolution:", if it is in words; for an empty cue, as it is."""
    if prompt.endswith(cue) or not _is_in_words(prompt):
        return prompt
    return f"{prompt.rstrip()}{cue}"


def with_request(prompt: PromptText, request: str) -> PromptText:
    """Return a prompt that ends with a request, if it is in words; for an empty request, as it is."""
    said = last_of(prompt)
    if request in said or not _is_in_words(said):
        return prompt
    if isinstance(prompt, str):
        text = prompt.rstrip()
        return f"{text} {request}{prompt[len(text) :]}"
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']} {request}"}] if last["role"] == "user" else prompt


def _is_in_words(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= WORDS


def _message(place: str, item: Any, roles: Sequence[str] = ROLES, more: Mapping[str, Sequence[str]] = MORE) -> Message:
    if not isinstance(item, Mapping):
        raise ValueError(f"{place} must have a role and a content, got {shown(item)}")
    given = {str(key): value for key, value in item.items() if value is not None}
    for key in ("role", "content"):
        if key not in given and not (key == "content" and "tool_calls" in given):
            raise ValueError(f"{place} has no {key}: {shown(dict(item))}")
    role, content = given["role"], given.get("content", "")
    if role not in roles:
        raise ValueError(f"{place} has the unknown role {shown(role)}; allowed: {', '.join(roles)}")
    allowed = ("role", "content", *more.get(role, ()))
    if unknown := [key for key in given if key not in allowed]:
        raise ValueError(f"{place} has the key {unknown[0]!r}; allowed: {', '.join(allowed)}")
    if not isinstance(content, str) or not (content.strip() or "tool_calls" in given):
        raise ValueError(f"{place} must have text as its content, got {shown(content)}")
    made: Message = {"role": role, "content": content if content.strip() else ""}
    for key in more.get(role, ()):
        if key in given:
            made[key] = calls_of(place, given[key]) if key == "tool_calls" else _text(f"{key} of {place}", given[key])
    return made


def calls_of(place: str, value: Any) -> list[dict[str, Any]]:
    """Return the calls of a message as OpenAI's interface has them, with the arguments as an object.

    Raises:
        ValueError: in one line that names the place, for anything else.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"the tool_calls of {place} must be a list of calls, got {shown(value)}")
    return [_call(f"call {number} of {place}", item) for number, item in enumerate(value, 1)]


def _call(place: str, item: Any) -> dict[str, Any]:
    call = item.get("function", item) if isinstance(item, Mapping) else item
    arguments = call.get("arguments") if isinstance(call, Mapping) else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the arguments of {place} are not JSON: {shown(arguments)}") from error
    if not isinstance(call, Mapping) or not isinstance(arguments, Mapping):
        raise ValueError(f'{place} must be {{"name": ..., "arguments": {{...}}}}, got {shown(item)}')
    name = _text(f"the name of {place}", call.get("name"))
    made = {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
    return made if item.get("id") is None else made | {"id": _text(f"the id of {place}", item["id"])}


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be a text, got {shown(value)}")
    return value
