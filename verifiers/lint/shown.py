"""Verifiers as the commands show them: name, summary and origin, and verdicts on a few answers."""

from __future__ import annotations

import importlib.util
import inspect
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base import Problem, Verifier, demonstration_of, is_success, sample_each
from ..function import FunctionVerifier
from ..isolation import isolate
from ..plugins.registry import find_verifier, hidden_plugins, list_verifiers, verifier_origin
from .attacks import Case, wrong_cases
from .report import verdicts_of


def summaries() -> list[dict[str, str]]:
    """Return the name, the summary, the origin and the missing packages of every verifier that has a name."""
    rows = []
    for name in list_verifiers():
        try:
            verifier: Any = find_verifier(name)
            summary = ((verifier.__doc__ or "").strip().splitlines() or [""])[0]
        except ValueError as error:
            verifier, summary = None, str(error)
        needs = verifier.execution.needs.items() if hasattr(verifier, "execution") else ()
        missing = dict.fromkeys(extra for module, extra in needs if not importlib.util.find_spec(module))
        rows.append({"name": name, "summary": summary, "from": verifier_origin(name), "missing": ",".join(missing)})
    return rows + hidden_plugins()


def some_problems(verifier: Verifier, count: int, seed: int) -> list[Problem]:
    """Return problems that the verifier poses, of all its levels; else its examples."""
    try:
        return sample_each(verifier, [random.Random(seed)] * count)
    except NotImplementedError:
        return verifier.examples()[:count]


def verdicts_on(verifier: Verifier, problems: Sequence[Problem], completions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts on a right, a wrong and an empty answer to each problem, and on these completions."""
    judge = isolate(verifier) or verifier
    rows = []
    try:
        for problem in problems:
            right, wrong = demonstration_of(verifier, problem), wrong_cases(verifier, problems, problem)[:1]
            cases = [Case(problem, right, "demonstration")] if right else []
            cases += [replace(case, family="wrong") for case in wrong]
            cases += [Case(problem, "", "empty"), *(Case(problem, text, "yours") for text in completions)]
            for case in cases:
                (verdict,) = verdicts_of(verifier, judge, [case], alone=True)
                rows.append({
                    "prompt": problem.text, "kind": case.family, "completion": case.text, "reward": verdict.reward,
                    "success": is_success(verifier, verdict), "status": verdict.status, "reason": verdict.reason,
                    "parts": dict(verdict.parts),
                })  # fmt: skip
    finally:
        judge.close()
    return rows


def arguments_of(verifier: Verifier) -> str:
    """Return the arguments of a verifier with their defaults; empty for a reward function, which takes none."""
    if isinstance(verifier, FunctionVerifier):
        return ""
    parameters = inspect.signature(type(verifier)).parameters.values()
    named = [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in parameters]
    return ", ".join(named) or "none"
