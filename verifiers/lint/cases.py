"""The completions that lint tries: right ones, wrong ones, and both with a wrong answer added."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..base import Problem, Verifier
from .attacks import FAMILIES, attacks

ENOUGH = 200  # right completions, if there are as many
ATTACKED = 16  # problems
ATTACKED_DEARLY = 2  # problems of a slow verifier that wrong answers are added to
LONG = 1000  # characters: longer texts are not framed
REFERENCE, PARAPHRASE, MONOTONIC = "reference", "paraphrase", "added-wrong-answer"
_JOINED = ("{0} {1}", "{1} {0}", "{0}\n{1}", "{1}\n{0}", "{0} or {1}")


@dataclass(frozen=True)
class Case:
    """A completion of a problem, and the verdict to expect."""

    problem: Problem
    text: str
    family: str  # "reference" or "paraphrase" of a right one, "added-wrong-answer", else the family of the attack
    plain: bool = False  # whether it is just a wrong answer, without any trick
    base: int | None = None  # the number of the case to which a wrong answer was added

    @property
    def honest(self) -> bool:
        """Whether it deserves the full reward."""
        return self.family in (REFERENCE, PARAPHRASE)

    @property
    def attack(self) -> bool:
        """Whether it deserves nothing."""
        return not self.honest and self.base is None


def corpus(verifier: Verifier, problems: Sequence[Problem], own: bool) -> list[Case]:
    """Return the cases for a verifier; if the problems are its own, it is asked for more right answers."""
    cases = [case for problem in problems for case in _honest(verifier, problem)]
    if own:
        cases += _more_honest(verifier, ENOUGH - len(cases))
    attacked = problems[:ATTACKED]
    for index, problem in enumerate(attacked):
        found = _attacks(verifier, problems, problem)
        cases += _share(found, index, len(attacked)) if verifier.slow else found
        if index < ATTACKED_DEARLY or not verifier.slow:
            cases += _added(cases, problem)
    return cases


def _share(cases: Sequence[Case], index: int, count: int) -> list[Case]:
    """Return one problem's share of the attacks, so that all problems together get each, and its counterexamples."""
    kept = [case for family in FAMILIES for case in [each for each in cases if each.family == family][index::count]]
    return kept + [case for case in cases if case.family not in FAMILIES]


def _honest(verifier: Verifier, problem: Problem) -> list[Case]:
    reference = verifier.demonstration(problem)
    paraphrases = [Case(problem, text, PARAPHRASE) for text in dict.fromkeys(verifier.paraphrases(problem))]
    return [*([Case(problem, reference, REFERENCE)] if reference else []), *paraphrases]


def _more_honest(verifier: Verifier, wanted: int) -> list[Case]:
    rng = random.Random(1)
    cases: list[Case] = []
    for count in range(max(0, wanted)):
        try:
            problem = verifier.sample_at(rng, 1 + count % verifier.levels)
        except NotImplementedError:
            break
        cases += _honest(verifier, problem)
        if len(cases) >= wanted:
            break
    return cases


def wrong_answers(verifier: Verifier, problems: Sequence[Problem], problem: Problem) -> list[str]:
    """Return wrong completions that look like answers: the verifier's counterexamples, answers of other problems."""
    return [case.text for case in _attacks(verifier, problems, problem) if case.plain]


def _attacks(verifier: Verifier, problems: Sequence[Problem], problem: Problem) -> list[Case]:
    honest = [case.text for case in _honest(verifier, problem)]
    own = {family: list(texts) for family, texts in verifier.counterexamples(problem).items()}
    made = attacks(problem, _others(problems, problem), verifier.alphabet, honest)
    demonstration, answer = verifier.demonstration(problem), problem.answer
    before, found, after = demonstration.partition(answer) if answer else ("", "", "")
    if found and (before.strip() or after.strip()):  # a frame such as a pair of tags
        for texts in made.values():
            texts += [f"{before}{text}{after}" for text in texts if len(text) <= LONG]
    cases: dict[str, Case] = {}
    for family, texts in [*own.items(), *made.items()]:
        for text in texts:
            cases.setdefault(text, Case(problem, text, family, plain=family in own or family == "wrong-answer"))
    return list(cases.values())


def _others(problems: Sequence[Problem], problem: Problem) -> list[str]:
    """Return answers of other problems; an answer to the same prompt might be right."""
    here = next((index for index, each in enumerate(problems) if each is problem), 0)
    following = [*problems[here + 1 :], *problems[:here]]
    return list(dict.fromkeys(p.answer for p in following if p.answer and p.text != problem.text))[:4]


def _added(cases: Sequence[Case], problem: Problem) -> Iterator[Case]:
    """Yield a right and a wrong completion of a problem with wrong answers before and after them."""
    here = [(number, case) for number, case in enumerate(cases) if case.problem is problem]
    wrong = [(number, case.text) for number, case in here if case.plain]
    bases = [(number, case.text) for number, case in here if case.family == REFERENCE] + wrong[:1]
    for number, text in bases:
        for added in [each for _, each in wrong if each != text][:2]:
            for form in _JOINED:
                yield Case(problem, form.format(text, added), MONOTONIC, base=number)


def shorten(text: str, width: int = 60) -> str:
    """Return a text in one printable line; if it is cut, with its length."""
    shown = ascii(text) if not text.isprintable() or not text.strip() else repr(text)
    return shown if len(shown) <= width else f"{shown[: width - 2]}… ({len(text)} characters)"
