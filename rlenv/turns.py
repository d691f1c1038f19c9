"""Answers to turns: here the verdict on a completion, in `dialogues.py` a reply or the end of a dialogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Problem, Verdict
from rlenv.verifiers.base import Scorer, is_success

from .encoder import CUT
from .encoding import Encoding
from .judge import Exchange, Judge
from .problems import is_level
from .stream import arm_of


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
class Completions:
    """The other side of a task without dialogues: it has the only turn of an episode judged.

    Args:
        judge: judges completions.
        encoding: of completions.
        late: returns futures of verdicts, for the infos; the reward is NaN. None to judge at once.
    """

    judge: Judge
    encoding: Encoding
    late: Callable[[Sequence[Problem], Sequence[str]], Sequence[Future[Any]]] | None = None

    def begin(self, problem: Problem) -> Exchange:
        """Return an episode that begins."""
        return Exchange(problem, False, [])

    def answer(self, turns: Sequence[Turn]) -> list[Answer]:
        """Return the ends of episodes whose completions ended in one step, judged as one batch."""
        problems = [turn.exchange.problem for turn in turns]
        texts = self.encoding.texts([turn.ids for turn in turns])
        ends: list[tuple[float, dict[str, Any]]]
        if self.late is not None:
            ends = [(math.nan, {"verdict_future": future}) for future in self.late(problems, texts)]
        else:
            pairs = zip(problems, self.judge(problems, texts), strict=True)
            ends = [(float(each.reward), verdict_info(self.judge.verifier, one, each)) for one, each in pairs]
        return [
            Answer(reward, {"completion": text, **info}, None, turn.ending == CUT)
            for turn, text, (reward, info) in zip(turns, texts, ends, strict=True)
        ]


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
