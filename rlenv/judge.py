"""How turns and finished episodes are judged."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlenv.verifiers import Dialogue, Problem, Reply, Verdict, Verifier, isolate, make_verifier
from rlenv.verifiers.base import MiscountError, checked, describe, has_dialogues
from rlenv.verifiers.conversation import Message
from rlenv.verifiers.dialogues import begin, reply_to
from rlenv.verifiers.dialogues.tools import WithTools
from rlenv.verifiers.plugins.registry import trusting

from ._loop import SOON, always, in_threads, results
from .forms import Judging

if TYPE_CHECKING:
    from rlenv.verifiers import Isolated

MOST_THREADS = 64  # that wait for replies


@dataclass
class Exchange:
    """One episode with the other side, a dialogue or the judge of its only turn, as far as it has come.

    Attributes:
        problem: that it is about.
        chat: whether it is rendered with the chat template.
        messages: all that was said, prompt included.
        turns: the texts of the model's turns.
        paid: the sum of the rewards of its turns.
        counts: the sums of what replies counted.
        partner: the other side, once it has been asked; None if worker processes replay it.
    """

    problem: Problem
    chat: bool
    messages: list[Message]
    turns: list[str] = field(default_factory=list)
    paid: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    partner: Dialogue | None = None


class Judge:
    """A verifier and how it is run.

    Args:
        verifier: judges.
        pool: worker processes that run it; None to run it here.
        flag_errors: whether an exception of a verifier without worker processes becomes a verdict with the status
            "error", as with them. A batch that raises is then judged one by one, so that one completion does not cost
            the others their verdicts. Another number of verdicts or rewards than completions is raised always.

    Attributes:
        goes_on: asked while replies are waited for; returning False ends the wait with a `CancelledError`. That of a
            copy returns True.
    """

    def __init__(self, verifier: Verifier, pool: Isolated | None = None, flag_errors: bool = False) -> None:
        self.verifier, self.pool, self.flag_errors = verifier, pool, flag_errors or pool is not None
        self.goes_on: Callable[[], bool] = always
        self._owned: list[Isolated | Verifier] = []

    @classmethod
    def of(cls, verifier: Any, judging: Judging) -> Judge:
        """Return a judge with its verifier and worker processes, which `stop` ends.

        Raises:
            ValueError: for a verifier, a tool or a setting of workers that cannot be used.
        """
        with trusting(judging.trust):
            own = make_verifier(verifier, **judging.verifier_kwargs)
            made = WithTools(own, judging.tools) if judging.tools else own
        pool = isolate(made, judging.verifier_workers, judging.verifier_timeout, judging.verifier_memory_mb)
        judge = cls(made, pool, judging.flag_errors)
        judge._owned = [each for each in (judge.pool, own) if each is not None and each is not verifier]
        return judge

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"goes_on": always}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; a copy owns its copy of the verifier."""
        self.__dict__.update(state)
        self._owned = [each for each in (self.pool, self.verifier) if each is not None]

    def stop(self) -> None:
        """Stop the worker processes and close the verifier; one that the user passed in stays open."""
        for each in self._owned:
            self._release(each)

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Return the verdicts in the order of the completions.

        Raises:
            ValueError: if the verifier returns another number of verdicts, or something other than verdicts.
        """
        if self.pool is not None:
            return self.pool.verify_batch(problems, completions)
        try:
            return checked(self.verifier, self.verifier.verify_batch(problems, completions), len(completions))
        except (Exception, SystemExit) as error:  # whatever a plugin raises
            verdict = self._verdict_on(error)
            if len(completions) == 1:
                return [verdict]
        return [self([problem], [text])[0] for problem, text in zip(problems, completions, strict=True)]

    def replies(self, exchanges: Sequence[Exchange], out_of_budget: bool = False) -> list[Reply]:
        """Return the replies to the last turns, of completions the verdicts; or verdicts on episodes out of budget.

        Raises:
            ValueError: if a dialogue returns something else.
            CancelledError: if `goes_on` returns False before they are there.
        """
        if not (out_of_budget or has_dialogues(self.verifier)):
            problems, completions = [each.problem for each in exchanges], [each.turns[-1] for each in exchanges]
            return [Reply(verdict=verdict) for verdict in self(problems, completions)]
        if self.pool is not None:
            return results(self.ask(exchanges, out_of_budget), self.goes_on)
        if self.verifier.execution.waits and len(exchanges) > 1:
            with in_threads(lambda each: self._reply(each, out_of_budget), exchanges, MOST_THREADS) as futures:
                return results(futures, self.goes_on)
        made, asked = [], monotonic()
        for exchange in exchanges:
            made.append(self._reply(exchange, out_of_budget))
            if monotonic() - asked > SOON:
                if not self.goes_on():
                    raise CancelledError("the wait for replies was ended")
                asked = monotonic()
        return made

    def ask(self, exchanges: Sequence[Exchange], out_of_budget: bool = False) -> list[Future[Reply]]:
        """Have the worker processes make `replies`, and return at once."""
        assert self.pool is not None
        end = [None] * out_of_budget
        return self.pool.ask([(each.problem, [*each.turns, *end]) for each in exchanges])

    def close(self, exchange: Exchange) -> None:
        """Release the other side of a dialogue that is over or given up."""
        partner, exchange.partner = exchange.partner, None
        if partner is not None:
            self._release(partner)

    def _release(self, held: Any) -> None:
        """Close a dialogue, a verifier or worker processes; where errors are flagged, warn of one."""
        try:
            held.close()
        except Exception as error:  # whatever a plugin raises
            warnings.warn(f"{type(held).__name__}.close failed: {self._verdict_on(error).reason}", stacklevel=3)

    def in_place(self, exchange: Exchange, fault: str) -> Reply | None:
        """Return the verifier's reply in place of one that cannot be used; None if it has none."""
        try:
            return self.verifier.turns.in_place(exchange.turns[-1], fault)
        except (Exception, SystemExit) as error:  # whatever a plugin raises
            return Reply(verdict=self._verdict_on(error))

    def _reply(self, exchange: Exchange, out_of_budget: bool) -> Reply:
        try:
            if exchange.partner is None:
                exchange.partner = begin(self.verifier, exchange.problem)
            return reply_to(exchange.partner, None if out_of_budget else exchange.turns[-1])
        except (Exception, SystemExit) as error:  # whatever a plugin raises
            return Reply(verdict=self._verdict_on(error))

    def _verdict_on(self, error: Exception | SystemExit) -> Verdict:
        """Return the verdict that stands for an exception; raise it unless errors are flagged."""
        if not self.flag_errors or isinstance(error, MiscountError):
            raise error
        return Verdict(0.0, status="error", reason=describe(error))
