"""What torchrun says in the environment of the processes that it starts; without it, that there is one."""

import os


def count() -> int:
    """Return the number of processes of the job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def number() -> int:
    """Return the number of this process among them, from 0."""
    return int(os.environ.get("RANK", "0"))


def count_here() -> int:
    """Return the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def number_here() -> int:
    """Return the number of this process among those on this machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def restarts() -> int:
    """Return how often torchrun has started the processes again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
