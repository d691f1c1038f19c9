"""The client that a program calls, with OpenAI's interface: its requests and its answers."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ..conversation import MORE, Message, as_conversation, as_reply, calls_of, shown
from .calls import MOST_CALLS, Call, calls_in, said
from .toolbox import Tool

ONLY = {"n": 1, "stream": False, "logprobs": False, "tool_choice": "auto", "response_format": {"type": "text"}}
USED = ("messages", "tools", "max_tokens", "max_completion_tokens", "stop")
IGNORED = {  # how the agent samples, and what concerns a server only
    "model", "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "user", "metadata", "store",
    "parallel_tool_calls", "stream_options", "reasoning_effort", "verbosity", "service_tier", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "timeout", "extra_headers", "extra_query", "extra_body",
}  # fmt: skip
UNSET = ("NotGiven", "Omit")  # OpenAI's marks for an argument that is not given
ROLES = {"developer": "system", "function": "tool"}  # other names
GROWS = "an episode is one growing conversation"


class EpisodeOver(BaseException):
    """The episode has ended, so a call has no answer; like KeyboardInterrupt, `except Exception` does not catch it."""


class OutOfBudgetError(Exception):
    """Turns or context ran out; a program that catches this returns its reward."""


class RefusedError(ValueError):
    """A call that no episode can have; the message follows "call 3"."""


class Client:
    """The client of a program, in the shape of `openai.OpenAI()`.

    Args:
        ask: answers a request.
        is_async: whether `create` is awaited, as in `openai.AsyncOpenAI()`.
    """

    def __init__(self, ask: Callable[[Mapping[str, Any]], dict[str, Any]], is_async: bool) -> None:
        self._ask = ask
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._awaited if is_async else self._create))

    def _create(self, **request: Any) -> Any:
        return as_object(self._ask(request))

    async def _awaited(self, **request: Any) -> Any:
        from asyncio import to_thread  # slow, and every worker process would wait for it

        return await to_thread(self._create, **request)

    @cached_property
    def _endpoint(self) -> Any:
        return import_module("rlenv.chat_server").ChatServer(self._ask)

    @property
    def base_url(self) -> str:
        """The address of an endpoint with OpenAI's protocol, for programs of other libraries or in other processes."""
        return str(self._endpoint.url)

    @property
    def api_key(self) -> str:
        """The key of this episode there."""
        return str(self._endpoint.key)

    def close(self) -> None:
        """Close the endpoint, if it was asked for."""
        if "_endpoint" in self.__dict__:
            self._endpoint.close()


