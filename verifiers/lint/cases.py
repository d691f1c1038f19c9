"""The completions that lint tries: right ones, wrong ones, and hedges between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Problem, Verifier
from .attacks import all_but, attacks, plain, wrong_answers

ATTACKED, ATTACKED_DEARLY = 16, 4  # problems; of a slow verifier
FRAMED = 1000  # characters: longer texts are not framed
RIGHT, WRONG = "right-answer", "wrong-answer"
HEDGES = "RIGHT or WRONG", "WRONG or RIGHT", "The answer is RIGHT or WRONG."


@dataclass(frozen=True)
class Case:
    """A completion of a problem; its family is `RIGHT`, one of `HEDGES`, else the name of an attack."""

    problem: Problem
    text: str
    family: str

    @property
    def honest(self) -> bool:
        """Whether it deserves the full reward."""
        return self.family == RIGHT

    @property
    def attack(self) -> bool:
        """Whether it deserves nothing."""
        return not self.honest and self.family not in HEDGES


def cases_of(verifier: Verifier, problems: Sequence[Problem], sampled: Sequence[Problem]) -> list[Case]:
    """Return the cases for a verifier; of the sampled problems only right answers."""
    cases = [case for problem in (*problems, *sampled) for case in _honest(verifier, problem)]
    attacked = problems[: ATTACKED_DEARLY if verifier.slow else ATTACKED]
    return cases + [case for problem in attacked for case in wrong_cases(verifier, problems, problem)]


def _honest(verifier: Verifier, problem: Problem) -> list[Case]:
    texts = dict.fromkeys([verifier.demonstration(problem), *verifier.paraphrases(problem)])
    return [Case(problem, text, RIGHT) for text in texts if text]


def wrong_cases(verifier: Verifier, problems: Sequence[Problem], problem: Problem) -> list[Case]:
    """Return counterexamples, wrong answers, attacks and hedges; each text once, and none that is right."""
    right = [problem.answer, *(case.text for case in _honest(verifier, problem))]
    # An answer to the same prompt might be right.
    others = all_but(right, [each.answer for each in problems if each.answer and each.text != problem.text])
    wrong = all_but(right, wrong_answers(problem, others[:4]))
    frame, answer = _frame(verifier, problem), plain(problem.answer)
    made = {WRONG: wrong, **attacks(problem, wrong, frame)}
    if answer and wrong:
        made |= {form: [form.replace("RIGHT", answer).replace("WRONG", wrong[0])] for form in HEDGES}
    tried = dict(verifier.counterexamples(problem))
    for family, texts in made.items():
        kept = all_but(right, texts)
        if frame and family != "place-repeated":
            kept += all_but(right, [frame.format(text) for text in kept if len(text) <= FRAMED])
        tried[family] = [*tried.get(family, ()), *kept]
    cases: dict[str, Case] = {}
    for family, completions in tried.items():
        for text in completions:
            cases.setdefault(text, Case(problem, text, family))
    return list(cases.values())


def _frame(verifier: Verifier, problem: Problem) -> str:
    """Return the form of a demonstration with {} for the answer, such as a pair of tags; empty without any."""
    before, found, after = verifier.demonstration(problem).rpartition(problem.answer or "\0")
    braces = str.maketrans({"{": "{{", "}": "}}"})
    return before.translate(braces) + "{}" + after.translate(braces) if found and (before + after).strip() else ""


def shorten(text: str, width: int = 60) -> str:
    """Return a text in one printable line; if it is cut, with its length."""
    shown = ascii(text) if not text.isprintable() or not text.strip() else repr(text)
    return shown if len(shown) <= width else f"{shown[: width - 2]}… ({len(text)} characters)"
