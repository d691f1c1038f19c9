"""Records: the seconds that a job of this repository takes to reach a score on two CPU cores.

    python -m rlenv._benchmarks.record demo          # make record TASK=demo
    python -m rlenv._benchmarks.record demo --check  # make record-check TASK=demo

Both measure the last commit, seed by seed in turn with that of the last record. docs/results.md says what counts.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .measure import THREADS, machine, versions

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "records.json"
FASTER, SLOWER = 0.95, 1.15  # times the seconds of the last record's commit: at most for a record, and in a check


Seconds = Sequence[float | None]  # to the goal, of each seed; None for one that missed it


class Task(NamedTuple):
    """A job, the mean reward of held-out episodes that it has to reach, and how many seeds do."""

    command: str
    goal: float
    seeds: int


TASKS = {
    "demo": Task("rlenv train --timesteps 3200000 --eval-episodes 1000", 0.95, 3),
    "cartpole": Task("rlenv train --env CartPole-v1", 475, 10),
    "smollm2": Task("rlenv train --config configs/smollm2-sums.yaml", 0.65, 3),
}


def seconds_to_goal(config: Mapping[str, Any], result: Mapping[str, Any]) -> float | None:
    """Return the seconds of warm start and training of a run, without evaluations; None if it missed its goal.

    Args:
        config: the run's options; a run that used up its steps or episodes did not stop at its goal.
        result: the run's result.json.
    """
    counter = "episodes" if config.get("episodes") else "timesteps"
    return round(result["sft_seconds"] + result["seconds"], 3) if result[counter] < config[counter] else None


def median(seconds: Seconds) -> float:
    """Return the median over the seeds; those that missed the goal count as infinitely long."""
    return statistics.median(math.inf if taken is None else taken for taken in seconds)


def times_as_long(ours: Seconds, before: Seconds) -> float:
    """Return how many times the seconds of `before` ours took: the median over the seeds.

    A seed with which one side missed the goal counts as infinity or 0, and is left out if both did.
    """
    pairs = [pair for pair in zip(ours, before, strict=True) if pair != (None, None)]
    return statistics.median(math.inf if one is None else 0.0 if other is None else one / other for one, other in pairs)


def fault(ours: Seconds, before: Seconds | None, most: float) -> str:
    """Return why these seconds are not a record, or fail the check; empty if neither.

    Args:
        ours: seconds of each seed.
        before: seconds of the last record's commit, measured in turn; None before the first record.
        most: times the seconds of `before` that are allowed.
    """
    if math.isinf(median(ours)):
        return f"the goal was reached with {len(ours) - list(ours).count(None)} of {len(ours)} seeds"
    if before is not None and (ratio := times_as_long(ours, before)) > most:
        return f"{ratio:.2f} times the seconds of the last record's commit, and at most {most:g} times are allowed"
    return ""


def with_record(records: Mapping[str, list[Any]], name: str, sides: Mapping[str, Seconds]) -> dict[str, list[Any]]:
    """Return the table with a new row of a task: seconds of its seeds by commit, ours first."""
    (commit, ours), *before = sides.items()
    row = {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "seconds": ours,
        "before": [{"commit": other, "seconds": seconds} for other, seconds in before],
        "command": f"{TASKS[name].command} --stop-reward {TASKS[name].goal:g}",
        "machine": machine(),
        "versions": versions(),
    }
    return {**records, name: [*records.get(name, []), row]}


def run(task: Task, tree: Path, seed: int, folder: Path) -> float | None:
    """Train with a seed in a tree of the repository, with two threads; return the seconds to the goal, or None.

    Raises:
        RuntimeError: if the run fails, with its last line.
    """
    command = [*shlex.split(task.command), "--stop-reward", f"{task.goal:g}", "--seed", str(seed)]
    command += ["--device", "cpu", "--no-report", "--json", "--log-dir", str(folder)]
    call(command, tree, OMP_NUM_THREADS=str(THREADS))
    return seconds_to_goal(*(json.loads((folder / name).read_text("utf-8")) for name in ("config.json", "result.json")))


def call(words: Sequence[str], tree: Path, **environ: str) -> None:
    """Run a command of rlenv with the code of a tree of the repository, and these variables.

    Raises:
        RuntimeError: if it fails, with its last line.
    """
    variables = {**os.environ, "PYTHONPATH": str(tree / "src"), **environ}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True)
    if done.returncode:
        *_, last = ["no output", *done.stderr.strip().splitlines()]
        raise RuntimeError(f"{shlex.join(words)} failed with status {done.returncode}: {last}")


def head() -> str:
    """Return the last commit, as results name it."""
    return git("rev-parse", "--short=8", "HEAD").decode().strip()


def measure(task: Task, commits: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the seconds of each seed by commit, measured in turn; each is printed."""
    seconds: dict[str, list[float | None]] = {commit: [] for commit in commits}
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        trees = {commit: checked_out(commit, Path(folder, commit)) for commit in commits}
        for seed in range(task.seeds):
            for commit, tree in trees.items():
                taken = run(task, tree, seed, Path(folder, f"{commit}-{seed}"))
                seconds[commit].append(taken)
                print(f"seed {seed}, {commit}: {'missed' if taken is None else f'{taken:.3g} s'}", flush=True)
    return seconds


def checked_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a folder, and return it."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as files:
        files.extractall(folder, filter="data")
    return folder


def git(*arguments: str) -> bytes:
    """Return what a git command in this repository prints; it fails with git's own message."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    """Measure a task; exit with 1 if it is not a record, or if the check fails."""
    parser = argparse.ArgumentParser(prog="python -m rlenv._benchmarks.record", description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--check", action="store_true", help=f"only fail above {SLOWER:g} times the last record")
    given = parser.parse_args()
    records = json.loads(RECORDS.read_text("utf-8")) if RECORDS.is_file() else {}
    last = [row["commit"] for row in records.get(given.task, [])[-1:]]
    if given.check and not last:
        parser.error(f"no record of {given.task} to compare with; make record TASK={given.task} makes one")
    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    commit = head()
    print(f"measuring commit {commit}; what is not committed is left out", flush=True)
    try:
        sides = measure(TASKS[given.task], list(dict.fromkeys([commit, *last])))
    except RuntimeError as error:
        sys.exit(str(error))
    ours, before = sides[commit], sides[last[0]] if last else None
    if why := fault(ours, before, SLOWER if given.check else FASTER):
        sys.exit(f"{'too slow' if given.check else 'no record'}: {why}")
    if not given.check:
        RECORDS.write_text(json.dumps(with_record(records, given.task, sides), indent=1) + "\n", encoding="utf-8")
    print(f"{'passed' if given.check else 'a record'}: {median(ours):.3g} s")


if __name__ == "__main__":
    main()
