"""The run folder, which `train` and `sft` write and `evaluate` reads.

config.json      the options of the run; `--config RUN/config.json` repeats it
result.json      what --json prints
progress.csv, events.out.tfevents...
samples.md       completions of the trained policy
checkpoint/      see agents/checkpoint.py; checkpoint/policy/model loads with AutoModelForCausalLM
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import click

from agents.files import Lock, whole_folder

CONFIG, RESULT, SAMPLES, CHECKPOINT = "config.json", "result.json", "samples.md", "checkpoint"
LOCK = ".lock"  # while a run is writing
MODEL = Path("policy", "model")  # in a checkpoint
LOCAL = ("log_dir", "overwrite", "as_json")  # options of one invocation, not of the run


def choose(log_dir: Path | None, overwrite: bool, name: str) -> Path:
    """Return the path of the run folder: `log_dir`, or the first runs/NAME that does not exist. Writes nothing.

    Raises:
        ValueError: if the folder exists and may not be replaced, or is not a run folder.
    """
    if log_dir is None:
        candidates = (Path("runs", name if i == 1 else f"{name}-{i}") for i in itertools.count(1))
        return next(path for path in candidates if not path.exists())
    check_place(log_dir)
    _check_free(log_dir, overwrite)
    return log_dir


def _check_free(log_dir: Path, overwrite: bool) -> None:
    if log_dir.exists() and any(path.name != LOCK for path in log_dir.iterdir()):
        if not overwrite:
            raise ValueError(f"the run folder {str(log_dir)!r} exists; pass --overwrite to replace it")
        if not (log_dir / CONFIG).is_file():
            raise ValueError(f"{str(log_dir)!r} is not a run folder (no {CONFIG}); it is not overwritten")


def check_place(folder: Path) -> None:
    """Check that a folder can be made here: no part of its path is a file.

    Raises:
        ValueError: naming what is in its place.
    """
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"the folder {str(folder)!r} cannot be made: {str(part)!r} is not a folder")


def create(path: Path, config: dict[str, Any], overwrite: bool) -> None:
    """Make the folder, with config.json alone in it, and lock it until the command ends.

    Raises:
        ValueError: if another run is writing there, or has since the folder was chosen.
    """
    path.mkdir(parents=True, exist_ok=True)
    busy = f"another run is writing to the run folder {str(path)!r}; pass another --log-dir"
    click.get_current_context().with_resource(Lock(path / LOCK, busy))
    _check_free(path, overwrite)
    for other in path.iterdir():
        if other.is_dir() and not other.is_symlink():
            shutil.rmtree(other)
        elif other.name != LOCK:
            other.unlink()
    write_json(path / CONFIG, config)


def config_of(spec: str) -> dict[str, Any]:
    """Return the resolved options of the run in a folder; empty if `spec` is not a run folder."""
    path = Path(spec, CONFIG)
    if not path.is_file() or not Path(spec, CHECKPOINT).is_dir():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON."""
    path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")


def checkpoint_of(path: Path) -> Path:
    """Return the checkpoint inside a run folder, or the folder itself if it is a checkpoint.

    Raises:
        ValueError: if it is neither.
    """
    for folder in map(whole_folder, (path / CHECKPOINT, path)):
        if (folder / "agent.json").is_file():
            return folder
    raise ValueError(f"{str(path)!r} is not a run folder: there is no {CHECKPOINT}/agent.json in it")


def model_of(spec: str) -> str:
    """Return the language model inside a run or checkpoint folder; any other `spec` is returned unchanged.

    Raises:
        ValueError: for a run folder without a language model.
    """
    checkpoint = whole_folder(Path(spec) / CHECKPOINT)
    for model in (checkpoint / MODEL, whole_folder(Path(spec)) / MODEL):
        if model.is_dir():
            return str(model)
    if checkpoint.is_dir():
        raise ValueError(f"the run folder {spec!r} holds no language model")
    return spec
