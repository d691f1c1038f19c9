"""The run folder, which `train` and `sft` write and `evaluate` reads.

config.json      the options of the run; `--config RUN/config.json` repeats it
result.json      what --json prints
progress.csv
AGENT-seed-N/events.out.tfevents...   TensorBoard's
tracking.json    of --track: which run of the tracker this is
samples.md       completions of the trained policy
samples.jsonl    episodes before, during and after training, token by token; see samples.py
report.html      the run on one page, see reports/
checkpoint/      the newest, see agents/training/checkpoint.py; checkpoint/policy/model loads with
                 AutoModelForCausalLM
checkpoint-000120/   an earlier one, after 120 updates
best/            the best by evaluation during training
damaged/, damaged-000120/   checkpoints that a resumed run could not use
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import click

from agents.files import Lock, read_table, sync, versions, whole_folder
from agents.training.checkpoint import Checkpoint, read_checkpoint

from .progress import say
from .run_files import CONFIG, EPISODES, REPORT, RESULT, SAMPLES, fresh, runs_in, write_text
from .run_log import CSV, EVENTS, event_files

TRACKING = "tracking.json"  # of --track: the id of the tracker's run, which is continued
TRACKER_FILES = (TRACKING, "wandb", "mlruns", "mlflow.db")  # what trackers may write here
REWARD_MODEL = "model"  # of rlenv reward-model; the verifier reward_model looks for this name
CHECKPOINT, BEST, DAMAGED = "checkpoint", "best", "damaged"
LOCK = ".lock"  # while a run is writing
MODEL = Path("policy", "model")  # in a checkpoint
LOCAL = (
    "log_dir",
    "overwrite",
    "as_json",
    "resume",
    "trust_checkpoint",
    "dry_run",
    "report",
    "process_timeout",
)  # options of one invocation, not of the run


class NotARunError(ValueError):
    """A path is neither a run folder nor a checkpoint."""


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
    if log_dir.exists() and any(path.name not in (LOCK, fresh(CONFIG)) for path in log_dir.iterdir()):
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

    The old config.json is replaced last: without one, a folder that a kill left half empty could not be overwritten.

    Raises:
        ValueError: if another run is writing there, or has since the folder was chosen.
    """
    path.mkdir(parents=True, exist_ok=True)
    lock(path, "pass another --log-dir")
    _check_free(path, overwrite)
    for other in path.iterdir():
        if other.is_dir() and not other.is_symlink():
            shutil.rmtree(other)
        elif other.name not in (LOCK, CONFIG):
            other.unlink()
    write_json(path / CONFIG, config)


def begin_again(run: Path, config: dict[str, Any]) -> None:
    """Remove what a run without a checkpoint has written, and write config.json.

    Raises:
        ValueError: if anything else is in the folder; nothing is removed then.
    """
    begun = map(fresh, (CONFIG, RESULT, CSV, EPISODES, REPORT, CHECKPOINT, TRACKING))
    ours = (*TRACKER_FILES, LOCK, CONFIG, RESULT, SAMPLES, EPISODES, REPORT, *begun, f".{CHECKPOINT}-lock")
    found = sorted(run.iterdir())
    foreign = [path.name for path in found if path.name not in (*ours, CSV) and not _of_events(path)]
    if foreign:
        raise ValueError(
            f"{str(run)!r} has no checkpoint, and {', '.join(foreign)} in it would have to be removed to start again; "
            "move what you need elsewhere, or begin another run"
        )
    for path in found:
        if path.name in TRACKER_FILES:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOCK, CONFIG):
            path.unlink()
    write_json(run / CONFIG, config)


def _of_events(path: Path) -> bool:
    """Tell whether this is a folder of nothing but TensorBoard's events."""
    return path.is_dir() and all(each.match(EVENTS) for each in path.iterdir())


def earlier(run: Path) -> list[Path]:
    """Return the earlier checkpoints of a run, the newest first."""
    found = {path: re.fullmatch(rf"{CHECKPOINT}-(\d+)", path.name) for path in run.glob("checkpoint-*")}
    numbered = [(int(match[1]), path) for path, match in found.items() if match]
    return [path for _, path in sorted(numbered, reverse=True)]


def candidates(run: Path) -> list[Path]:
    """Return all checkpoints of a run, the newest first."""
    return [*versions(run / CHECKPOINT), *earlier(run)]


