"""What follows from a turn: the verdict on a completion, or the reply of a dialogue, or the end of an episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Problem, Reply, Verdict
from rlenv.verifiers.base import REPLIED, Completion, Scorer, in_range, is_success
from rlenv.verifiers.conversation import Message, text_of

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
class OtherSide:
    """The other side of a task: it answers turns.

    Args:
        judge: judges, and asks for replies.
        encoding: of turns and replies.
        record: learns of each verdict's problem and infos; see `TextGenTask`.
    """

    judge: Judge
    encoding: Encoding
    record: Callable[[Problem, Mapping[str, Any]], None]

    def conclude(self, problem: Problem, verdict: Verdict) -> dict[str, Any]:
        """Return the infos of a verdict, after `record` has them."""
        info = verdict_info(self.judge.verifier, problem, verdict)
        self.record(problem, info)
        return info


@dataclass(frozen=True)
class Completions(OtherSide):
    """The other side of a task without dialogues: it has the only turn of an episode judged.

    Args:
        late: returns futures of verdicts, for the infos; the reward is NaN. None to judge at once.
    """

    late: Callable[[Sequence[Problem], Sequence[str]], Sequence[Future[Any]]] | None = None

    def begin(self, problem: Problem) -> Exchange:
        """Return an episode that begins."""
        return Exchange(problem, False, [])

    def answer(self, turns: Sequence[Turn]) -> list[Answer]:
        """Return the ends of episodes whose completions ended in one step, which are judged all together."""
        problems = [turn.exchange.problem for turn in turns]
        texts = self.encoding.texts([turn.ids for turn in turns])
        ends: list[tuple[float, dict[str, Any]]]
        if self.late is not None:
            ends = [(math.nan, {"verdict_future": future}) for future in self.late(problems, texts)]
        else:
            pairs = zip(problems, self.judge(problems, texts), strict=True)
            ends = [(float(verdict.reward), self.conclude(problem, verdict)) for problem, verdict in pairs]
        return [
            Answer(reward, {"completion": text, **info}, None, turn.ending == CUT)
            for turn, text, (reward, info) in zip(turns, texts, ends, strict=True)
        ]


@dataclass(frozen=True)
class Dialogues(OtherSide):
    """The other side of a task with dialogues: it replies to turns, and ends episodes."""

    def begin(self, problem: Problem) -> Exchange:
        """Return the dialogue of an episode that begins."""
        prompt = problem.prompt
        messages = [_user(prompt)] if isinstance(prompt, str) else list(prompt)
        return Exchange(problem, self.encoding.encoder.is_chat(prompt), messages)

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
                turn.exchange.messages += _messages(reply)
                if REPLIED in self.judge.verifier.inputs:
                    turn.exchange.turns[-1].reply = _messages(reply)  # type: ignore[attr-defined]
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
        return {**said.counts, **info, **self.conclude(said.problem, verdict)}

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


def verdict_info(verifier: Scorer, problem: Problem, verdict: Verdict) -> dict[str, Any]:
    """Return the info of one episode's verdict.

    `level` is among the keys only if the problem has one, `prompt_arm` only if a choice of prompts posed it.
    """
    level, arm = problem.metadata.get("level"), arm_of(problem)
    return {
        "verdict": {name: float(value) for name, value in verdict.parts.items()},
        "is_success": is_success(verifier, verdict),
        "verifier_failed": verdict.status in VERIFIER_FAILED,
        "verdict_status": verdict.status,
        "verdict_reason": verdict.reason,
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


def _messages(reply: Reply) -> list[Message]:
    return [_user(reply.content)] if isinstance(reply.content, str) else list(reply.content)


def _user(content: str) -> Message:
    return {"role": "user", "content": content}
