"""What came of trying a verifier: the outcomes, what they mean, and what was found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..base import Problem, Verifier
from .corpus import Case
from .trials import Outcome, Trials


@dataclass(frozen=True)
class Finding:
    """A rule that a verifier broke.

    Args:
        rule: the rule's name.
        explanation: what went wrong.
        family: the kind of completion it happened with: "reference", "paraphrase", "added-wrong-answer", or a family
            of attacks; "several kinds" if one fault happened with more than one; empty where it was no completion.
        problem: the prompt of the first problem it happened with, shortened.
        completion: the first completion it happened with, shortened.
        reward: the reward that it got, None where there was none.
        times: how many completions of this kind it happened with.
    """

    rule: str
    explanation: str
    family: str = ""
    problem: str = ""
    completion: str = ""
    reward: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Examined:
    """A verifier with what it made of every case.

    Args:
        verifier: the verifier.
        problems: what it was asked.
        own: whether these are its own problems.
        cases: the completions.
        trials: their outcomes.
    """

    verifier: Verifier
    problems: Sequence[Problem]
    own: bool
    cases: Sequence[Case] = ()
    trials: Trials = field(default_factory=Trials)

    @cached_property
    def graded(self) -> bool:
        """Whether right answers or plain wrong ones earn something between nothing and a success."""
        return any((case.honest or case.plain) and self.earned(number) for number, case in enumerate(self.cases))

    @cached_property
    def paid(self) -> list[int]:
        """The attacks that were paid for: see the rule `attack`."""
        return [number for number, case in enumerate(self.cases) if case.attack and self._is_paid(number, case)]

    @cached_property
    def raised(self) -> list[int]:
        """The completions whose reward a wrong answer raised."""
        return [
            number for number, case in enumerate(self.cases)
            if case.base is not None and self.reward(number) > self.reward(case.base)
        ]  # fmt: skip

    def outcome(self, number: int) -> Outcome:
        """Return the first outcome of a case."""
        return self.trials.first[number]

    @property
    def nothing(self) -> float:
        """What counts as no reward: 0, or the least reward there is where that is more."""
        return max(0.0, self.verifier.reward_range[0])

    def reward(self, number: int) -> float:
        """Return the reward of a case; nothing where there is none."""
        outcome = self.outcome(number)
        return outcome.reward if outcome.status == "ok" and outcome.reward is not None else self.nothing

    def earned(self, number: int) -> bool:
        """Tell whether a case earned something, and yet is no success."""
        return not self.outcome(number).success and self.reward(number) > self.nothing

    def declares(self, number: int) -> bool:
        """Tell whether the verifier says that it does not catch the family of a case."""
        return self.cases[number].family in self.verifier.does_not_catch

    def _is_paid(self, number: int, case: Case) -> bool:
        strict = not self.graded or case.family in ("empty", "whitespace")
        return self.outcome(number).success or (strict and self.earned(number))
