"""Experiment trackers as further outputs of the log: `rlenv train --track wandb` or `trackio`."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from stable_baselines3.common.logger import KVWriter
from typing_extensions import override

from rlenv._checks import first_line, require
from rlenv._json import read_table

from ..process.progress import say
from .folder import TRACKING, write_json

PROJECT, STEPS = "rlenv", "time/total_timesteps"


def library(name: str) -> Any:
    """Return the library of a tracker; a `ValueError` names the extra to install."""
    return require(name, name, f"--track {name}")


class Wandb(KVWriter):
    """A run of Weights & Biases; WANDB_MODE, WANDB_PROJECT and its other variables apply.

    `--resume` continues it by the library's own means: its id is in tracking.json. Steps that a resumed run takes again
    are sent again. A failure of the library never ends the training.

    Attributes:
        result: of the run, which is sent at the end; None if it did not come to its end.

    Raises:
        ValueError: if the tracker's library is missing or refuses to begin; one line that says what to do.
    """

    module: ClassVar[str] = "wandb"
    result: dict[str, Any] | None = None
    failing = False

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder, self.library = folder, library(self.module)
        known = read_table(folder / TRACKING) if (folder / TRACKING).is_file() else {}
        name = self._begin(known.get("id") if known.get("tracker") == self.module else None, dict(config))
        write_json(folder / TRACKING, {"tracker": self.module, "id": name})

    @override
    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        if figures := {name: float(value) for name, value in key_values.items() if isinstance(value, Real)}:
            self._try(self._send, figures, step)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Send one figure that has its own count of steps."""
        self._try(self._send, {name: value}, step, f"{name.split('/')[0]}/step")

    def add_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Send a table of samples."""
        self._try(self._table, name, columns, rows, step)

    @override
    def close(self) -> None:
        self._try(self._end)

    def _try(self, function: Any, *arguments: Any) -> None:
        try:
            with redirect_stdout(sys.stderr):  # results are printed on standard output
                function(*arguments)
        except Exception as error:  # of a server or a store of files
            if not self.failing:
                say(f"{self.module}: {first_line(error)}; the training goes on, and figures may be missing there")
            self.failing = True

    def _begin(self, known: str | None, config: dict[str, Any]) -> str:
        """Begin a run, or go on with the known one; return its id."""
        wandb, name = self.library, known or uuid.uuid4().hex[:12]
        project, title = os.environ.get("WANDB_PROJECT", PROJECT), self.folder.resolve().name
        options = {"settings": wandb.Settings(console="off"), "config": config, "dir": str(self.folder)}
        try:
            self.run = wandb.init(
                id=name, resume="allow", project=project, name=title, allow_val_change=True, **options
            )
        except wandb.errors.Error as error:
            raise ValueError(f"wandb: {error}; log in with: wandb login, or set WANDB_MODE=offline") from error
        self.run.define_metric("*", step_metric=STEPS)
        self.run.define_metric("sft/*", step_metric="sft/step")
        return name

    def _send(self, row: dict[str, Any], step: int, axis: str = STEPS) -> None:
        self.run.log(row | {axis: step})

    def _table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        cells, titles = [[str(cell) for cell in row] for row in rows], [column or "note" for column in columns]
        self._send({name: self.library.Table(columns=titles, data=cells)}, step)

    def _end(self) -> None:
        try:
            self.run.summary.update({} if self.result is None else {"result": self.result})
        finally:
            self.run.finish(exit_code=int(self.result is None))


class Trackio(Wandb):
    """A run of trackio, on this machine unless TRACKIO_SPACE_ID or its other variables say otherwise."""

    module = "trackio"

    def _begin(self, known: str | None, config: dict[str, Any]) -> str:
        name = known or f"{self.folder.resolve().name}-{uuid.uuid4().hex[:6]}"  # trackio continues runs by their name
        with redirect_stdout(sys.stderr):
            self.run = self.library.init(project=PROJECT, name=name, resume="allow", config=config, embed=False)
        return name

    def _send(self, row: dict[str, Any], step: int, axis: str = STEPS) -> None:
        self.run.log(row, step=step)

    def _end(self) -> None:
        self.library.finish()


TRACKERS: dict[str, type[Wandb]] = {"wandb": Wandb, "trackio": Trackio}
