"""Advice and samples for findings: the options that make a run's problems easier or harder, and paid failures."""

from __future__ import annotations

from rlenv.verifiers.lint.attacks import shorten

from ..run.folder import completion_of
from .history import History
from .tokens import Row

MOST_CUT = 0.5  # of the answers; no update of a healthy run has more than 0.07
SHOWN, SHOWN_LENGTH = 3, 200  # samples of a finding, characters of each


def easier(run: History) -> str:
    """Return how problems become easier, in the words of the options that the run has."""
    if run.has_file:
        room = ", more room (--max-new-tokens)" if run["rollout/truncated_frac"].end >= MOST_CUT else ""
        return (
            "easier rows (with a level column, the easiest first: --curriculum 0.8), a prompt that shows the form of "
            f"the answer (--prompt-template, --ask){room}"
        )
    return (
        "easier problems (--verifier-arg: `rlenv verifiers show NAME` lists the arguments; of several levels, the "
        "easiest first: --curriculum 0.8)"
    )


def harder(run: History) -> str:
    """Return how problems become harder, likewise."""
    return f"pose harder {'rows (--problems)' if run.has_file else 'problems (--verifier-arg)'}"


def paid_without_success(run: History) -> tuple[str, ...]:
    """Return a few samples that earned more than the least reward without success, the last update first."""
    least = min((row["reward"] for row in run.samples), default=0.0)
    paid = [row for row in run.samples if row["success"] is False and row["reward"] > least]
    paid.sort(key=lambda row: (row["updates"], row["reward"]), reverse=True)
    by_text: dict[str, Row] = {}  # different ones say more
    for row in paid:
        by_text.setdefault(completion_of(row), row)
    return tuple(
        f"{shorten(row['prompt'], SHOWN_LENGTH)} <- {shorten(text, SHOWN_LENGTH)}: reward {row['reward']:g}, "
        f"update {row['updates']}"
        for text, row in list(by_text.items())[:SHOWN]
    )
