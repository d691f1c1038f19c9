"""Why a run did not come to its end, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.files import is_locked

from ..agent_names import resume_command
from ..run import LOCK
from .collect import Run

SIGNALS = {
    "SIGINT": "It was stopped with Ctrl-C.",
    "SIGTERM": "It was stopped with SIGTERM, as kill, a batch system or a machine that shuts down sends it.",
    "SIGHUP": "Its terminal was closed (SIGHUP).",
}
UNKNOWN = (
    "It ended without a word: it was killed, by hand, for memory or with its machine, or it could not write to a full "
    "disk."
)
FIRST = {  # what to do before going on, by the error that ended the run
    "VerifierError": "First repair what the message names: rlenv verifiers lint NAME shows where a verifier fails.",
    "DivergedError": "A smaller learning rate may help.",
}


@dataclass(frozen=True)
class Stop:
    """How a run ended before its end, or that it is still going.

    Attributes:
        folder: of the run.
        title: "stopped", "interrupted", "ended" or "running".
        why: in one sentence or more.
        advice: what comes before going on, and from where that goes on.
        command: that goes on; empty for a run that is still going.
    """

    folder: str
    title: str
    why: str
    advice: str = ""
    command: str = ""


def stops_of(runs: Sequence[Run]) -> list[Stop]:
    """Return how those runs ended that have not come to their end."""
    return [stop for run in runs if (stop := _stop(run)) is not None]


def _stop(run: Run) -> Stop | None:
    result, folder = run.result, str(run.folder)
    if _is_current(run) and "stopped" in result:
        return Stop(folder, "stopped", f"{result['stopped']}", _advice(run), _command(run))
    if _is_current(run) and result.get("interrupted"):
        why = SIGNALS.get(str(result.get("signal")), "It was stopped by a signal.")
        return Stop(folder, "interrupted", why, _advice(run), _command(run))
    if _is_current(run) and result.get("eval") is not None:
        return None
    if is_locked(run.folder / LOCK):
        return Stop(folder, "running", "It is still running; this page has what it had logged when the page was made.")
    return Stop(folder, "ended", UNKNOWN, _advice(run), _command(run))


def _is_current(run: Run) -> bool:
    """Tell whether the result is of the end of the log, and not of an earlier end that the run has gone on from."""
    updates = run.columns.get("time/iterations", np.zeros(1))
    return bool(run.result) and not np.nanmax(updates, initial=0) > run.result.get("updates", np.inf)


def _advice(run: Run) -> str:
    first = FIRST.get(str(run.result.get("error")), "") if _is_current(run) else ""
    if run.saved_updates is None:
        return f"{first} It has no checkpoint: it starts again from its beginning.".strip()
    return f"{first} It goes on from its last checkpoint, after update {run.saved_updates:,}.".strip()


def _command(run: Run) -> str:
    command = resume_command(run.folder, run.config)
    rate = run.settings.get("learning_rate")
    if _is_current(run) and run.result.get("error") == "DivergedError" and isinstance(rate, (int, float)):
        command += f" --learning-rate {rate / 3:.2g}"
    return command
