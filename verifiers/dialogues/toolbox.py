"""The tools of an episode: reads calls in a turn, makes them, and words their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..base import Completion, Reply, first_line, message_of
from ..conversation import Message
from .calls import MOST_CALLS, Call, read_calls
from .tool import Tool

CALLS, ERRORS = "tool_calls", "tool_errors"  # in the infos
CALL_LENGTH = 128  # characters that the default length of a turn has room for
RESULT_LENGTH = 500  # characters of all results of a turn
FAULT_LENGTH = 200  # characters of what went wrong
NO_OUTPUT = "(no output)"


class Toolbox:
    """Tools by name.

    Args:
        tools: with different names.
        result_length: characters of all results of a turn together.
        failed: what the model reads of a call that failed; None for a message that says why.

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
        found = turn.calls if isinstance(turn, Completion) else None
        return read_calls(turn, self.by_name) if found is None else found

    def results(self, calls: Sequence[Call]) -> Reply:
        """Run the calls of a turn and return the reply with their results."""
        if len(calls) > MOST_CALLS:
            return self.refusal(len(calls), f"at most {MOST_CALLS} calls in a turn")
        room = self.result_length // len(calls) - 1  # a line of a plain text has one character more
        outcomes = [self._fitting(room, *self._run(call)) for call in calls]
        messages = [_message(text if good else self._failure(text)[:room]) for good, text in outcomes]
        return Reply(messages, counts={CALLS: len(calls), ERRORS: sum(not good for good, _ in outcomes)})

    def refusal(self, calls: int, fault: str) -> Reply:
        """Return the reply to a turn whose calls all failed, for one reason."""
        return Reply([_message(self._failure(fault))], counts={CALLS: calls, ERRORS: calls})

    def _failure(self, fault: str) -> str:
        return f"Error: {fault[:FAULT_LENGTH]}" if self.failed is None else self.failed

    @staticmethod
    def _fitting(room: int, good: bool, text: str) -> tuple[bool, str]:
        if good and len(text) > room:
            return False, f"the result has {len(text)} characters, more than {room}"
        return good, text.strip() or NO_OUTPUT

    def _run(self, call: Call) -> tuple[bool, str]:
        """Return whether a call succeeded, and its result or what went wrong."""
        if call.fault:
            return False, call.fault
        tool = self.by_name.get(call.name)
        if tool is None:
            return False, f"there is no tool {call.name[:40]!r}; there is {', '.join(self.by_name)}"
        try:
            return True, tool.run(call)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # whatever the function raises
            return False, first_line(error) if isinstance(error, ValueError) else _named(error)


def _message(text: str) -> Message:
    return {"role": "tool", "content": text}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if message_of(error).strip() else type(error).__name__
