"""A verdict's status: a text in verdicts, infos and files, and its number in the tensors of rollouts."""

from typing import Literal, get_args

Status = Literal["ok", "timeout", "error", "not_applicable"]
STATUSES: tuple[Status, ...] = get_args(Status)
OK, TIMEOUT, ERROR, NOT_APPLICABLE = range(len(STATUSES))
FAILURES: tuple[str, ...] = STATUSES[1:]  # for which an episode has no reward
VERIFIER_FAILED = ("error", "timeout")


def number_of(status: str) -> int:
    """Return the number of a status.

    Raises:
        ValueError: for an unknown one.
    """
    if status not in STATUSES:
        raise ValueError(f"an episode ended with verdict_status {status!r}; allowed: {', '.join(STATUSES)}")
    return STATUSES.index(status)
