"""Tools: functions called with the model's arguments; and the toolbox of an episode, which answers turns with calls."""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from enum import EnumType
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rlenv._checks import first_line, message_of
from rlenv._loop import wait_for

from ..base import Reply
from ..conversation import Message
from ..plugins.registry import advice, reason_of, require_trust
from ..plugins.user_code import import_user_object
from .calls import MOST_CALLS, Call, calls_in

CALLS, ERRORS = "tool_calls", "tool_errors"  # in the infos
CALL_LENGTH = 128  # characters that the default length of a turn has room for
RESULT_LENGTH = 500  # characters of all results of a turn
FAULT_LENGTH = 200  # characters of what went wrong
NO_OUTPUT = "(no output)"
BUILT_IN = {
    "calculator": "rlenv.verifiers.dialogues.calculator:calculator",
    "python": "rlenv.verifiers.code.tool:python_tool",
}
_KINDS: dict[Any, tuple[type, ...]] = {kind: (kind,) for kind in (int, str, bool, list, dict, types.NoneType)}
_KINDS[float] = (int, float)
_UNREADABLE = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


class Tool:
    """A function that the model may call.

    Args:
        function: sync or async; called with keyword arguments. What it returns is shown as text: a text as it is,
            anything else as JSON.
        isolated: whether it should run in a worker process, because it may hang, crash or take long.

    Raises:
        ValueError: for something that is not a function with a name and a signature.
    """

    def __init__(self, function: Callable[..., Any], isolated: bool = True) -> None:
        name = getattr(function, "__name__", "")
        if not callable(function) or not name.isidentifier():
            raise ValueError(f"a tool is a function with a name, or the name of one, got {function!r:.60}")
        self.function, self.isolated, self.name = function, isolated, name
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError as error:
            raise ValueError(f"tool {name!r}: {error}") from error
        for each in parameters:
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                raise ValueError(
                    f"tool {name!r}: the parameter {each} cannot be given by name, as models give arguments"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return Tool, (self.function, self.isolated)

    def run(self, call: Call) -> str:
        """Return the result of a call as text.

        Raises:
            ValueError: for arguments that the function does not take.
            Exception: whatever the function raises.
        """
        arguments = self.read(call.arguments) if isinstance(call.arguments, str) else call.arguments
        self._check(arguments)
        result = wait_for(self.function(**arguments))
        return str.__str__(result) if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        try:
            return get_type_hints(self.function)
        except Exception:  # of names that are not there any more
            return {}

    @cached_property
    def _text(self) -> str | None:
        """The only parameter that has to be given, if it is a text."""
        required = [each.name for each in self._signature.parameters.values() if each.default is each.empty]
        return required[0] if len(required) == 1 and self._hints.get(required[0]) is str else None

    def _check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that are missing, unknown or of another type."""
        self._bound((), arguments)
        for name, value in arguments.items():
            if not _fits(value, self._hints.get(name, Any)):
                raise ValueError(f"the argument {name} must be {_named_type(self._hints[name])}, got {value!r:.40}")

    def _bound(self, values: Sequence[Any], named: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*values, **named)
        except TypeError as error:
            takes = ", ".join(self._signature.parameters) or "none"
            raise ValueError(f"{error}; the arguments of {self.name}: {takes}") from error

    def read(self, text: str) -> dict[str, Any]:
        """Return the arguments in a plain call: literals, or all of the text for a function of one text.

        Raises:
            ValueError: for others.
        """
        try:
            call = ast.parse(f"f({text})", mode="eval").body
            if not isinstance(call, ast.Call):  # such as 1) + f(2
                raise ValueError("not the arguments of one call")
            values = [ast.literal_eval(each) for each in call.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        except _UNREADABLE as error:
            if self._text is not None:
                return {self._text: text}
            raise ValueError(f"the arguments cannot be read: {self.name}({text:.40})") from error
        try:
            read = self._bound(values, named)
        except ValueError:
            if self._text is None:
                raise
            return {self._text: text}
        if self._text is not None and not isinstance(read.arguments[self._text], str):
            return {self._text: text}
        return dict(read.arguments)


def make_tool(spec: Any) -> Tool:
    """Return the tool that `spec` describes: a function, "calculator", "python", "file.py:name" or "module:name".

    Raises:
        ValueError: for an unknown name, or a module that cannot be imported or is named by a checkpoint.
    """
    if not isinstance(spec, str):
        return spec if isinstance(spec, Tool) else Tool(spec)
    if spec in BUILT_IN:
        module, _, name = BUILT_IN[spec].partition(":")
        made: Tool = getattr(import_module(module), name)()
        return made
    if ":" not in spec:
        raise ValueError(f"unknown tool {spec!r}; {advice(spec, [*BUILT_IN, 'file.py:function'])}")
    require_trust(f"the tool {spec!r}")
    try:
        return make_tool(import_user_object(spec))
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise ValueError(f"tool {spec!r} cannot be loaded: {reason_of(error)}") from error


class Toolbox:
    """Tools by name.

    Args:
        tools: with different names.
        result_length: characters of all results of a turn together.
        failed: the reply to a call that failed; None for a message that says why.

    Raises:
        ValueError: for two tools of the same name, or a `result_length` that is too small.
    """

    def __init__(self, tools: Sequence[Tool], result_length: int = RESULT_LENGTH, failed: str | None = None) -> None:
        self.by_name = {tool.name: tool for tool in tools}
        if len(self.by_name) < len(tools):
            names = ", ".join(tool.name for tool in tools)
            raise ValueError(f"tools must have different names, got {names}")
        if result_length < 2 * MOST_CALLS:
            raise ValueError(f"result_length must be at least {2 * MOST_CALLS}, got {result_length!r}")
        self.result_length, self.failed = result_length, failed

    def calls(self, turn: str) -> Sequence[Call]:
        """Return the calls in a turn."""
        return calls_in(turn, self.by_name)

    def results(self, calls: Sequence[Call]) -> Reply:
        """Run the calls of a turn and return the reply with their results."""
        if len(calls) > MOST_CALLS:
            return self.refusal(len(calls), f"at most {MOST_CALLS} calls in a turn")
        room = self.result_length // len(calls) - 1  # a line of a plain text has one character more
        outcomes = [self._fitting(room, *self._run(call)) for call in calls]
        messages = [_message(text if good else self._failure(text)[:room]) for good, text in outcomes]
        return Reply(messages, counts={CALLS: len(calls), ERRORS: sum(not good for good, _ in outcomes)})

    def refusal(self, calls: int, fault: str) -> Reply:
        """Return the reply to a turn in which all calls failed, for the same reason."""
        return Reply([_message(self._failure(fault))], counts={CALLS: calls, ERRORS: calls})

    def instead(self, turn: str, fault: str) -> Reply | None:
        """Return the reply to a turn in which all calls failed, for the same reason; None if it has no calls."""
        calls = self.calls(turn)
        return self.refusal(len(calls), fault) if calls else None

    def _failure(self, fault: str) -> str:
        return f"Error: {fault[:FAULT_LENGTH]}" if self.failed is None else self.failed

    @staticmethod
    def _fitting(room: int, good: bool, text: str) -> tuple[bool, str]:
        if good and len(text) > room:
            return False, f"the result has {len(text)} characters, more than {room}"
        return good, text.strip() or NO_OUTPUT

    def _run(self, call: Call) -> tuple[bool, str]:
        """Return whether a call succeeded, and its result or its fault."""
        if call.fault:
            return False, call.fault
        tool = self.by_name.get(call.name)
        if tool is None:
            return False, f"there is no tool {call.name[:40]!r}; there is {', '.join(self.by_name)}"
        from asyncio import CancelledError  # slow, and every worker process would wait for it

        try:
            return True, tool.run(call)
        except (Exception, SystemExit, CancelledError) as error:  # whatever the function raises
            return False, first_line(error) if isinstance(error, ValueError) else _named(error)


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value from JSON is of an annotated type, as far as that can be told from its outermost type."""
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if isinstance(origin, EnumType):  # whose values chat templates show; the function gets one of them, as in TRL
        return value in _values(origin)
    kinds = _KINDS.get(origin)
    return kinds is None or (isinstance(value, kinds) and (origin is bool or not isinstance(value, bool)))


def _values(kind: Any) -> list[Any]:
    return [each.value for each in kind]


def _named_type(hint: Any) -> str:
    """Return an annotated type for a message; of an Enum its values."""
    return " or ".join(map(repr, _values(hint))) if isinstance(hint, EnumType) else inspect.formatannotation(hint)


def _message(text: str) -> Message:
    return {"role": "tool", "content": text}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if message_of(error).strip() else type(error).__name__
