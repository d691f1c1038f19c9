"""From the completions of an evaluation to its figures over problems, with intervals and several attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlenv.agents.estimators.pass_at_k import attempts, bootstrap_mean, maj_at_k, pass_at_k

Row = Mapping[str, Any]


def with_intervals(figures: dict[str, Any], rows: Sequence[Row], equal: Sequence[int], seed: int) -> dict[str, Any]:
    """Return the figures of an evaluation with `success_interval`, over problems, and `truncated_share`.

    `unjudged_problems` counts problems without a verdict, as if a verifier cannot read their checks; the figures are of
    the others.

    If verdicts count instructions, as those of `ifeval` do, `instruction_success` is the share that was followed.

    Args:
        figures: what `Agent.evaluate` returns.
        rows: the completions; as they are written.
        equal: for each problem the number of the first one that equals it.
        seed: of the bootstrap.
    """
    judged = [row for row in rows if row["status"] == "ok"]
    counted = [parts for row in judged if "instructions" in (parts := row.get("parts", {}))]
    if instructions := sum(parts["instructions"] for parts in counted):
        figures = figures | {"instruction_success": sum(parts["followed"] for parts in counted) / instructions}
    if without := len(by_problem(rows)) - len(by_problem(judged)):
        figures = figures | {"unjudged_problems": without}
    return figures | {
        "success_interval": list(_bounds([(row["problem"], row["success"]) for row in judged], equal, seed)),
        "truncated_share": float(np.mean([row["truncated"] for row in judged])),
    }


def of_attempts(rows: Sequence[Row], samples: int, equal: Sequence[int], seed: int) -> dict[str, Any]:
    """Return `pass_at_k` and `maj_at_k` by k, with intervals over problems; `equal` and `seed` as in `with_intervals`.

    A problem with fewer than k verdicts does not count at k.
    """
    figures: dict[str, Any] = {"pass_at_k": {}, "maj_at_k": {}}
    problems = by_problem([row for row in rows if row["status"] == "ok"])
    for k in attempts(samples):
        if groups := {problem: group for problem, group in problems.items() if len(group) >= k}:
            passed = {
                problem: pass_at_k(len(group), sum(row["success"] for row in group), k)
                for problem, group in groups.items()
            }
            majority = {problem: _majority(group, k) for problem, group in groups.items()}
            figures["pass_at_k"][str(k)] = _with_bounds(passed, equal, seed)
            figures["maj_at_k"][str(k)] = _with_bounds(majority, equal, seed)
    return figures


def by_problem(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the rows of each problem, by its number."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    return groups


def _majority(group: Sequence[Row], k: int) -> float:
    answers = Counter(row["extracted"] for row in group)
    right = Counter(row["extracted"] for row in group if row["success"])
    silent = answers.pop(None, 0)
    votes = tuple(sorted((count, right[answer]) for answer, count in answers.items()))
    return maj_at_k(votes, silent, (k,))[0]


def _with_bounds(values: Mapping[int, float], equal: Sequence[int], seed: int) -> dict[str, Any]:
    low, high = _bounds(values.items(), equal, seed)
    problems = len({equal[problem] for problem in values})
    return {"value": float(np.mean(list(values.values()))), "low": low, "high": high, "problems": problems}


def _bounds(values: Iterable[tuple[int, float]], equal: Sequence[int], seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values, over problems, of which some may have more values than others.

    Equal problems are resampled together: the second greedy answer to a problem says nothing new.
    """
    together: dict[int, list[float]] = {}
    for problem, value in values:
        together.setdefault(equal[problem], []).append(value)
    sums, counts = np.array([(sum(each), len(each)) for each in together.values()]).T

    def mean(drawn: np.ndarray) -> np.ndarray:
        rows = drawn.astype(int)
        return sums[rows].sum(-1) / counts[rows].sum(-1)

    return bootstrap_mean(range(len(sums)), np.random.default_rng(seed), mean=mean)
