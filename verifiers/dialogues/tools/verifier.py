"""Tools around any verifier: turns that call them are answered, the first one that calls none is judged."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from ...base import Completion, Dialogue, Problem, Reply, Verdict, Verifier, first_line
from ...conversation import Message
from ..running import begin
from .calls import Call, read_calls
from .tool import make_tool

CALLS, ERRORS = "tool_calls", "tool_errors"  # in the infos
TURNS = 4  # with calls
CALL_LENGTH = 128  # characters that the default length of a turn has room for
RESULT_LENGTH = 500  # characters of all results of a turn
MOST_CALLS = 8  # in a turn
FAULT_LENGTH = 200  # characters of what went wrong
OWN = ("verify", "verify_batch", "has_dialogues")  # not the wrapped verifier's, though the class does not override it
NO_OUTPUT = "(no output)"


class WithTools(Verifier):
    """A verifier whose model may call tools; everything but dialogues is the verifier's own.

    A turn with calls (see `read_calls`) is answered with their results: messages of the role "tool", or lines of a
    plain text. A turn without a call is the verifier's: judged, or answered by its dialogue.

    A call that fails is answered with a message, and the episode goes on: an unknown tool, a call that is not JSON,
    wrong arguments, an exception, a result that is too long or cannot be spelled, a worker process that dies or takes
    too long; then the other calls of that turn have no result either. Replies count "tool_calls" and "tool_errors".

    Args:
        verifier: judges.
        tools: functions, tools or names; see `make_tool`.
        turns: with calls, beside those of the verifier.
        result_length: characters of all results of a turn together.
        alphabet: of prompts, calls and results; None for printable ASCII and the verifier's.
        failed: what the model reads of a call that failed; None for a message that says why.

    Raises:
        ValueError: for no tools, two of the same name, and as `make_tool` says.
    """

    def __init__(
        self,
        verifier: Verifier,
        tools: Sequence[Any],
        turns: int = TURNS,
        result_length: int = RESULT_LENGTH,
        alphabet: str | None = None,
        failed: str | None = None,
    ) -> None:
        if isinstance(tools, str) or not isinstance(tools, Sequence) or not tools:
            raise ValueError(f"tools must be a list of functions or names, got {tools!r:.60}")
        made = [make_tool(tool) for tool in tools]
        self.by_name = {tool.name: tool for tool in made}
        if len(self.by_name) < len(made):
            names = ", ".join(tool.name for tool in made)
            raise ValueError(f"tools must have different names, got {names}")
        if result_length < 2 * MOST_CALLS:
            raise ValueError(f"result_length must be at least {2 * MOST_CALLS}, got {result_length!r}")
        self.settings: tuple[Any, ...] = (verifier, made, turns, result_length, alphabet, failed)
        self.verifier, self.result_length, self.failed = verifier, result_length, failed
        for name, value in vars(Verifier).items():  # all that is not overridden here
            if name[0] != "_" and name not in OWN and getattr(type(self), name) is value:
                setattr(self, name, getattr(verifier, name))
        self.tools = [tool.function for tool in made]
        self.alphabet = alphabet or "".join(dict.fromkeys(verifier.alphabet + string.printable))
        self.max_turns = verifier.max_turns + turns
        self.reply_length = max(result_length, verifier.reply_length or 0)
        self.answer_length = None if verifier.answer_length is None else max(verifier.answer_length, CALL_LENGTH)
        self.wants = tuple(dict.fromkeys([*verifier.wants, "calls"]))
        self.isolated = verifier.isolated or any(tool.isolated for tool in made)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.settings

    @override
    def close(self) -> None:
        self.verifier.close()

    @property
    @override
    def makes_problems(self) -> bool:
        return self.verifier.makes_problems

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Calling(self, begin(self.verifier, problem))

    @override
    def demonstration_turns(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        if "turns" in problem.metadata:  # of a file, whose turns may call tools
            return super().demonstration_turns(problem, rng)
        return self.verifier.demonstration_turns(problem, rng)

    @override
    def instead(self, problem: Problem, turn: str, fault: str) -> Reply | None:
        calls = self.calls(turn)
        return self.refusal(len(calls), fault) if calls else self.verifier.instead(problem, turn, fault)

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


class Calling(Dialogue):
    """The other side of an episode with tools.

    Args:
        around: the verifier with its tools.
        inner: the dialogue of the turns without calls.
    """

    def __init__(self, around: WithTools, inner: Dialogue) -> None:
        self.around, self.inner = around, inner
        self.deterministic = inner.deterministic

    @override
    def reply(self, turn: str) -> Reply:
        calls = self.around.calls(turn)
        if calls:
            return self.around.results(calls)
        reply = self.inner.reply(turn)
        return replace(reply, counts={CALLS: 0, ERRORS: 0, **reply.counts}) if isinstance(reply, Reply) else reply

    @override
    def recall(self, turn: str) -> None:
        if not self.around.calls(turn):  # results were text, and nothing remembers them
            self.inner.recall(turn)

    @override
    def out_of_budget(self) -> Verdict:
        return self.inner.out_of_budget()

    @override
    def close(self) -> None:
        self.inner.close()


def _message(text: str) -> Message:
    return {"role": "tool", "content": text}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if str(error).strip() else type(error).__name__
