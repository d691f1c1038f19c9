"""The files in a run folder: their names, and how one is written whole or not at all."""

import os
from pathlib import Path

CONFIG, RESULT, REPORT = "config.json", "result.json", "report.html"
CSV = "progress.csv"
MOST_NAMED = 20  # runs in an error
SAMPLES, EPISODES = "samples.md", "samples.jsonl"


def fresh(name: str) -> str:
    """Return the name under which a file is written before it takes the place of the old one."""
    return f".{name}-new"


def runs_in(folder: Path) -> str:
    """Return the error about a folder of runs in the place of a run, which names them; empty for any other folder."""
    found = sorted(path for form in ("*", "*/seed-*") for path in folder.glob(f"{form}/{CONFIG}"))
    runs = [path.parent for path in found if b'"env_id"' in path.read_bytes()]  # a model has a config.json as well
    if not runs:
        return ""
    more = f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
    names = ", ".join(repr(str(run)) for run in runs[:MOST_NAMED])
    return f"{str(folder)!r} is a folder of runs, not a run; the runs in it: {names}{more}"


def write_text(path: Path, text: str) -> None:
    """Write a file; a kill or a power failure leaves the old one or the new one."""
    new = path.with_name(fresh(path.name))
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
