"""A run is a folder, which `train`, `sft` and `reward-model` write, and the other commands read.

config.json      the options of the run; `--config RUN/config.json` repeats it
result.json      what --json prints
progress.csv
AGENT-seed-N/events.out.tfevents...   TensorBoard's
tracking.json    of --track: which run of the tracker this is
samples.jsonl    episodes before, during and after training, token by token; see samples.py
report.html      the run on one page, see reports/
checkpoint/      the newest, see agents/training/checkpoint.py; checkpoint/policy/model loads with
                 AutoModelForCausalLM
checkpoint-000120/   an earlier one, after 120 updates
best/            the best by evaluation during training
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np

from rlenv._json import read_table
from rlenv.agents.files import MANIFEST, Lock, sync, versions, whole_folder, writing

from ..process import torchrun
from ..process.progress import say

if TYPE_CHECKING:
    from rlenv.agents.training.checkpoint import Checkpoint

T = TypeVar("T")
CONFIG, RESULT, REPORT, CSV = "config.json", "result.json", "report.html", "progress.csv"
EPISODES = "samples.jsonl"
EVENTS = "events.out.tfevents*"
TRACKING = "tracking.json"  # of --track: the id of the tracker's run, which is continued
REWARD_MODEL = "model"  # of rlenv reward-model; the verifier reward_model looks for this name
CHECKPOINT, BEST, EVALUATIONS = "checkpoint", "best", "evaluations"
LOCK = ".lock"  # while a run is writing
MODEL = Path("policy", "model")  # in a checkpoint


class NotARunError(ValueError):
    """A path is neither a run folder nor a checkpoint."""


class LogPlace(TypedDict):
    """How far the log of a run goes: rows of the table, and bytes of the other files by their paths."""

    rows: int
    files: dict[str, int]


class RunFolder:
    """A run folder: its configuration, log, samples and checkpoints.

    Args:
        path: of the folder, which need not exist.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def config(self) -> dict[str, Any]:
        """The options of the run; a `ValueError` if config.json is missing or damaged."""
        if not (self.path / CONFIG).is_file():
            what = f"is not a run folder: there is no {CONFIG} in it" if self.path.is_dir() else "is not a folder"
            raise ValueError(f"{str(self.path)!r} {what}; give a folder that rlenv train wrote")
        return read_table(self.path / CONFIG)

    @property
    def result(self) -> dict[str, Any]:
        """The result that the run printed at its end; empty if there is none, or if it is damaged, which is said."""
        try:
            return read_table(self.path / RESULT) if (self.path / RESULT).is_file() else {}
        except ValueError as error:
            say(f"{error}; it is left out")
            return {}

    @property
    def log(self) -> dict[str, np.ndarray]:
        """The columns of progress.csv by name, NaN where a cell is empty or a text [rows]; none before its first line.

        Lines with another number of cells are left out, and a half-written last one.
        """
        file = self.path / CSV
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if file.is_file() else []
        names = next(csv.reader(lines[:1]), [])

        def row(line: str) -> np.ndarray:
            cells = zip(names, next(csv.reader([line]), []), strict=True)
            return np.array([_number(cell) for _, cell in cells])

        rows = _undamaged(file, lines[1:], row)
        return dict(zip(names, np.stack(rows).T, strict=True)) if rows else {}

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The rows of samples.jsonl, if any; a half-written last one is left out."""
        file = self.path / EPISODES
        lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
        return _undamaged(file, lines, lambda line: dict(json.loads(line)))

    # Checkpoints.

    def earlier(self) -> dict[int, Path]:
        """Return the earlier checkpoints by their number of updates, the newest first."""
        matches = {path: re.fullmatch(rf"{CHECKPOINT}-(\d+)", path.name) for path in self.path.glob("checkpoint-*")}
        return dict(sorted(((int(match[1]), path) for path, match in matches.items() if match), reverse=True))

    def checkpoints(self) -> list[Path]:
        """Return all checkpoints but the best, the newest first."""
        return [*versions(self.path / CHECKPOINT), *self.earlier().values()]

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint whose files are intact; None before the first checkpoint.

        Damaged ones are named on stderr, one line each.

        Raises:
            ValueError: if all are damaged.
        """
        from rlenv.agents.training.checkpoint import read_checkpoint  # slow

        faults = []
        for path in self.checkpoints():
            try:
                checkpoint = read_checkpoint(path)
            except ValueError as error:
                faults.append(str(error))
                continue
            for fault in faults:
                say(f"{fault}; {str(path)!r} is used instead")
            return checkpoint
        if faults:
            raise ValueError(f"no whole checkpoint is left in {str(self.path)!r}: {'; '.join(faults)}")
        return None

    # The log.

    def event_files(self) -> list[Path]:
        """Return TensorBoard's files of events."""
        return sorted(self.path.glob(f"*/{EVENTS}"))

    def log_place(self) -> LogPlace:
        """Force the log to the disk; return how far it goes."""
        rows = 0
        if (self.path / CSV).is_file():
            sync(self.path / CSV)
            with (self.path / CSV).open("rb") as table:
                rows = max(sum(line.endswith(b"\n") for line in table) - 1, 0)
        for path in self._appended():
            sync(path)
        return {"rows": rows, "files": {self._relative(path): path.stat().st_size for path in self._appended()}}

    def cut_log(self, place: LogPlace | None) -> None:
        """Remove the log entries after a checkpoint, because their steps are played again; None removes everything."""
        place = place or {"rows": 0, "files": {}}
        for path in self._appended():
            size = place["files"].get(self._relative(path))
            if size is None:
                path.unlink()
            elif path.stat().st_size > size:
                os.truncate(path, size)
        if (self.path / CSV).is_file():
            text = (self.path / CSV).read_bytes().decode("utf-8", "replace")
            lines = text.split("\n")[:-1][: place["rows"] + 1] if place["rows"] else []
            write_text(self.path / CSV, "".join(f"{line}\n" for line in lines))

    def _appended(self) -> list[Path]:
        """Return the files of the log that only grow."""
        return [*self.event_files(), *self.path.glob(EPISODES)]

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    # Writing.

    def lock(self, held: ExitStack, advice: str = "wait for it, or stop it") -> None:
        """Keep other jobs from writing here until `held` is closed.

        Raises:
            ValueError: if another run is writing here.
        """
        busy = f"another run is writing to the run folder {str(self.path)!r}; {advice}"
        held.enter_context(Lock(self.path / LOCK, busy))

    def create(self, config: Mapping[str, Any], overwrite: bool, held: ExitStack) -> None:
        """Make the folder, with config.json alone in it, and lock it until `held` is closed.

        The old config.json is replaced last: without one, a folder that a kill left half empty could not be
        overwritten.

        Raises:
            ValueError: if another run is writing here, or has since the folder was chosen.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock(held, "pass another --log-dir")
        self.check_free(overwrite)
        for other in self.path.iterdir():
            if other.is_dir() and not other.is_symlink():
                shutil.rmtree(other)
            elif other.name not in (LOCK, CONFIG):
                other.unlink()
        self.write(CONFIG, config)

    def check_free(self, overwrite: bool) -> None:
        """Check that a run may be written here.

        Raises:
            ValueError: if anything else is here that may not be replaced.
        """
        if self.path.exists() and any(path.name not in (LOCK, _fresh(CONFIG)) for path in self.path.iterdir()):
            if not overwrite:
                raise ValueError(f"the run folder {str(self.path)!r} exists; pass --overwrite to replace it")
            if not (self.path / CONFIG).is_file():
                raise ValueError(f"{str(self.path)!r} is not a run folder (no {CONFIG}); it is not overwritten")

    def check_links(self) -> None:
        """Refuse symbolic links, because writing through one changes a file elsewhere.

        Raises:
            ValueError: naming the link.
        """
        for path in [*self.path.iterdir(), *self.event_files()]:
            if path.is_symlink():
                raise ValueError(f"{str(path)!r} is a symbolic link; a resumed run writes to its own files only")

    def write(self, name: str, value: Any) -> None:
        """Write a file of JSON, such as `CONFIG`."""
        write_json(self.path / name, value)


def choose(log_dir: Path | None, overwrite: bool, name: str, held: ExitStack) -> Path:
    """Return the path of a new run: `log_dir`, or the first runs/NAME that does not exist.

    The latter is made at once, so that runs which start together choose different ones.

    Args:
        log_dir: the user's choice, if any; nothing is written there.
        overwrite: whether it may replace a run.
        name: of the run, without one.
        held: removes a folder that is still empty when it is closed.

    Raises:
        ValueError: if the folder exists and may not be replaced, or is not a run folder.
    """
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    while log_dir is None:
        path = Path("runs", next(names))
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir()
            held.callback(_remove_if_empty, path)
            return path
    check_place(log_dir)
    RunFolder(log_dir).check_free(overwrite)
    return log_dir


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def own_folder(run: RunFolder, held: ExitStack) -> RunFolder:
    """Return the folder that this process writes: for all but the main one, one that vanishes when `held` is closed.

    So no other code asks which process it is in. Checkpoints are written once, by `Agent.save`.
    """
    if torchrun.number() == 0:
        return run
    own = RunFolder(Path(held.enter_context(tempfile.TemporaryDirectory(prefix="rlenv-process-")), "run"))
    own.path.mkdir()
    return own


def check_place(folder: Path) -> None:
    """Check that a folder can be made here: no part of its path is a file.

    Raises:
        ValueError: naming the file or folder in its place.
    """
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"the folder {str(folder)!r} cannot be made: {str(part)!r} is not a folder")


# What a user's word for a run stands for.


def options_behind(spec: str) -> dict[str, Any]:
    """Return the options of the run in a folder; empty if `spec` is not a run with a checkpoint."""
    is_run = Path(spec, CONFIG).is_file() and whole_folder(Path(spec, CHECKPOINT)).is_dir()
    return RunFolder(spec).config if is_run else {}


def checkpoint_of(path: Path) -> Checkpoint:
    """Return the newest whole checkpoint inside a run folder, or the folder itself if it is a checkpoint.

    Raises:
        NotARunError: if it is neither.
        ValueError: if all its checkpoints are damaged.
    """
    from rlenv.agents.training.checkpoint import read_checkpoint  # slow

    folder = whole_folder(path)
    if (folder / "agent.json").is_file():
        return read_checkpoint(folder)
    newest = RunFolder(path).newest()
    if newest is not None:
        return newest
    raise NotARunError(f"{str(path)!r} is not a run folder: there is no {CHECKPOINT}/agent.json in it")


def reward_model_of(run: str | Path) -> str | None:
    """Return the model inside a run folder of `rlenv reward-model`; None for anything else."""
    model = Path(run) / REWARD_MODEL
    return str(model) if (Path(run) / CONFIG).is_file() and (model / "config.json").is_file() else None


def model_of(spec: str) -> str:
    """Return the language model inside a run or checkpoint folder; any other `spec` is returned unchanged."""
    inside = (whole_folder(folder) / MODEL for folder in (Path(spec, CHECKPOINT), Path(spec)))
    return next((str(model) for model in inside if model.is_dir()), spec)


def content_of(folder: Path) -> str | None:
    """Return a digest of a checkpoint, which changes with its weights; None for any other folder."""
    manifest = folder / MANIFEST
    return hashlib.blake2b(manifest.read_bytes(), digest_size=8).hexdigest() if manifest.is_file() else None


# Files of a log, of which nothing else depends: a damaged line is skipped, and counted on stderr.


def _undamaged(file: Path, lines: Sequence[Any], read: Callable[[Any], T]) -> list[T]:
    rows = []
    for line in lines:
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            rows.append(read(line))
    if damaged := len(lines) - len(rows):
        say(f"skipped {damaged} damaged line{'s' * (damaged > 1)} of {str(file)!r}")
    return rows


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def completion_of(row: Mapping[str, Any]) -> str:
    """Return a completion of samples.jsonl; of a dialogue, all turns, each reply in brackets behind its turn."""
    turns = row.get("dialogue") or [{"text": row["completion"], "reply": ""}]
    return " ".join(f"{turn['text']} [{turn['reply'].strip()}]" if turn["reply"] else turn["text"] for turn in turns)


# Files that are written whole or not at all.


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON; a kill or a power failure leaves the old file or the new one."""
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file; a kill or a power failure leaves the old one or the new one."""
    new = path.with_name(_fresh(path.name))
    with writing(path), new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _fresh(name: str) -> str:
    """Return the name under which a file is written before it takes the place of the old one."""
    return f".{name}-new"