def newest_whole(run: Path) -> Checkpoint | None:
    """Return the newest checkpoint whose files are what was written; None before the first checkpoint.

    Damaged ones are named on stderr, one line each.

    Raises:
        ValueError: if all are damaged.
    """
    faults = []
    for path in candidates(run):
        try:
            found = read_checkpoint(path)
        except ValueError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            say(f"{fault}; {str(path)!r} is used instead")
        return found
    if faults:
        raise ValueError(f"no whole checkpoint is left in {str(run)!r}: {'; '.join(faults)}")
    return None


def lock(path: Path, advice: str = "wait for it, or stop it") -> None:
    """Keep other commands from writing to a run folder until this one ends; once is enough.

    Raises:
        ValueError: if another run is writing there.
    """
    context = click.get_current_context()
    held = context.meta.setdefault(__name__, set())
    if path not in held:
        busy = f"another run is writing to the run folder {str(path)!r}; {advice}"
        context.with_resource(Lock(path / LOCK, busy))
        held.add(path)


def promote(run: Path, checkpoint: Path) -> Path:
    """Make a checkpoint the newest one of its run, move damaged ones out of the way, and return where it is now."""
    newest = run / CHECKPOINT
    if checkpoint == newest:
        return newest
    found = candidates(run)
    for path in found[: found.index(checkpoint)]:
        damaged = run / path.name.lstrip(".").replace(CHECKPOINT, DAMAGED)
        shutil.rmtree(damaged, ignore_errors=True)
        path.replace(damaged)
    return checkpoint.replace(newest)


def check_links(run: Path) -> None:
    """Refuse a run folder with symbolic links: what is written through one goes to a file elsewhere.

    Raises:
        ValueError: naming the link.
    """
    for path in [*run.iterdir(), *event_files(run)]:
        if path.is_symlink():
            raise ValueError(f"{str(path)!r} is a symbolic link; a run that is resumed writes to its own files only")


def config_of(spec: str) -> dict[str, Any]:
    """Return the resolved options of the run in a folder; empty if `spec` is not a run folder."""
    path = Path(spec, CONFIG)
    if not path.is_file() or not whole_folder(Path(spec, CHECKPOINT)).is_dir():
        return {}
    return read_table(path)


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON; a kill or a power failure leaves the old file or the new one."""
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")
    sync(path.parent)


def is_evaluated(run: Path, updates: int) -> bool:
    """Tell whether a run has the result of its last evaluation, after so many updates."""
    try:
        result = read_table(run / RESULT)
    except ValueError:  # none yet, or damaged
        return False
    return result.get("updates") == updates and result.get("eval") is not None


def checkpoint_of(path: Path) -> Checkpoint:
    """Return the newest whole checkpoint inside a run folder, or that of the folder itself if it is a checkpoint.

    Raises:
        NotARunError: if it is neither.
        ValueError: if all its checkpoints are damaged.
    """
    folder = whole_folder(path)
    if (folder / "agent.json").is_file():
        return read_checkpoint(folder)
    newest = newest_whole(path)
    if newest is not None:
        return newest
    if named := runs_in(path):
        raise ValueError(named)
    raise NotARunError(f"{str(path)!r} is not a run folder: there is no {CHECKPOINT}/agent.json in it")


def reward_model_of(run: str | Path) -> str | None:
    """Return the model inside a run folder of `rlenv reward-model`; None for anything else."""
    model = Path(run) / REWARD_MODEL
    return str(model) if (Path(run) / CONFIG).is_file() and (model / "config.json").is_file() else None


def model_of(spec: str) -> str:
    """Return the language model inside a run or checkpoint folder; any other `spec` is returned unchanged.

    Raises:
        ValueError: for a run folder without a language model, and for a class.
    """
    if re.search(r"\.py:\w+$", spec):
        raise ValueError(
            f"--model {spec}: the command line takes no class of a policy; in Python, pass an instance of it to an "
            "agent (docs/tutorials/your-own-policy.md)"
        )
    checkpoint = whole_folder(Path(spec) / CHECKPOINT)
    for model in (checkpoint / MODEL, whole_folder(Path(spec)) / MODEL):
        if model.is_dir():
            return str(model)
    if checkpoint.is_dir():
        raise ValueError(f"the run folder {spec!r} holds no language model")
    return spec
