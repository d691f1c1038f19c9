"""The files in a run folder: their names, and how one is written whole or not at all."""

import os
from pathlib import Path

CONFIG, RESULT, REPORT = "config.json", "result.json", "report.html"
CSV = "progress.csv"
SAMPLES, EPISODES = "samples.md", "samples.jsonl"


def fresh(name: str) -> str:
    """Return the name under which a file is written before it takes the place of the old one."""
    return f".{name}-new"


def write_text(path: Path, text: str) -> None:
    """Write a file; a kill or a power failure leaves the old one or the new one."""
    new = path.with_name(fresh(path.name))
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
