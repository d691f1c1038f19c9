"""Dialogues as they are run: checked, and replayed from their turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from typing_extensions import override

from ..base import UNFINISHED, Dialogue, Problem, Reply, Verdict, Verifier, checked, returned
from ..problem import unshared


class OneTurn(Dialogue):
    """A completion as a dialogue of one turn, for problems of which `Verifier.dialogue` returns None."""

    def __init__(self, verifier: Verifier, problem: Problem) -> None:
        self.verifier, self.problem = verifier, problem

    @override
    def reply(self, turn: str) -> Reply:
        (verdict,) = checked(self.verifier, self.verifier.verify_batch([self.problem], [turn]), 1)
        return Reply(verdict=verdict)

    @override
    def out_of_budget(self) -> Verdict:
        low, high = self.verifier.reward_range  # no answer: as little as a verdict may pay, if 0 is too little
        return replace(UNFINISHED, reward=min(max(0.0, low), high))


def begin(verifier: Verifier, problem: Problem) -> Dialogue:
    """Return the other side of an episode.

    Raises:
        ValueError: if the verifier returns something else.
    """
    made = verifier.dialogue(unshared(problem))
    if made is None:
        return OneTurn(verifier, problem)
    return returned(verifier, "dialogue", made, Dialogue, "a Dialogue or None")


def reply_to(dialogue: Dialogue, turn: str | None) -> Reply:
    """Return the reply to a turn; to None, which stands for the end of turns or context, the verdict.

    Raises:
        ValueError: if it is not a Reply, or its verdict is something else.
    """
    if turn is None:
        return Reply(verdict=returned(dialogue, "out_of_budget", dialogue.out_of_budget(), Verdict, "a Verdict"))
    reply = returned(dialogue, "reply", dialogue.reply(turn), Reply, "a Reply")
    if reply.verdict is not None and not isinstance(reply.verdict, Verdict):
        raise ValueError(f"the verdict of a Reply must be a Verdict or None, got {reply.verdict!r:.60}")
    return reply


def check_replays(verifier: Verifier, problem: Problem) -> None:
    """Check that worker processes can replay the dialogue about a problem.

    Raises:
        ValueError: if it says that it is not deterministic.
    """
    with closing(begin(verifier, problem)) as dialogue:
        _must_be_deterministic(dialogue)


def _must_be_deterministic(dialogue: Dialogue) -> None:
    if not dialogue.deterministic:
        name = type(dialogue).__name__
        raise ValueError(f"{name} is not deterministic, which worker processes need; use verifier_workers=0")


def replay(verifier: Verifier, problem: Problem, turns: Sequence[str | None]) -> Reply:
    """Return the reply to the last of these turns, from a dialogue that begins anew; see `reply_to`.

    Raises:
        ValueError: for a dialogue that cannot be replayed.
    """
    with closing(begin(verifier, problem)) as dialogue:
        _must_be_deterministic(dialogue)
        for turn in turns[:-1]:
            assert turn is not None  # as only the last one may be
            dialogue.recall(turn)
        return reply_to(dialogue, turns[-1])
