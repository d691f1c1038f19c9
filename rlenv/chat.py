"""Conversations and tools as text: a tokenizer's chat template, its text kept apart from the messages' contents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby, islice, product
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import get_json_schema

from rlenv._checks import first_line
from rlenv.verifiers.conversation import Message, PromptText, as_messages, shown, with_calls
from rlenv.verifiers.dialogues.calls import MOST_CALLS, Call, as_call
from rlenv.verifiers.text import conclusion

from .forms import is_template

TODAY = datetime(2024, 7, 26)  # for templates that print the date: a prompt must be the same when a run is resumed
_DATES = "".join(f".replace('%{code}', '{TODAY:%{code}}')" for code in "dbBYymaAjHIMSp")
_FIXED_DATE = f"{{% macro strftime_now(form) %}}{{{{ form{_DATES} }}}}{{% endmacro %}}{{{{ '' }}}}"
ROLES = ("system", "user", "assistant")  # of the conversation that shows what a template writes
_ANSWERING = ("tool", "assistant")
_CALL_ID = "0" * 9  # of calls and results without one, for templates that write it
_PROBE = "tool4815162342"  # the name of a function, to see whether a template writes calls
_STAND_IN = re.compile("7301946285(\\d{4})5829164037")  # digits, which no filter of a template changes

THINK = "<think>"

_HERMES = (
    "You may call functions. Their signatures, in JSON:\n{tools}\nTo call one, answer with "
    '<tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call>; its result is the next message.'
)


@dataclass(frozen=True)
class Piece:
    """A part of a rendered conversation: the content of a message with its role, or the template's own text (None)."""

    text: str
    role: str | None


