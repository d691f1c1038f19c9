"""Tools around any verifier: turns that call them are answered, the first one that calls none is judged."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from ..base import CALLED, Dialogue, Problem, Reply, Turns, Verdict, Verifier
from ..wrapping import WithPoser, held
from .running import begin
from .toolbox import CALL_LENGTH, CALLS, ERRORS, RESULT_LENGTH, Toolbox, make_tool

TURNS = 4  # with calls


class WithTools(WithPoser):
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
        failed: the reply to a call that failed; None for a message that says why.

    Raises:
        ValueError: for no tools, two of the same name, and as `make_tool` says.
    """

    success_reward = held(Verifier.success_reward)
    reward_range = held(Verifier.reward_range)
    part_weights = held(Verifier.part_weights)
    does_not_catch = held(Verifier.does_not_catch)
    request = held(Verifier.request)
    probes = held(Verifier.probes)

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
        self.box = Toolbox(made, result_length, failed)
        self.poser = self.verifier = verifier
        self.alphabet = alphabet or "".join(dict.fromkeys(verifier.alphabet + string.printable))
        self._turns, self._functions = turns, [tool.function for tool in made]
        _ = self.turns  # which refuses tools
        self.inputs = tuple(dict.fromkeys([*verifier.inputs, CALLED]))
        isolated = verifier.execution.isolated or any(tool.isolated for tool in made)
        self.execution = replace(verifier.execution, isolated=isolated)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """The verifier's turns plus the turns with calls; for a program, known once a problem is opened."""
        own = self.verifier.turns
        if own.tools:
            kind, names = type(self.verifier).__name__, ", ".join(tool.__name__ for tool in own.tools)
            raise ValueError(f"{kind} has tools of its own ({names}) and takes no others: omit them")
        most, longest = own.max_turns + self._turns, max(self.box.result_length, own.reply_length or 0)
        return replace(own, max_turns=most, reply_length=longest, tools=self._functions, instead=self._instead)

    @property
    def answer_length(self) -> int | None:  # type: ignore[override]
        """The verifier's length, at least the length of a call; for a program, known once a problem is opened."""
        own = self.verifier.answer_length
        return None if own is None else max(own, CALL_LENGTH)

    @override
    def close(self) -> None:
        self.verifier.close()

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Calling(self, begin(self.verifier, problem))

    def _instead(self, turn: str, fault: str) -> Reply | None:
        return self.box.instead(turn, fault) or self.verifier.turns.in_place(turn, fault)


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
        calls = self.around.box.calls(turn)
        if calls:
            return self.around.box.results(calls)
        reply = self.inner.reply(turn)
        return replace(reply, counts={CALLS: 0, ERRORS: 0, **reply.counts}) if isinstance(reply, Reply) else reply

    @override
    def recall(self, turn: str) -> None:
        if not self.around.box.calls(turn):  # results were text, and nothing remembers them
            self.inner.recall(turn)

    @override
    def out_of_budget(self) -> Verdict:
        return self.inner.out_of_budget()

    @override
    def close(self) -> None:
        self.inner.close()
