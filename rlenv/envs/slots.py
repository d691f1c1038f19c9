"""The dialogues of the slots of a batched environment, whose replies come at once or late, in logical time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

import numpy as np

from verifiers import Reply

from ..text.encoder import CUT, STOP, STRING
from .dialogues import Answer, Dialogues, Turn
from .judge import Exchange
from .task import Prompt, TextGenTask

TAKEN_SHARE = 1 / 8  # of all slots; so many replies are taken at a time, since reading them takes a separate pass


class SlotDialogues:
    """What the other side says in B slots.

    Late replies are asked for when a turn ends, and taken when more than half of the slots wait for one, or when no
    slot has a turn to go on with: the oldest eighth, in the order in which they were asked for, whether or not they
    are there. So episodes do not depend on the clock.

    Args:
        dialogues: answers turns.
        num_slots: B.
        late: whether replies come late.
        restarts: whether a slot whose episode ends begins another in the same step.

    Attributes:
        held: tokens of each context [B].
        waiting: whose turn is over and not yet answered, bool [B].
    """

    def __init__(self, dialogues: Dialogues, num_slots: int, late: bool = False, restarts: bool = False) -> None:
        self.dialogues, self.late, self.restarts = dialogues, late, restarts
        self.held = np.zeros(num_slots, dtype=np.int64)
        self.waiting = np.zeros(num_slots, dtype=bool)
        self._exchanges: list[Exchange | None] = [None] * num_slots
        self._asked: dict[int, tuple[Turn, Future[Reply] | None]] = {}  # by slot, in the order asked

    @classmethod
    def of(cls, task: TextGenTask, num_slots: int, late: bool, restarts: bool) -> SlotDialogues | None:
        """Return the dialogues of a task, whose replies come late if that is asked for and it has worker processes."""
        if task.dialogues is None:
            return None
        return cls(task.dialogues, num_slots, late and task.judge.pool is not None, restarts)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without futures: the copy asks again."""
        return {**self.__dict__, "_asked": {slot: (turn, None) for slot, (turn, _) in self._asked.items()}}

    def begin(self, rows: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Begin the dialogues of episodes that start in these slots."""
        self.leave(rows)
        for row, prompt in zip(rows, prompts, strict=True):
            self._exchanges[row] = self.dialogues.begin(prompt.problem)
            self.held[row] = len(prompt.tokens)

    def leave(self, rows: Iterable[int]) -> None:
        """Give up the dialogues of these slots that are not over, and the replies that they wait for."""
        for row in rows:
            _, pending = self._asked.pop(row, (None, None))
            if pending is not None:
                pending.cancel()
            if (exchange := self._exchanges[row]) is not None:
                self.dialogues.judge.close(exchange)
            self._exchanges[row] = None
            self.waiting[row] = False

    def turn(self, row: int, ids: Sequence[int], cut: bool, max_length: int) -> Turn:
        """Return a slot's turn that is over, given its tokens and whether it was cut at its limit."""
        exchange = self._exchanges[row]
        assert exchange is not None
        ending = CUT if cut else STOP if ids[-1] in self.dialogues.stop_token_ids else STRING
        return Turn(exchange, ids, ending, max_length - int(self.held[row]))

    def answer(self, turns: Mapping[int, Turn], going: int) -> dict[int, Answer]:
        """Return what follows from turns that are over, by slot: now, or at a later call.

        Args:
            turns: that ended in this step, by slot.
            going: the number of slots that have a turn to go on with.
        """
        if not self.late:
            return dict(zip(turns, self.dialogues.answer(list(turns.values())), strict=True))
        self.dialogues.say(list(turns.values()))
        futures = self.dialogues.ask(list(turns.values()))
        self._asked |= zip(turns, zip(turns.values(), futures, strict=True), strict=True)
        answers: dict[int, Answer] = {}
        slots = len(self.held)
        while self._asked and (going == 0 or len(self._asked) > slots / 2):
            taken = self._take(max(int(TAKEN_SHARE * slots), 1))
            going += sum(answer.tokens is not None or self.restarts for answer in taken.values())
            answers |= taken
        self.waiting = np.isin(np.arange(slots), list(self._asked))
        return answers

    def _take(self, count: int) -> dict[int, Answer]:
        """Wait for the oldest replies."""
        rows = list(islice(self._asked, count))
        again = [row for row in rows if self._asked[row][1] is None]
        for row, future in zip(again, self.dialogues.ask([self._asked[row][0] for row in again]), strict=True):
            self._asked[row] = self._asked[row][0], future
        asked = [self._asked[row] for row in rows]
        replies = [future.result() for _, future in asked if future is not None]
        for row in rows:
            del self._asked[row]
        return dict(zip(rows, self.dialogues.follow([turn for turn, _ in asked], replies), strict=True))
