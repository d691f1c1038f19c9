"""Answers to turns that are over: a dialogue's replies, and the verdict that ends an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Problem, Reply, Verdict
from rlenv.verifiers.base import REPLIED, Completion, Scorer, has_dialogues, in_range, is_success
from rlenv.verifiers.conversation import as_messages, text_of
from rlenv.verifiers.text import shorten

from .encoder import CUT
from .encoding import Encoding
from .judge import Exchange, Judge
from .problems import is_level
from .stream import arm_of

UNSPELLABLE = "the reply has characters that cannot be written here"


class TooLongError(ValueError):
    """A reply has more tokens than it may have."""


class Turn(NamedTuple):
    """A turn that is over.

    Attributes:
        exchange: that it belongs to.
        ids: its tokens.
        ending: `STOP`, `STRING` or `CUT`.
        room: how many tokens the context has left.
    """

    exchange: Exchange
    ids: Sequence[int]
    ending: str
    room: int


class Answer(NamedTuple):
    """The environment's part after a turn.

    Attributes:
        reward: of the step that ended the turn.
        info: of that step.
        tokens: appended to the context; None if the episode is over.
        cut: whether the episode was cut off: its last turn at its limit, or out of turns or context.
    """

    reward: float
    info: dict[str, Any]
    tokens: list[int] | None
    cut: bool = False


@dataclass(frozen=True)
class Responder:
    """Answers the model's turns: a completion, which is the only one, with its verdict, others as a dialogue does.

    Args:
        judge: asked for replies and verdicts.
        encoding: of turns and replies.
    """

    judge: Judge
    encoding: Encoding

    def begin(self, problem: Problem) -> Exchange:
        """Return an episode that begins."""
        return Exchange(problem, self.encoding.encoder.is_chat(problem.prompt), as_messages(problem.prompt))

    def answer(self, turns: Sequence[Turn]) -> list[Answer]:
        """Return the answers to turns that ended in one step, asked for all together."""
        self.say(turns)
        return self.follow(turns, self.judge.replies([turn.exchange for turn in turns]))

    def say(self, turns: Sequence[Turn]) -> None:
        """Add turns that ended to their episodes."""
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
        last = self.judge.replies([exchanges[row] for row in spent], out_of_budget=True) if spent else []
        verdicts = {row: reply.verdict for row, reply in zip(spent, last, strict=True)}
        answers = []
        for row, (turn, (reply, tokens)) in enumerate(zip(turns, replies, strict=True)):
            if reply.counts:
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
                info = self._end(turn) | verdict_info(self.judge.verifier, turn.exchange.problem, verdict)
                cut = row in verdicts or turn.ending == CUT
                answers.append(Answer(float(reply.reward + verdict.reward), info, None, cut))
        return answers

    def judged_later(self, turns: Sequence[Turn], verdicts: Sequence[Future[Any]]) -> list[Answer]:
        """Return the ends of episodes whose verdicts come later; their rewards are NaN."""
        infos = [{**self._end(turn), "verdict_future": each} for turn, each in zip(turns, verdicts, strict=True)]
        return [Answer(math.nan, info, None, turn.ending == CUT) for turn, info in zip(turns, infos, strict=True)]

    def _end(self, turn: Turn) -> dict[str, Any]:
        """Close an episode; return the infos of its end, beside those of the verdict."""
        said = turn.exchange
        self.judge.close(said)
        if not has_dialogues(self.judge.verifier):
            return {"completion": said.turns[-1]}
        return {**said.counts, "completion": said.turns[-1], "messages": said.messages, "turns": len(said.turns)}

    def _spelled(self, turn: Turn, reply: Reply) -> tuple[Reply, list[int] | None]:
        """Return a reply and its tokens; None if it ends the episode, or the turns or the context are used up."""
        if reply.verdict is not None or len(turn.exchange.turns) == self.encoding.max_turns:
            return reply, None
        tokens = self._tokens(turn, reply)
        if isinstance(tokens, ValueError):
            fault, said = tokens, turn.exchange
            why = str(fault) if isinstance(fault, TooLongError) else UNSPELLABLE
            other = self.judge.in_place(said, why)
            if other is not None and other.verdict is not None:
                return other, None
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
            tokens = self.encoding.encoder.reply(said.messages, reply.content, turn.ending, said.chat, turn.ids[-1])
        except ValueError as error:
            return error
        if len(tokens) > self.encoding.max_reply_tokens:
            return TooLongError(f"the reply has {len(tokens)} tokens; allowed: {self.encoding.max_reply_tokens}")
        return tokens


def verdict_info(verifier: Scorer, problem: Problem, verdict: Verdict) -> dict[str, Any]:
    """Return the info of one episode's verdict.

    `level` is among the keys only if the problem has one, `prompt_arm` only if a choice of prompts posed it.
    """
    level, arm = problem.metadata.get("level"), arm_of(problem)
    whose = "" if verdict.status == "ok" else f"prompt {shorten(problem.text)}"  # to find its row
    return {
        "verdict": {name: float(value) for name, value in verdict.parts.items()},
        "is_success": is_success(verifier, verdict),
        "verifier_failed": verdict.status in VERIFIER_FAILED,
        "verdict_status": verdict.status,
        "verdict_reason": "; ".join(filter(None, (verdict.reason, whose))),
        **({"level": level} if is_level(level) else {}),
        **({} if arm is None else {"prompt_arm": arm}),
    }


def outcome_of(reward: float, info: Mapping[str, Any]) -> tuple[str, bool | None]:
    """Return `render`'s line about the end of an episode, and whether it was solved; None without a verdict.

    Args:
        reward: of the last step.
        info: of that step; without a "verdict_status" the verdict comes later.
    """
    status = info.get("verdict_status", "no verdict yet")
    return (f"reward {reward:g}", bool(info["is_success"])) if status == "ok" else (status, None)
