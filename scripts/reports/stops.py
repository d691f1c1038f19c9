"""Why a run did not come to its end, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.files import is_locked

from ..agent_names import resume_command
from ..run import LOCK
from .collect import Run

SIGNALS = {
    "SIGINT": "It was stopped with Ctrl-C.",
    "SIGTERM": "It was stopped with SIGTERM, as kill, a batch system or a machine that shuts down sends it.",
    "SIGHUP": "Its terminal was closed (SIGHUP).",
}
RUNNING = "It is still running; this page has what it had logged when the page was made."
UNKNOWN = (
    "It ended without a word: it was killed, by hand, for memory or with its machine, or it could not write to a full "
    "disk."
)
FIRST = {  # what to do before going on, by the error that ended the run
    "VerifierError": "First repair what the message names: rlenv verifiers lint NAME shows where a verifier fails. ",
    "DivergedError": "A smaller learning rate may help. ",
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
    """Return how a run ended; an earlier end that it has gone on from does not count."""
    result = {} if run.updates > run.result.get("updates", run.updates) else run.result
    if result.get("eval") is not None and "stopped" not in result and not result.get("interrupted"):
        return None
    if "stopped" in result:
        title, why = "stopped", str(result["stopped"])
    elif result.get("interrupted"):
        title, why = "interrupted", SIGNALS.get(str(result.get("signal")), "It was stopped by a signal.")
    elif is_locked(run.folder / LOCK):
        return Stop(str(run.folder), "running", RUNNING)
    else:
        title, why = "ended", UNKNOWN
    error, rate = str(result.get("error")), run.settings.get("learning_rate")
    begin = "It has no checkpoint: it starts again from its beginning."
    if run.saved_updates is not None:
        begin = f"It goes on from its last checkpoint, after update {run.saved_updates:,}."
    command = resume_command(run.folder, run.config)
    if error == "DivergedError" and isinstance(rate, (int, float)):
        command += f" --learning-rate {rate / 3:.2g}"
    return Stop(str(run.folder), title, why, FIRST.get(error, "") + begin, command)