def limits_of(request: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tools, max_tokens and stop of a call, after checking all of it.

    Args:
        request: the arguments of the call.
        wanted: the limits that it must have; more tokens will do; none for any.

    Raises:
        RefusedError: for a request that an environment cannot serve.
    """
    given = {name: each for name, each in request.items() if each is not None and type(each).__name__ not in UNSET}
    for name, value in given.items():
        if name in ONLY and value != ONLY[name]:
            raise RefusedError(f"has {name}={shown(value)}; allowed: {ONLY[name]!r}")
        if name not in {*ONLY, *USED, *IGNORED}:
            raise RefusedError(f"has {name!r}, which an environment cannot obey; allowed: {', '.join((*USED, *ONLY))}")
    if not isinstance(given.get("messages"), (list, tuple)):
        raise RefusedError(f"needs a list of messages, got {shown(given.get('messages'))}")
    stop, most = given.get("stop", ()), given.get("max_completion_tokens", given.get("max_tokens"))
    stops = [stop] if isinstance(stop, str) else list(stop)
    if not all(isinstance(each, str) and each for each in stops):
        raise RefusedError(f"has stop={shown(stop)}; allowed: texts of at least one character")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise RefusedError(f"has max_tokens={shown(most)}; allowed: whole numbers from 1")
    limits = {"tools": list(map(_tool, given.get("tools", ()))), "max_tokens": most, "stop": stops}
    for name, value in wanted.items():
        enough = name == "max_tokens" and value is not None and (most or math.inf) >= value
        if limits[name] != value and not enough:
            raise RefusedError(f"has other {name} than the first problem's first call: they are the same for all")
    return limits


def added(messages: Sequence[Any], said: Sequence[Message]) -> list[Message]:
    """Return the messages that a call adds to the conversation so far.

    Raises:
        ValueError: for messages that change the past, or that no conversation can have.
    """
    given = list(map(normal, messages))
    for number, before in enumerate(said, 1):
        if _key(before) not in map(_key, given[number - 1 : number]):
            verb = "changes" if number <= len(given) else "leaves out"  # as a second call with the first prompt does
            raise RefusedError(f"{'begins anew' if number == 1 else f'{verb} message {number}'}: {GROWS}")
    fresh = given[len(said) :]
    if not said:
        return as_conversation(fresh)
    if not fresh:
        raise RefusedError(f"adds no message: {GROWS}")
    return as_reply([{key: each[key] for key in ("role", "content")} for each in fresh])


def normal(message: Any) -> Message:
    """Return a message of a call, with only the fields that a conversation keeps.

    Raises:
        RefusedError: for something else than a message of texts.
    """
    message = _plain(message)
    if not isinstance(message, Mapping):
        raise RefusedError(f"has the message {shown(message)}; a message has a role and a content")
    role = str(message.get("role"))
    role = ROLES.get(role, role)
    made = {key: message[key] for key in ("content", *MORE.get(role, ())) if message.get(key)}
    if isinstance(parts := made.get("content"), (list, tuple)):
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
            raise RefusedError(f"has a message whose content is not text: {shown(parts)}")
        made["content"] = "".join(part["text"] for part in parts)
    if "tool_calls" in made:
        made["tool_calls"] = calls_of("the assistant", list(map(_plain, made["tool_calls"])))
    return {"role": role, "content": "", **made}


def _key(message: Message) -> tuple[Any, ...]:
    """Return the parts of a message that have to be equal: role, text and tool calls."""
    return message["role"], message["content"].strip(), [call["function"] for call in message.get("tool_calls", ())]


def completion(number: int, turn: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn of the model as a chat completion of OpenAI's API, in JSON's types.

    Args:
        number: of the call.
        turn: the model's text.
        limits: of the call; see `limits_of`.
    """
    tools = {tool["function"]["name"]: tool for tool in limits["tools"]}
    read = calls_in(turn, tools)[:MOST_CALLS] if tools else ()
    try:
        calls = [_called(f"call_{number}_{index}", call, tools) for index, call in enumerate(read, 1)]
    except ValueError:  # a call that cannot be read: the program gets the text
        calls = []
    text = str(turn)
    for stop in limits["stop"]:
        text = text.partition(stop)[0]
    message = {"role": "assistant", "content": said(text) or None if calls else text, "tool_calls": calls or None}
    reason = "tool_calls" if calls else "length" if getattr(turn, "cut", False) else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    usage, before = None, getattr(turn, "prompt_tokens", None)  # which a demonstrated turn has not
    if before is not None:
        tokens = len(getattr(turn, "token_ids", None) or ())
        usage = {"prompt_tokens": before, "completion_tokens": tokens, "total_tokens": before + tokens}
    names = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": "rlenv"}
    return {**names, "choices": [choice], "usage": usage}


def _called(identity: str, call: Call, tools: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call as OpenAI's API has it.

    Raises:
        ValueError: for one that cannot be read.
    """
    if call.fault:
        raise ValueError(call.fault)
    arguments = call.arguments
    if isinstance(arguments, str):
        arguments = Tool(offered(tools[call.name])).read(arguments)
    function = {"name": call.name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": identity, "type": "function", "function": function}


def _plain(value: Any) -> Any:
    """Return an object of OpenAI's library as a mapping, anything else as it is."""
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def offered(tool: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with the name, the parameters and the schema of a tool, which the program itself runs."""

    def function(**arguments: Any) -> None:
        raise NotImplementedError("the program runs this tool")

    described = _mapping(tool["function"].get("parameters"))
    properties, required = _mapping(described.get("properties")), described.get("required") or ()
    required = required or (properties if len(properties) == 1 else ())  # the only one is meant, whatever is said
    named = sorted(filter(str.isidentifier, properties), key=lambda name: name not in required)
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters = [inspect.Parameter(each, kind, default=empty if each in required else None) for each in named]
    function.__name__ = tool["function"]["name"]
    function.__annotations__ = {each: str for each in named if _mapping(properties[each]).get("type") == "string"}
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.schema = dict(tool)  # type: ignore[attr-defined]
    return function


def _mapping(schema: Any) -> Mapping[str, Any]:
    """Return a part of a schema; a valid one may also be True, for any value."""
    return schema if isinstance(schema, Mapping) else {}


def _tool(tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        form = '{"type": "function", "function": {"name": ...}}'
        raise RefusedError(f"has the tool {shown(tool)}; a tool is {form}")
    return {"type": "function", "function": json.loads(json.dumps(function, default=str))}


class Answered(SimpleNamespace):
    """An object of an answer where OpenAI's library is not installed: the same attributes."""

    def model_dump(self, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """Return the object in JSON's types."""
        kept = {name: each for name, each in vars(self).items() if not (exclude_none and each is None)}
        return dict(json.loads(json.dumps(kept, default=partial(Answered.model_dump, exclude_none=exclude_none))))


def as_object(answer: dict[str, Any]) -> Any:
    """Return a chat completion as an object of OpenAI's library, or one with the same attributes."""
    try:
        return import_module("openai.types.chat").ChatCompletion.model_validate(answer)
    except ImportError:
        return json.loads(json.dumps(answer), object_hook=lambda pairs: Answered(**pairs))
