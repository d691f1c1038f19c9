"""What a second core gives to an update: the same jobs as `profile`, with two threads and with one."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from .measure import THREADS, Row, alternate, clock
from .profile import JOBS, learn


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each job; the ratio is the time with one thread over the time with two."""
    return [_compare(job, make(), updates, pairs) for job, (make, updates) in JOBS.items()]


def _compare(job: str, agent: Any, updates: int, pairs: int) -> Row:
    busy: list[float] = []

    def timed(threads: int) -> float:
        torch.set_num_threads(threads)
        used = time.process_time()
        with clock() as seconds:
            learn(agent, updates)
        if threads == THREADS:
            busy.append((time.process_time() - used) / (threads * seconds()))
        return seconds() / updates

    before = torch.get_num_threads()
    try:
        ours, alone = alternate(lambda: timed(THREADS), lambda: timed(1), pairs)
    finally:
        torch.set_num_threads(before)
    share = statistics.median(busy)
    quality = f"{share:.0%} of both cores' time is used, spinning included"
    return Row.of(job, ours, alone, "s/update", quality, busy=busy)
