"""The episodes in the slots of a batched environment, whose turns are answered at once or in logical time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .dialogues import Answer, Completions, Dialogues, Turn
from .judge import Exchange
from .task import Prompt
from .waiting import LateReplies


class Slots:
    """The episodes in B slots.

    Args:
        other_side: answers turns.
        num_slots: B.
        late: whether the replies of dialogues come late.

    Attributes:
        prompts: of the episodes, by slot.
        exchanges: with the other side, by slot.
        held: tokens of each context [B].
        waiting: whose turn is over and not yet answered, bool [B].
    """

    def __init__(self, other_side: Completions | Dialogues, num_slots: int, late: bool = False) -> None:
        self.other_side, self.late = other_side, LateReplies(other_side.judge) if late else None
        self.prompts: dict[int, Prompt] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.held = np.zeros(num_slots, dtype=np.int64)
        self.waiting = np.zeros(num_slots, dtype=bool)

    def begin(self, rows: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Begin episodes in these slots."""
        self.leave(rows)
        for row, prompt in zip(rows, prompts, strict=True):
            self.prompts[row], self.held[row] = prompt, len(prompt.tokens)
            self.exchanges[row] = self.other_side.begin(prompt.problem)

    def leave(self, rows: Iterable[int]) -> None:
        """Give up the dialogues of these slots that are not over, and the replies that they wait for."""
        for row in rows:
            if self.late is not None:
                self.late.drop([row])
            if row in self.exchanges:
                self.other_side.judge.close(self.exchanges[row])
            self.waiting[row] = False

    def answer(self, turns: Mapping[int, Turn], going: int) -> dict[int, Answer]:
        """Return the answers to turns that are over, by slot: now, or at a later call.

        Args:
            turns: that ended in this step, by slot.
            going: the number of slots that have a turn to go on with.
        """
        if self.late is None:
            return dict(zip(turns, self.other_side.answer(list(turns.values())), strict=True))
        assert isinstance(self.other_side, Dialogues)
        self.other_side.say(list(turns.values()))
        self.late.add(turns)
        answers: dict[int, Answer] = {}
        while most := self.late.due(len(self.held), going):
            taken = self.late.take(most)
            followed = self.other_side.follow(*zip(*taken.values(), strict=True))
            going += sum(answer.tokens is not None for answer in followed)
            answers |= zip(taken, followed, strict=True)
        self.waiting = np.isin(np.arange(len(self.held)), list(self.late))
        return answers