class Chat:
    """Renders conversations with a tokenizer's chat template.

    Args:
        tokenizer: has the template.
        system_prompt: the first message of conversations without a system message; None for none.
        tools: functions that the model may call: the template shows them, else the system message does.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        system_prompt: str | None = None,
        tools: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self.tokenizer, self.system_prompt, self.tools = tokenizer, system_prompt, tools
        self._skeletons: dict[tuple[str, ...], list[str | int]] = {}

    def pieces(self, prompt: PromptText) -> list[Piece]:
        """Return the rendering of a conversation, or of a text as the user's message, in pieces.

        The template first renders stand-ins for the contents, so that its own text is known whatever the messages say.
        If it changes contents (such as `| trim`), each changed content is found by rendering it among stand-ins.

        Raises:
            ValueError: in one line, without a template, if it fails, leaves out or repeats a message, or mixes
                contents with its own text.
        """
        messages = self._known(self._messages(prompt))
        contents = [message["content"] for message in messages]
        skeleton = self._skeleton(messages)
        whole = self._render(messages)
        if whole != _joined(skeleton, contents):
            contents = [self._changed(messages, skeleton, index) if said else "" for index, said in enumerate(contents)]
            if whole != _joined(skeleton, contents):
                raise ValueError(f"the chat template changes with what the messages of {shown(prompt)} say")
        parts = [
            Piece(contents[part], messages[part]["role"]) if isinstance(part, int) else Piece(part, None)
            for part in skeleton
        ]
        return [part for part in parts if part.text]

    @cached_property
    def after_answer(self) -> str:
        """The template's text after a message of the assistant; empty if it refuses such a message."""
        try:
            skeleton = self._skeleton([_message("user"), _message("assistant")], generation=False)
        except ValueError:
            return ""
        return skeleton[-1] if isinstance(skeleton[-1], str) else ""

    def after_turn(self, said: Sequence[Message], reply: Sequence[Message]) -> list[Piece]:
        """Return the pieces between a turn of the assistant and its next one.

        Args:
            said: the conversation, whose last message is that turn; only the roles matter.
            reply: the messages that answer it.

        Raises:
            ValueError: as `pieces`.
        """
        pieces = self.pieces([*(_message(message["role"]) for message in said), *reply])
        turns = [index for index, piece in enumerate(pieces) if piece.role == "assistant"]
        return pieces[turns[-1] + 1 :]

    def own_texts(self) -> Iterator[str]:
        """Yield the template's own texts around messages of every role, as far as it accepts them."""
        for roles in (ROLES, ROLES[1:]):  # with a message of the system, and without
            for count, asking in product(range(1, len(roles) + 1), (False, True)):
                with suppress(ValueError):
                    rendered = self._render(_stand_ins(list(map(_message, roles[:count]))), generation=asking)
                    yield from _STAND_IN.split(rendered)[::2]

    @cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools' schemas; see `schema`."""
        return list(map(schema, self.tools))

    @cached_property
    def _shows_tools(self) -> bool:
        """Whether the template writes the schemas of tools that are passed to it."""
        asking = [_message("user")]
        return self._render(asking) != self._render(asking, tools=False)

    @cached_property
    def _knows_tools(self) -> bool:
        """Whether the template has a form for results of tools, other than the one for the assistant's messages."""
        try:
            after = [self._skeleton([_message("user"), _message("assistant"), _message(role)]) for role in _ANSWERING]
        except ValueError:
            return False
        return after[0] != after[1]

    @cached_property
    def _knows_calls(self) -> bool:
        """Whether the template writes calls that a message holds beside its content."""
        calls = [{"type": "function", "function": {"name": _PROBE, "arguments": {}}}]
        asked = [_message("user"), {**_message("assistant", ""), "tool_calls": calls}, _message("tool")]
        try:
            return _PROBE in self._render(asked)
        except ValueError:
            return False

    def _known(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages that the template has a form for.

        For one without the role "tool", results are the user's; for one without calls, they are text, as `described`
        says.
        """
        if any("tool_calls" in message for message in messages) and not self._knows_calls:
            messages = [_message(each["role"], with_calls(each)) if "tool_calls" in each else each for each in messages]
        if any(message["role"] == "tool" for message in messages) and not self._knows_tools:
            return _of_user(messages)
        return list(messages)

    def _messages(self, prompt: PromptText) -> list[Message]:
        messages = as_messages(prompt)
        has_system = messages[0]["role"] == "system"
        said = [messages[0]["content"]] if has_system else [] if self.system_prompt is None else [self.system_prompt]
        if self.tools and not self._shows_tools:
            said.append(described(self.schemas))
        return [_message("system", "\n\n".join(said)), *messages[has_system:]] if said else messages

    def _skeleton(self, messages: list[Message], generation: bool = True) -> list[str | int]:
        """Return the template's own texts, and between them the index of each message with content."""
        if any(len(message) > 2 for message in messages):  # calls and names are the template's text, and differ
            return self._split(messages, generation)
        # An empty content has no place in the template's text, so a message without one is of another kind.
        kinds = (*(message["role"] + ":" * bool(message["content"]) for message in messages), str(generation))
        if kinds not in self._skeletons:
            self._skeletons[kinds] = self._split(messages, generation)
        return self._skeletons[kinds]

    def _split(self, messages: list[Message], generation: bool) -> list[str | int]:
        rendered = self._render(_stand_ins(messages), generation)
        parts: list[str | int] = [
            int(part) if place % 2 else part for place, part in enumerate(_STAND_IN.split(rendered))
        ]
        found = [part for part in parts if isinstance(part, int)]
        for index, message in enumerate(messages):
            if found.count(index) != bool(message["content"]):
                fault = "repeats" if index in found else "leaves out or rewrites"
                raise ValueError(f"the chat template {fault} message {index + 1} (role {message['role']!r})")
        return parts

    def _changed(self, messages: list[Message], skeleton: list[str | int], index: int) -> str:
        """Return the rendering of one content by the template: only this one is unknown in it."""
        among = _stand_ins(messages)
        place = skeleton.index(index)
        stand_ins = [message["content"] for message in among]
        before, after = _joined(skeleton[:place], stand_ins), _joined(skeleton[place + 1 :], stand_ins)
        among[index] = messages[index]
        rendered, content = self._render(among), messages[index]["content"]
        found = rendered[len(before) : len(rendered) - len(after)]
        its_own = any(found.count(text) > content.count(text) for text in added_tokens(self.tokenizer))
        if before + found + after != rendered or its_own:
            raise ValueError(
                f"the chat template changes with what message {index + 1} (role {messages[index]['role']!r}) says: "
                f"{shown(content)}"
            )
        return found

    def _render(self, messages: list[Message], generation: bool = True, tools: bool = True) -> str:
        if not self.tokenizer.chat_template:
            raise ValueError(
                "prompts are to be rendered as conversations, but the tokenizer has no chat template; "
                "pass chat_template (--chat-template FILE), or a model's tokenizer (--tokenizer FOLDER)"
            )
        try:
            template = self.tokenizer.get_chat_template()
            if "strftime_now" in template:
                template = _FIXED_DATE + template
            return self.tokenizer.apply_chat_template(
                list(map(_with_ids, messages)),
                tools=(self.schemas or None) if tools else None,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=generation,
            )
        except Exception as error:  # whatever a template raises
            roles = ", ".join(message["role"] for message in messages)
            what = f"a conversation of the roles {roles}: {first_line(error)}"
            raise ValueError(f"the chat template cannot render {what}") from error


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of a function: its attribute `schema`, or from its signature and its docstring.

    Raises:
        ValueError: in one line, if a parameter has no type or no description, or the docstring is missing.
    """
    try:
        return dict(getattr(function, "schema", None) or get_json_schema(function))
    except Exception as error:  # of three kinds of transformers', and what a signature raises
        raise ValueError(
            f"tool {function.__name__!r}: {first_line(error)}; chat templates show a tool's docstring and, from its "
            "`Args:`, each parameter, which also needs a type"
        ) from error


def described(schemas: Sequence[dict[str, Any]]) -> str:
    """Return the system message's text about tools, for templates that do not show them."""
    return _HERMES.format(tools="\n".join(map(json.dumps, schemas)))


def written_calls(
    tokenizer: PreTrainedTokenizerBase, prompt: str, schemas: Sequence[dict[str, Any]], turn: str
) -> list[Call] | None:
    """Return the calls in a turn; None if the tokenizer does not say, or the turn does not follow its template.

    Args:
        tokenizer: perhaps with a `response_template`.
        prompt: the chat template's text before a turn, because it may begin the turn, or a thought.
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


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the ids of all special tokens by their text."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = {str(token): tokenizer.convert_tokens_to_ids(str(token)) for token in tokenizer.all_special_tokens}
    return added | named


def added_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the ids of all special tokens, and of the other added tokens except blank ones, by their text."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
    return control_tokens(tokenizer) | {text: index for text, index in added.items() if not text.isspace()}


def chat_tokens(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> dict[str, int]:
    """Return the ids of the tokens that are not ordinary text in a conversation, by their text.

    They are the special tokens, and other added tokens that the template writes or reads. What it writes is seen in its
    renderings: it may put a token together from parts, and a text in its source may be what it looks for in a message,
    as in `content.split('</think>')`.
    """
    special, template = control_tokens(tokenizer), tokenizer.chat_template or ""
    texts = [*chat.own_texts(), *([template] if isinstance(template, str) else template.values())]
    others = added_tokens(tokenizer).items() - special.items()
    return special | {text: index for text, index in others if any(text in each for each in texts)}


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of these texts, the longest that fits; without a text, of nothing."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)")


def read_template(template: str | Path) -> str:
    """Return the chat template in a file; a text with a "{" is the template itself, unless there is such a file.

    Raises:
        ValueError: in one line, for a file that cannot be read or holds no template.
    """
    if isinstance(template, str) and is_template(template):
        return template
    try:
        text = Path(template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"the chat template {str(template)!r} cannot be read: {reason}") from error
    if "{" not in text:
        raise ValueError(f"{str(template)!r} holds no chat template: there is no {{{{ or {{% in it")
    return text


def _message(role: str, content: str = "-") -> Message:
    return {"role": role, "content": content}


def _of_user(messages: Sequence[Message]) -> list[Message]:
    """Return messages with results of tools that follow each other as one message of the user."""
    made: list[Message] = []
    for is_result, run in groupby(messages, key=lambda message: message["role"] == "tool"):
        several = list(run)
        made += [_message("user", "\n".join(each["content"] for each in several))] if is_result else several
    return made


def _with_ids(message: Message) -> Message:
    if message["role"] == "tool":
        return {"tool_call_id": _CALL_ID, **message}
    if "tool_calls" in message:
        return message | {"tool_calls": [{"id": _CALL_ID, **call} for call in message["tool_calls"]]}
    return message


def _stand_ins(messages: Sequence[Message]) -> list[Message]:
    return [
        message | {"content": f"7301946285{index:04}5829164037"} if message["content"] else message
        for index, message in enumerate(messages)
    ]


def _joined(skeleton: Sequence[str | int], contents: Sequence[str]) -> str:
    return "".join(contents[part] if isinstance(part, int) else part for part in skeleton)
