"""The slots of a batched environment, and answers that come later: replies and verdicts, in logical time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, islice
from typing import Any

import numpy as np

from rlenv.verifiers import Problem, Reply, Verdict
from rlenv.verifiers.base import has_dialogues

from ._loop import results
from .judge import Exchange, Judge
from .problems import Prompt
from .turns import Answer, Responder, Turn, verdict_info

TAKEN_SHARE = 1 / 8  # of all slots; so many replies are taken at a time, since reading them takes a separate pass
Record = Callable[[Problem, dict[str, Any]], None]


class LateReplies:
    """Turns that wait for replies from worker processes, by slot.

    Replies are taken in the order asked, when `due` says so, whether or not they are there: so episodes do not depend
    on the clock. A pickled copy asks again.

    Args:
        judge: asked.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._asked: dict[int, tuple[Turn, Future[Reply]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"judge": self.judge, "turns": {slot: turn for slot, (turn, _) in self._asked.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["judge"])  # type: ignore[misc]
        self.add(state["turns"])

    def __iter__(self) -> Iterator[int]:
        return iter(self._asked)

    def add(self, turns: Mapping[int, Turn]) -> None:
        """Have the worker processes make the replies to these turns."""
        futures = self.judge.ask([turn.exchange for turn in turns.values()])
        self._asked |= zip(turns, zip(turns.values(), futures, strict=True), strict=True)

    def drop(self, slot: int) -> None:
        """Give up the reply that a slot waits for, if any."""
        if slot in self._asked:
            self._asked.pop(slot)[1].cancel()

    def due(self, slots: int, going: int) -> int:
        """Return how many replies are waited for now.

        The oldest eighth of the slots' replies, if more than half of the slots wait or none goes on.

        Args:
            slots: how many there are.
            going: how many go on without a reply.
        """
        is_due = bool(self._asked) and (going == 0 or len(self._asked) > slots / 2)
        return max(int(TAKEN_SHARE * slots), 1) if is_due else 0

    def take(self, most: int) -> dict[int, tuple[Turn, Reply]]:
        """Wait for the oldest replies; return them with their turns."""
        keys = list(islice(self._asked, most))
        answers = results([self._asked[key][1] for key in keys], self.judge.goes_on)
        return {key: (self._asked.pop(key)[0], answer) for key, answer in zip(keys, answers, strict=True)}


class Slots:
    """The episodes in B slots.

    Args:
        responder: answers turns.
        record: tells a curriculum or choice of prompts of verdicts that come late; None without one that listens.
        num_slots: B.
        late_verdicts: whether verdicts come late; see `TextGenVectorEnv`.
        late_replies: whether the replies of dialogues do.

    Attributes:
        verdicts: that come late; None if they do not.
        replies: that come late; None if they do not.
        prompts: of the episodes, by slot.
        exchanges: with the other side, by slot.
        held: tokens of each context [B].
        waiting: slots whose turn is over and not yet answered, bool [B].
    """

    def __init__(
        self,
        responder: Responder,
        record: Record | None,
        num_slots: int,
        late_verdicts: bool,
        late_replies: bool,
    ) -> None:
        self.responder, judge = responder, responder.judge
        self.verdicts: LateVerdicts | None = None
        self.replies: LateReplies | None = None
        # Dialogues say with a verdict that an episode is over: it cannot come later.
        if has_dialogues(judge.verifier):
            self.replies = LateReplies(judge) if late_replies and judge.pool is not None else None
        elif late_verdicts and (judge.pool is not None or judge.verifier.execution.prefers_batches):
            self.verdicts = LateVerdicts(judge, record)
        self.prompts: dict[int, Prompt] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.held = np.zeros(num_slots, dtype=np.int64)
        self.waiting = np.zeros(num_slots, dtype=bool)

    def begin(self, rows: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Begin episodes in these slots."""
        self.leave(rows)
        for row, prompt in zip(rows, prompts, strict=True):
            self.prompts[row], self.held[row] = prompt, len(prompt.tokens)
            self.exchanges[row] = self.responder.begin(prompt.problem)

    def leave(self, rows: Iterable[int]) -> None:
        """Give up the dialogues of these slots that are not over, and the replies that they wait for."""
        for row in rows:
            if self.replies is not None:
                self.replies.drop(row)
            if row in self.exchanges:
                self.responder.judge.close(self.exchanges[row])
            self.waiting[row] = False

    def answer(self, turns: Mapping[int, Turn], going: int) -> dict[int, Answer]:
        """Return the answers to turns that are over, by slot: now, or at a later call.

        Args:
            turns: that ended in this step, by slot.
            going: the number of slots that have a turn to go on with.
        """
        over = list(turns.values())
        if self.replies is None and self.verdicts is None:
            return dict(zip(turns, self.responder.answer(over), strict=True))
        self.responder.say(over)
        if self.verdicts is not None:
            said = [turn.exchange for turn in over]
            asked = self.verdicts.submit([each.problem for each in said], [each.turns[-1] for each in said])
            return dict(zip(turns, self.responder.judged_later(over, asked), strict=True))
        assert self.replies is not None
        self.replies.add(turns)
        answers: dict[int, Answer] = {}
        while most := self.replies.due(len(self.held), going):
            taken = self.replies.take(most)
            followed = self.responder.follow(*zip(*taken.values(), strict=True))
            going += sum(answer.tokens is not None for answer in followed)
            answers |= zip(taken, followed, strict=True)
        self.waiting = np.isin(np.arange(len(self.held)), list(self.replies))
        return answers


def columns(infos: Mapping[int, Mapping[str, Any]], num_envs: int) -> dict[str, Any]:
    """Return the infos of slots as `VectorEnv._add_info` merges them: an array [B] of each key, and `_key`, its mask.

    A column has the type of its first value, if that is a number or a flag. It is written at once: merging the infos of
    one slot after the other took a tenth of a rollout of a small model.

    Args:
        infos: by slot.
        num_envs: B.
    """
    made: dict[str, Any] = {}
    for key in dict.fromkeys(chain.from_iterable(infos.values())):
        slots = [slot for slot, info in infos.items() if key in info]
        values = [infos[slot][key] for slot in slots]
        if isinstance(values[0], dict):
            made[key] = columns(dict(zip(slots, values, strict=True)), num_envs)
        elif type(values[0]) in (int, float, bool) or isinstance(values[0], np.number):
            made[key] = np.zeros(num_envs, type(values[0]))
            made[key][slots] = values
        else:
            made[key] = np.full(num_envs, None)
            made[key][slots] = np.fromiter(values, object, len(values))
        made[f"_{key}"] = np.zeros(num_envs, bool)
        made[f"_{key}"][slots] = True
    return made


class LateVerdict(Future[dict[str, Any]]):
    """The reward and the infos of one episode, once its verdict is known."""

    def __init__(self, problem: Problem, completion: str, judge_now: Callable[[], None]) -> None:
        super().__init__()
        self.problem, self.completion = problem, completion
        self._judge_now = judge_now
        self.set_running_or_notify_cancel()  # a verdict cannot be cancelled

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the verdict; return `reward` and the keys of `verdict_info`.

        Raises:
            TimeoutError: if the workers have no verdict after `timeout` seconds.
        """
        self._judge_now()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the verdict; return the exception that `result` would raise, if any."""
        self._judge_now()
        return super().exception(timeout)


class LateVerdicts:
    """Problems and completions that are judged while other episodes run; the curriculum hears of them afterwards.

    With worker processes, judging starts at once. Any other verifier judges everything that is waiting in one batch
    when the first result is asked for. A pickled copy has them judged again.

    Args:
        judge: judges.
        record: gets each problem and the infos of its verdict; None if nobody listens.
    """

    def __init__(self, judge: Judge, record: Record | None = None) -> None:
        self.judge, self.record = judge, record
        self._kept: list[LateVerdict] = []  # that are to be recorded
        self._unjudged: list[LateVerdict] = []
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        kept = [(late.problem, late.completion) for late in self._kept]
        return {"judge": self.judge, "record": self.record, "kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["judge"], state["record"])  # type: ignore[misc]
        self.submit([problem for problem, _ in state["kept"]], [text for _, text in state["kept"]])

    def submit(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[LateVerdict]:
        """Have completions judged, now or in a batch; return the futures, and keep them for a stream that counts."""
        made = [LateVerdict(*pair, self._judge_waiting) for pair in zip(problems, completions, strict=True)]
        if self.judge.pool is None:
            with self._lock:
                self._unjudged += made
        else:
            for late, future in zip(made, self.judge.pool.submit(problems, completions), strict=True):
                future.add_done_callback(lambda done, late=late: self._resolve(late, done.result))  # type: ignore[misc]
        if self.record is not None:
            self._kept += made
        return made

    def flush(self) -> None:
        """Wait for the verdicts on all that was submitted, and record them in this order.

        Raises:
            Exception: of the verifier; the verdicts that are not recorded by then are forgotten.
        """
        for late in self._kept:
            late.exception()  # Ctrl-C while this waits loses none of them
        kept, self._kept = self._kept, []
        for late in kept:
            self.record(late.problem, late.result())  # type: ignore[misc]  # they are kept only if somebody listens

    def forget(self) -> None:
        """Record nothing of what was submitted so far."""
        self._kept.clear()

    def _judge_waiting(self) -> None:
        verdicts = Future[list[Verdict]]()
        with self._lock:  # whoever else asks waits for the same batch
            if waiting := self._unjudged:
                try:
                    completions = [late.completion for late in waiting]
                    verdicts.set_result(self.judge([late.problem for late in waiting], completions))
                except Exception as error:  # whatever a plugin raises goes to those who ask
                    verdicts.set_exception(error)
            self._unjudged = []  # but after Ctrl-C the next one who asks has them judged
        for row, late in enumerate(waiting):
            self._resolve(late, lambda row=row: verdicts.result()[row])  # type: ignore[misc]

    def _resolve(self, late: LateVerdict, judged: Callable[[], Verdict]) -> None:
        try:
            verdict = judged()
            info = verdict_info(self.judge.verifier, late.problem, verdict)
            late.set_result({"reward": float(verdict.reward), **info})
        except Exception as error:  # a part that is not a number, or a miscount, must not leave anybody waiting
            late.set_exception(error)
