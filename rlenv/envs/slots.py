"""The episodes in the slots of a batched environment, whose turns are answered at once or in logical time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

import numpy as np

from verifiers import Reply

from .dialogues import Answer, Completions, Dialogues, Turn
from .judge import Exchange
from .task import Prompt

TAKEN_SHARE = 1 / 8  # of all slots; so many replies are taken at a time, since reading them takes a separate pass


class Slots:
    """The episodes in B slots.

    Late replies are asked for when a turn ends, and taken when more than half of the slots wait for one, or when no
    slot has a turn to go on with: the oldest eighth, in the order in which they were asked for, whether or not they
    are there. So episodes do not depend on the clock.

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
        self.other_side, self.late = other_side, late
        self.prompts: dict[int, Prompt] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.held = np.zeros(num_slots, dtype=np.int64)
        self.waiting = np.zeros(num_slots, dtype=bool)
        self._asked: dict[int, tuple[Turn, Future[Reply]]] = {}  # by slot, in the order asked

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without futures: the copy asks again."""
        return {**self.__dict__, "_asked": {slot: turn for slot, (turn, _) in self._asked.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _asked={})
        self._ask(state["_asked"])

    def begin(self, rows: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Begin episodes in these slots."""
        self.leave(rows)
        for row, prompt in zip(rows, prompts, strict=True):
            self.prompts[row], self.held[row] = prompt, len(prompt.tokens)
            self.exchanges[row] = self.other_side.begin(prompt.problem)

    def leave(self, rows: Iterable[int]) -> None:
        """Give up the dialogues of these slots that are not over, and the replies that they wait for."""
        for row in rows:
            if row in self._asked:
                self._asked.pop(row)[1].cancel()
            if row in self.exchanges:
                self.other_side.judge.close(self.exchanges[row])
            self.waiting[row] = False

    def answer(self, turns: Mapping[int, Turn], going: int) -> dict[int, Answer]:
        """Return the answers to turns that are over, by slot: now, or at a later call.

        Args:
            turns: that ended in this step, by slot.
            going: the number of slots that have a turn to go on with.
        """
        if not self.late:
            return dict(zip(turns, self.other_side.answer(list(turns.values())), strict=True))
        assert isinstance(self.other_side, Dialogues)
        self.other_side.say(list(turns.values()))
        self._ask(turns)
        answers: dict[int, Answer] = {}
        slots = len(self.held)
        while self._asked and (going == 0 or len(self._asked) > slots / 2):
            taken = self._take(self.other_side, max(int(TAKEN_SHARE * slots), 1))
            going += sum(answer.tokens is not None for answer in taken.values())
            answers |= taken
        self.waiting = np.isin(np.arange(slots), list(self._asked))
        return answers

    def _ask(self, turns: Mapping[int, Turn]) -> None:
        futures = self.other_side.judge.ask([turn.exchange for turn in turns.values()]) if turns else []
        self._asked |= zip(turns, zip(turns.values(), futures, strict=True), strict=True)

    def _take(self, dialogues: Dialogues, count: int) -> dict[int, Answer]:
        """Wait for the oldest replies."""
        rows = list(islice(self._asked, count))
        replies = [self._asked[row][1].result() for row in rows]
        turns = [self._asked.pop(row)[0] for row in rows]
        return dict(zip(rows, dialogues.follow(turns, replies), strict=True))
