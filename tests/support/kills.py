"""Runs that are killed again and again, and what has to be true after each kill."""

import math
import multiprocessing
import os
import re
import signal
import sys
import time
from dataclasses import dataclass, field

import processes
from _rlenv_scripts.main import main
from _rlenv_scripts.run import Run

import rlenv  # noqa: F401
from agents import Agent

FORKS = multiprocessing.get_context("forkserver")  # imports once what each run of the command would import for seconds
FORKS.set_forkserver_preload(["torch", "transformers", "agents", "rlenv", "_rlenv_scripts.main"])
ORPHANS = 1.0  # seconds after a kill at which no child may be left
ACKNOWLEDGED = re.compile(r"^checkpoint after (\d+) updates$", re.MULTILINE)


@dataclass
class Count:
    """What a campaign of kills has seen; `fastest` is a run without a break, in seconds: later kills hit nothing."""

    kills: int = 0
    acknowledged: int = 0  # checkpoints
    fastest: float = math.inf
    failures: list[str] = field(default_factory=list)


def started(arguments, errors, mark=""):
    """Return a command that runs in a process of its own, with its errors in a file."""
    process = FORKS.Process(target=_run, args=([str(each) for each in arguments], errors, mark))
    process.start()
    return process


def _run(arguments, errors, mark):
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ[processes.MARK] = mark
    os.fsync = lambda descriptor: None  # a kill is not a power cut
    sys.argv = ["rlenv", *arguments]
    main()


def seconds_of(command, run):
    """Run a command without a break; return how long it took."""
    begun = time.monotonic()
    process = started([*command, "--log-dir", run], errors := run.with_suffix(".errors"))
    process.join(240)
    assert process.exitcode == 0, errors.read_text()
    return time.monotonic() - begun


def killed_run(command, run, kills, rng, count):
    """Run a command, kill it at random instants and resume it, so many times; then let it finish.

    Args:
        command: its arguments, without a run folder.
        run: the run folder.
        kills: how many of them hit the process while it runs.
        rng: a `random.Random`.
        count: a `Count`, which is updated.
    """
    promised, fresh, hits = -1, True, 0
    while True:
        mark, begun, errors = processes.new_mark(), time.monotonic(), run.with_suffix(".errors")
        line = [*command, "--log-dir", run] if fresh else ["train", "--resume", run, "--json"]
        process = started(line, errors, mark)
        if hits < kills:
            time.sleep(rng.uniform(0, 0.7 * count.fastest))
            process.kill()
        process.join(240)
        code = process.exitcode
        if code == 0 and fresh:
            count.fastest = min(count.fastest, time.monotonic() - begun)
        hit = code == -signal.SIGKILL
        hits, count.kills = hits + hit, count.kills + hit
        said = errors.read_text() if errors.is_file() else ""
        promises = [int(number) for number in ACKNOWLEDGED.findall(said)]
        count.acknowledged += len(promises)
        promised = max([promised, *promises])
        if code == 2 and not fresh and "is complete; to go on" in said:  # killed after the last line was written
            assert (run / "result.json").is_file()
            code = 0
        if "Traceback" in said or code not in (0, -signal.SIGKILL):
            count.failures.append(f"{code}: {said}")
            return
        if hit and not processes.eventually(lambda mark=mark: not processes.processes_of(mark), ORPHANS):
            count.failures.append(f"orphans after kill {count.kills}: {processes.processes_of(mark)}")
            processes.kill_all(mark)
        fresh = not (run / "config.json").is_file()
        if not fresh:
            check(run, promised, count)
        if not hit and hits >= kills:
            return
        if not hit:  # it was faster: begin a new run in another folder
            run, fresh, promised = run.with_name(f"{run.name}+"), True, -1


def check(run, promised, count):
    """Count a run whose newest checkpoint does not load, or is older than one that was acknowledged."""
    try:
        newest = Run(run).newest()
        updates = -1 if newest is None else Agent.load(newest, device="cpu").num_updates
    except Exception as error:
        count.failures.append(f"unloadable: {type(error).__name__}: {error}")
        return
    if updates < promised:
        count.failures.append(f"lost: {updates} updates of {promised} in {run}")
