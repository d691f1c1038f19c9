"""Runs that are killed again and again, and what has to be true after each kill."""

import math
import re
import signal
import time
from dataclasses import dataclass, field

import processes
from _rlenv_scripts.runs.run_folder import newest_whole

import rlenv  # noqa: F401
from agents import Agent

ACKNOWLEDGED = re.compile(r"^checkpoint after (\d+) updates$", re.MULTILINE)


@dataclass
class Count:
    """What a campaign of kills has seen."""

    kills: int = 0
    resumes: int = 0
    restarts: int = 0  # before there was anything to resume
    acknowledged: int = 0  # checkpoints
    fastest: float = math.inf  # run without a break, in seconds; kills that come later hit nothing
    unloadable: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def failures(self):
        return self.unloadable + self.lost + self.orphans + self.faults

    def __str__(self):
        return (
            f"{self.kills} kills, {self.resumes} resumes, {self.restarts} new beginnings, {self.acknowledged} "
            f"acknowledged checkpoints: {len(self.unloadable)} unloadable, {len(self.lost)} lost, {len(self.orphans)} "
            f"orphans, {len(self.faults)} other faults"
        )


def seconds_of(start, command, run):
    """Run a command without a break; return how long it took."""
    started = time.monotonic()
    process = start(*command, "--log-dir", run, sync=False)
    assert process.wait() == 0, process.errors.read_text()
    return time.monotonic() - started


def killed_run(start, command, run, kills, seconds, rng, count, orphans_after=None):
    """Run a command, kill it at random instants and resume it, so many times; then let it finish.

    Args:
        start: the fixture.
        command: its arguments, without a run folder.
        run: the run folder.
        kills: how many of them hit the process while it runs.
        seconds: that a run without a break takes.
        rng: a `random.Random`.
        count: a `Count`, which is updated.
        orphans_after: seconds after a kill at which no child may be left; None does not look.
    """
    promised = -1
    fresh, hits = True, 0
    while True:
        mark = processes.new_mark()
        again = ("--log-dir", run) if fresh else ("--json",)
        started = time.monotonic()
        process = start(*(command if fresh else ("train", "--resume", run)), *again, sync=False, mark=mark)
        count.resumes += not fresh
        if hits < kills:
            time.sleep(rng.uniform(0, 0.7 * min(seconds, count.fastest)))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        if code == 0 and fresh:
            count.fastest = min(count.fastest, time.monotonic() - started)
        hit = code == -signal.SIGKILL
        hits, count.kills = hits + hit, count.kills + hit
        errors = process.errors.read_text()
        promises = [int(number) for number in ACKNOWLEDGED.findall(errors)]
        count.acknowledged += len(promises)
        promised = max([promised, *promises])
        if code == 2 and not fresh and "is complete; to go on" in errors:  # killed after the last line was written
            assert (run / "result.json").is_file()
            code = 0
        if "Traceback" in errors or code not in (0, -signal.SIGKILL):
            count.faults.append(f"{code}: {errors}")
            return
        if (
            hit
            and orphans_after is not None
            and not processes.eventually(lambda mark=mark: not processes.processes_of(mark), orphans_after)
        ):
            count.orphans.append(f"after kill {count.kills}: {processes.processes_of(mark)}")
            processes.kill_all(mark)
        fresh = not (run / "config.json").is_file()
        count.restarts += fresh
        if not fresh:
            check(run, promised, count)
        if not hit:
            if hits < kills:  # it was faster: begin a new run in another folder
                run, fresh, promised = run.with_name(f"{run.name}+"), True, -1
                continue
            return


def check(run, promised, count):
    """Count a run whose newest checkpoint does not load, or is older than one that was acknowledged."""
    try:
        newest = newest_whole(run)
        updates = -1 if newest is None else Agent.load(newest, device="cpu").num_updates
    except Exception as error:
        count.unloadable.append(f"{type(error).__name__}: {error}")
        return
    if updates < promised:
        count.lost.append(f"{updates} updates of {promised} in {run}")
