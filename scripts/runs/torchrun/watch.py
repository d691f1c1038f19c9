"""Ends a job of several processes without torchrun, or if one is stopped, lost, or keeps the others waiting too long.

A thread of every process writes a heartbeat to the store where the processes met: that it lives, whether it waits for
the others, and which line it is in. The main process reads those of all, the others read the main one's. Time is
counted in heartbeats, so that a job that is suspended as a whole goes on afterwards.

torchrun only notices a process that has ended: with one of two stopped, or torchrun killed, both were still there after
a minute. A timeout of the collectives cannot tell a stopped process from one whose verifier is slow.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
import torch.distributed as dist

from agents.distributed import parallel

from ...console.progress import say
from .environment import number_here

BEAT = 2.0  # seconds between two heartbeats
SILENT = 11  # heartbeats that may be missing: with what torchrun needs to end, less than 30 s
NOTICE = 30  # heartbeats that the others wait before the main process says for whom; then twice as many, and so on
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Watch:
    """The heartbeats of a job, from when the processes meet until `leave`.

    Args:
        store: shared by the processes, through a connection that nothing else uses: an answer may never come.
        rank: of this process.
        size: the number of processes.
        limit: seconds for which processes may wait for another one; None for ever.
    """

    def __init__(self, store: Any, rank: int, size: int, limit: float | None) -> None:
        self.store, self.rank, self.size, self.limit = store, rank, size, limit
        self.watched = [other for other in range(size) if other != rank] if rank == 0 else [0]
        self.beats: dict[int, dict[str, Any]] = {}  # the last one of each process, its own too
        self.answers = 0  # of the store, so far
        self.parent = os.getppid()  # torchrun
        self._left, self._ends, self._told = threading.Event(), threading.Event(), threading.Event()
        self._notice = NOTICE
        self._news: dict[Any, tuple[int, int]] = {}  # the last number of each, and for how many heartbeats it stands
        self._main_thread = threading.main_thread().ident

    def start(self) -> None:
        """Begin, once the processes have met."""
        self._write(0)
        self._threads = [threading.Thread(target=work, daemon=True, name="watch") for work in (self._talk, self._judge)]
        for thread in self._threads:  # two, for talking may never end
            thread.start()

    def leave(self) -> None:
        """Stop: this process has nothing left to do with the others."""
        self._left.set()
        for thread in self._threads:  # one that is inside of torch while Python ends would abort the process
            thread.join(SILENT * BEAT)

    def _talk(self) -> None:
        """Write the heartbeats of this process and read those of others; may wait for the store forever."""
        number = 0
        while True:
            number += 1
            leaves, ends = self._left.is_set(), self._ends.is_set()
            try:
                self._write(number, leaves)
                if ends:
                    self.store.set("end", "1")
                if leaves or ends:
                    self._told.set()
                    return
                texts = self.store.multi_get([f"beat/{other}" for other in self.watched])
                if self.store.check(["end"]):
                    os._exit(1)  # the process that ended the job has said why
            except (RuntimeError, dist.DistError):  # the connection is lost, for good: nobody can be told any more
                self._told.set()
                return
            self.beats |= {other: json.loads(text) for other, text in zip(self.watched, texts, strict=True)}
            self.answers += 1
            self._left.wait(BEAT)

    def _write(self, number: int, leaves: bool = False) -> None:
        """Write one heartbeat of this process, perhaps its last."""
        waits, same = parallel.exchanges % 2, self._quiet("exchanges", parallel.exchanges)
        frame = sys._current_frames().get(self._main_thread or 0)
        beat = {
            "number": number,
            "pid": os.getpid(),
            "waits": same if waits else 0,
            "place": place_of(frame),
            "left": leaves,
        }
        self.beats[self.rank] = beat
        self.store.set(f"beat/{self.rank}", json.dumps(beat))

    def _judge(self) -> None:
        while not self._left.wait(BEAT):
            self.look()

    def look(self) -> None:
        """End the job if torchrun has ended, the store or a process is silent, or one keeps the others waiting."""
        if os.getppid() != self.parent:
            self._end("torchrun was killed, and nobody else starts or ends the processes of this machine")
        if self._quiet("store", self.answers) > SILENT:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            self._end(f"the meeting place of the processes, {where}, has not answered for {SILENT * BEAT:.0f} s")
        if self._news["store"][1]:  # then nothing is known of the processes either
            return
        for other in self.watched:
            beat = self.beats[other]
            if self._quiet(other, beat["number"]) > SILENT and not beat["left"]:
                _kill(beat["pid"], other)
                self._end(
                    f"process {other} of {self.size} has not been heard of for {SILENT * BEAT:.0f} s: it is stopped, "
                    f"or its machine or connection is lost; it was in {beat['place']}"
                )
        if self.rank == 0 and self.limit is not None:
            self._check_waiting(self.limit)

    def _quiet(self, of: Any, number: int) -> int:
        """Return for how many heartbeats a number has not changed."""
        before, times = self._news.get(of, (0, 0))
        self._news[of] = number, times + 1 if number == before else 0
        return self._news[of][1]

    def _check_waiting(self, limit: float) -> None:
        """Say which process the others have been waiting for; end the job when that takes too long."""
        there = {rank: beat for rank, beat in dict(self.beats).items() if not beat["left"]}
        working = [rank for rank, beat in there.items() if not beat["waits"]]
        longest = max((beat["waits"] for beat in there.values()), default=0)
        if not working or longest < min(self._notice, limit / BEAT):
            return
        late = f"process {working[0]} of {self.size}, which is in {there[working[0]]['place']}"
        if longest * BEAT >= limit:
            self._end(
                f"the other processes have waited {longest * BEAT:.0f} s for {late}: --verifier-timeout ends a "
                "verifier that hangs, and --process-timeout allows for longer waits"
            )
        say(f"waiting for {late}, since {longest * BEAT:.0f} s (at most {limit:g})")
        self._notice *= 2

    def _end(self, reason: str) -> None:
        """Say why, tell the others, and end this process, even if it waits for something."""
        if self.rank <= 1 or number_here() == 0:  # the main one, or if that is lost, one per machine
            with suppress(OSError):
                click.echo(
                    f"Error: {reason}. The job ends; go on from its last checkpoint", err=True, file=sys.__stderr__
                )
        self._ends.set()
        self._told.wait(3 * BEAT)
        os._exit(1)


def place_of(frame: FrameType | None) -> str:
    """Return which line a thread is in: the innermost one outside of installed packages, if any."""
    innermost, own = frame, frame
    while own is not None and (own.f_code.co_filename.startswith(_INSTALLED) or own.f_code.co_filename[:1] == "<"):
        own = own.f_back
    found = innermost if own is None else own
    if found is None:
        return "its end"
    code = found.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}, line {found.f_lineno})"


def _kill(pid: int, rank: int) -> None:
    """Kill a silent process of this job if it is on this machine: torchrun would wait 30 s for a stopped one."""
    names = ("MASTER_PORT", "TORCHELASTIC_RUN_ID")
    expected = {f"RANK={rank}", *(f"{name}={os.environ[name]}" for name in names if name in os.environ)}
    with suppress(OSError):  # another machine, or another system than Linux
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        if expected <= {*environment}:
            os.kill(pid, signal.SIGKILL)
