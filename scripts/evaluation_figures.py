"""From the completions of an evaluation to its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agents.estimators.pass_at_k import attempts, bootstrap_mean, maj_at_k, pass_at_k
from agents.training.metrics import outcome_metrics

Row = Mapping[str, Any]
MORE = ("success_interval", "truncated_share", "problems", "sampled", "completions")  # beside those of `Agent.evaluate`


def summarize(rows: Sequence[Row], seed: int, settings: Mapping[str, Any], failure: str = "") -> dict[str, Any]:
    """Return the figures of an evaluation.

    Args:
        rows: the completions.
        seed: of the bootstrap.
        settings: of the evaluation: `split`, `samples`, `temperature`, `top_p`, `deterministic`.
        failure: why the verifier failed the last time.

    Returns:
        What `Agent.evaluate` returns, of the first pass; `success_interval`, `truncated_share`, `problems`; and under
        `sampled` the figures of N samples per problem, if any.

    Raises:
        VerifierError: if the verifier reached no verdict at all.
    """
    first = [row for row in rows if row["mode"] == ("greedy" if settings["deterministic"] else "sampled")]
    figures = _outcomes(first, failure) | {"deterministic": settings["deterministic"], "split": settings["split"]}
    figures |= _shares(first, seed) | {"problems": len({row["problem"] for row in first})}
    if settings["samples"]:
        sampled = [row for row in rows if row["mode"] == "sampled"]
        how = {name: settings[name] for name in ("samples", "temperature", "top_p")}
        curves = _attempts(sampled, settings["samples"], seed)
        figures["sampled"] = how | _outcomes(sampled, failure) | _shares(sampled, seed) | curves
        if by_level := _by_level(sampled, settings["samples"]):
            figures["sampled"]["by_level"] = by_level
    return figures


def _outcomes(rows: Sequence[Row], failure: str) -> dict[str, Any]:
    """Return the figures that `Agent.evaluate` computes from a rollout, from its rows."""

    def column(name: str) -> torch.Tensor:
        return torch.tensor(
            [math.nan if row.get(name) is None else float(row[name]) for row in rows], dtype=torch.float64
        )

    ok = torch.tensor([row["status"] == "ok" for row in rows])
    turns = column("turns") if any("turns" in row for row in rows) else None
    return outcome_metrics(ok, column("success"), column("reward"), column("tokens"), column("level"), failure, turns)


def _shares(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    """Return the share of completions that were cut off, and the interval of the success rate over problems."""
    judged = [row for row in rows if row["status"] == "ok"]
    rates = [float(np.mean([row["success"] for row in group])) for group in by_problem(judged)]
    return {
        "success_interval": list(bootstrap_mean(rates, np.random.default_rng(seed))),
        "truncated_share": float(np.mean([row["truncated"] for row in judged])),
    }


def by_problem(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each problem."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    return list(groups.values())


def _attempts(rows: Sequence[Row], samples: int, seed: int) -> dict[str, Any]:
    """Return pass@k and maj@k with their intervals; a problem with fewer than k verdicts does not count at k."""
    groups = by_problem([row for row in rows if row["status"] == "ok"])
    curves: dict[str, dict[str, Any]] = {"pass_at_k": {}, "maj_at_k": {}}
    for k in attempts(samples):
        for name, values in _values_at(groups, k).items():
            if values:
                low, high = bootstrap_mean(values, np.random.default_rng(seed))
                mean = float(np.mean(values))
                curves[name][str(k)] = {"value": mean, "low": low, "high": high, "problems": len(values)}
    return curves


def _by_level(rows: Sequence[Row], samples: int) -> dict[str, Any]:
    """Return the same by level, without intervals; empty if the problems have no levels."""
    levels = sorted({row["level"] for row in rows if row["level"] is not None})
    made: dict[str, Any] = {}
    for level in levels:
        groups = by_problem([row for row in rows if row["level"] == level and row["status"] == "ok"])
        if groups:
            made[str(level)] = {"problems": len(groups), "pass_at_k": {}, "maj_at_k": {}}
        for k in attempts(samples):
            for name, values in _values_at(groups, k).items():
                if values:
                    made[str(level)][name][str(k)] = float(np.mean(values))
    return made


def _values_at(groups: Sequence[Sequence[Row]], k: int) -> dict[str, list[float]]:
    """Return pass@k and maj@k of each problem with at least k verdicts."""
    enough = [group for group in groups if len(group) >= k]
    return {"pass_at_k": [_pass(group, k) for group in enough], "maj_at_k": [_majority(group, k) for group in enough]}


def _pass(group: Sequence[Row], k: int) -> float:
    return pass_at_k(len(group), sum(row["success"] for row in group), k)


def _majority(group: Sequence[Row], k: int) -> float:
    given = Counter(row["extracted"] for row in group)
    right = Counter(row["extracted"] for row in group if row["success"])
    silent = given.pop(None, 0)
    votes = tuple(sorted((count, right[answer]) for answer, count in given.items()))
    return maj_at_k(votes, silent, (k,))[0]


FIGURES: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "problems": lambda figures: str(figures["problems"]) if "problems" in figures else None,
    "success": lambda figures: _with_interval(figures.get("success_rate"), figures.get("success_interval")),
    "mean reward": lambda figures: f"{figures['mean_reward']:.3f}",
    "mean length": lambda figures: f"{figures['mean_ep_length']:.1f}",
    "mean turns": lambda figures: None if "mean_turns" not in figures else f"{figures['mean_turns']:.2f}",
    "truncated": lambda figures: None if "truncated_share" not in figures else f"{figures['truncated_share']:.3f}",
    "sampled success": lambda figures: (
        None
        if "sampled" not in figures
        else _with_interval(figures["sampled"]["success_rate"], figures["sampled"]["success_interval"])
    ),
}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table in Markdown with a column per run and a row per figure; intervals in brackets."""
    figures = dict(FIGURES)
    for name, title in (("pass_at_k", "pass"), ("maj_at_k", "maj")):
        ks = {k for found in results.values() for k in found.get("sampled", {}).get(name, {})}
        figures |= {f"{title}@{k}": _cell(name, k) for k in sorted(ks, key=int)}
    numbers = {number for found in results.values() for number in found.get("by_turns", {})}
    figures |= {f"success in {number} turns": _of_turns(number) for number in sorted(numbers, key=int)}
    lines = [["", *results]]
    for title, cell in figures.items():
        cells = [cell(found) for found in results.values()]
        if any(cells):
            lines.append([title, *(each or "-" for each in cells)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]])


def _of_turns(number: str) -> Callable[[Mapping[str, Any]], str | None]:
    def cell(figures: Mapping[str, Any]) -> str | None:
        found = figures.get("by_turns", {}).get(number)
        rate = None if found is None or found["success_rate"] is None else f"{found['success_rate']:.3f}"
        return rate and f"{rate} of {found['episodes']}"

    return cell


def _cell(name: str, k: str) -> Callable[[Mapping[str, Any]], str | None]:
    def cell(figures: Mapping[str, Any]) -> str | None:
        found = figures.get("sampled", {}).get(name, {}).get(k)
        return None if found is None else _with_interval(found["value"], (found["low"], found["high"]))

    return cell


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str | None:
    if value is None:
        return None
    return f"{value:.3f}" + ("" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]")
