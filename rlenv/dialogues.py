"""The other side of a task with dialogues: it replies to turns, and ends episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlenv.verifiers import Problem, Reply, Verdict
from rlenv.verifiers.base import REPLIED, Completion, in_range
from rlenv.verifiers.conversation import as_messages, text_of

from .encoder import CUT
from .encoding import Encoding
from .judge import Exchange, Judge
from .turns import Answer, Turn, verdict_info

UNSPELLABLE = "the reply has characters that cannot be written here"


class TooLongError(ValueError):
    """A reply has more tokens than it may have."""


@dataclass(frozen=True)
class Dialogues:
    """The other side of a task with dialogues: it replies to turns, and ends episodes.

    Args:
        judge: asked for replies and verdicts.
        encoding: of turns and replies.
    """

    judge: Judge
    encoding: Encoding

    def begin(self, problem: Problem) -> Exchange:
        """Return the dialogue of an episode that begins."""
        return Exchange(problem, self.encoding.encoder.is_chat(problem.prompt), as_messages(problem.prompt))

    def answer(self, turns: Sequence[Turn]) -> list[Answer]:
        """Ask for the replies to turns that ended in one step, all together, and return the answers."""
        self.say(turns)
        return self.follow(turns, self.judge.replies([turn.exchange for turn in turns]))

    def say(self, turns: Sequence[Turn]) -> None:
        """Add turns that ended to their dialogues."""
        texts = self.encoding.texts([turn.ids for turn in turns], [turn.exchange.chat for turn in turns])
        for turn, text in zip(turns, texts, strict=True):
            if isinstance(text, Completion):
                text.cut = turn.ending == CUT
                text.prompt_tokens = self.encoding.max_length - turn.room - len(turn.ids)
            turn.exchange.turns.append(text)
            turn.exchange.messages.append({"role": "assistant", "content": str(text)})

    def follow(self, turns: Sequence[Turn], given: Sequence[Reply]) -> list[Answer]:
        """Return the answers that follow from the replies to turns."""
        exchanges = [turn.exchange for turn in turns]
        replies = [self._spelled(*pair) for pair in zip(turns, given, strict=True)]
        spent = [row for row, (reply, tokens) in enumerate(replies) if reply.verdict is None and tokens is None]
        last = self.judge.replies([exchanges[row] for row in spent], out_of_budget=True)
        verdicts = {row: reply.verdict for row, reply in zip(spent, last, strict=True)}
        answers = []
        for row, (turn, (reply, tokens)) in enumerate(zip(turns, replies, strict=True)):
            turn.exchange.counts.update(reply.counts)
            turn.exchange.paid += reply.reward
            if tokens is not None:
                turn.exchange.messages += as_messages(reply.content)
                if REPLIED in self.judge.verifier.inputs:
                    turn.exchange.turns[-1].reply = as_messages(reply.content)  # type: ignore[attr-defined]
                info = {"reply": text_of(reply.content), "turn": turn.exchange.turns[-1], "appended": len(tokens)}
                answers.append(Answer(float(reply.reward), info, tokens))
            else:
                verdict = verdicts.get(row, reply.verdict)
                assert verdict is not None
                verdict = in_range(self.judge.verifier, verdict, turn.exchange.paid)
                cut = row in verdicts or turn.ending == CUT
                answers.append(Answer(float(reply.reward + verdict.reward), self._end(turn, verdict), None, cut))
        return answers

    def _end(self, turn: Turn, verdict: Verdict) -> dict[str, Any]:
        """Close a dialogue; return the infos of its end."""
        said = turn.exchange
        self.judge.close(said)
        info = {"completion": said.turns[-1], "messages": said.messages, "turns": len(said.turns)}
        return {**said.counts, **info, **verdict_info(self.judge.verifier, said.problem, verdict)}

    def _spelled(self, turn: Turn, reply: Reply) -> tuple[Reply, list[int] | None]:
        """Return a reply and its tokens; None if it ends the episode, or the turns or the context are used up."""
        if reply.verdict is not None or len(turn.exchange.turns) == self.encoding.max_turns:
            return reply, None
        tokens = self._tokens(turn, reply)
        if isinstance(tokens, ValueError):
            fault, said = tokens, turn.exchange
            why = str(fault) if isinstance(fault, TooLongError) else UNSPELLABLE
            other = self.judge.verifier.turns.in_place(said.turns[-1], why)
            if other is not None and isinstance(tokens := self._tokens(turn, other), list):
                reply = other
            elif isinstance(fault, TooLongError):
                return reply if other is None else other, None
            elif not self.judge.flag_errors:
                raise fault
            else:
                return replace(reply, verdict=Verdict(0.0, status="error", reason=str(fault))), None
        return reply, tokens if isinstance(tokens, list) and len(tokens) < turn.room else None

    def _tokens(self, turn: Turn, reply: Reply) -> list[int] | ValueError:
        """Return the tokens of a reply, or why it cannot be appended."""
        said = turn.exchange
        try:
            tokens = self.encoding.encoder.reply(said.messages, reply.content, turn.ending, said.chat)
        except ValueError as error:
            return error
        if len(tokens) > self.encoding.max_reply_tokens:
            return TooLongError(f"the reply has {len(tokens)} tokens; allowed: {self.encoding.max_reply_tokens}")
        return tokens
