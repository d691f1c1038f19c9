"""Weights & Biases and MLflow as further outputs of the log: `rlenv train --track wandb` or `mlflow`."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from stable_baselines3.common.logger import KVWriter
from typing_extensions import override

from agents.core.checks import first_line
from agents.core.files import read_table
from verifiers.plugins.extras import require

from ..console.progress import say
from .run_folder import TRACKING, write_json
from .run_log import markdown

PROJECT = "rlenv"
Figures = dict[str, float]


class Tracker(KVWriter):
    """A run of an experiment tracker, which `--resume` continues: its id is in tracking.json.

    Steps that a resumed run takes again are sent again.

    Args:
        folder: the run folder.
        config: the options of the run.

    Raises:
        ValueError: if the tracker's library is missing or refuses to begin; one line that says what to do.
    """

    module: ClassVar[str]
    failing = False  # whether it was said that the library fails

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder, self.library, self.concluded = folder, library(self.module), False
        known = read_table(folder / TRACKING) if (folder / TRACKING).is_file() else {}
        known = known if known.get("tracker") == self.module else {}
        write_json(folder / TRACKING, {"tracker": self.module, "id": self.begin(known.get("id"), dict(config))})

    def begin(self, known: str | None, config: dict[str, Any]) -> str:
        """Begin a run, or continue the one with a known id; return its id."""
        raise NotImplementedError

    def send(self, figures: Figures, step: int, axis: str) -> None:
        """Send figures of a step that is counted by another figure, the axis."""
        raise NotImplementedError

    def send_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Send a table of samples."""
        raise NotImplementedError

    def send_histogram(self, name: str, values: Any, step: int) -> None:
        """Send a distribution of values [n]; by default it is left out."""

    def end(self, result: Mapping[str, Any] | None) -> None:
        """End the run, with its result if it came to one."""
        raise NotImplementedError

    @override
    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        figures = {name: float(value) for name, value in key_values.items() if isinstance(value, Real)}
        if figures:
            self._try(self.send, figures, step, "time/total_timesteps")

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Send one figure that has its own count of steps."""
        self._try(self.send, {name: value}, step, f"{name.split('/')[0]}/step")

    def add_histogram(self, name: str, values: Any, step: int) -> None:
        """Send a distribution of values [n]."""
        self._try(self.send_histogram, name, values, step)

    def add_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Send a table of samples."""
        self._try(self.send_table, name, columns, rows, step)

    def conclude(self, result: Mapping[str, Any]) -> None:
        """Send the result of the run and end it."""
        self.concluded = True
        self._try(self.end, result)

    @override
    def close(self) -> None:
        if not self.concluded:
            self._try(self.end, None)

    def _try(self, function: Any, *arguments: Any) -> None:
        """Call the library; whatever fails in it, such as a server or a store of files, does not end the training."""
        try:
            function(*arguments)
        except Exception as error:
            if not self.failing:
                say(f"{self.module}: {first_line(error)}; the training goes on, and figures may be missing there")
            self.failing = True


class Wandb(Tracker):
    """A run of Weights & Biases; WANDB_MODE, WANDB_PROJECT and its other variables apply."""

    module = "wandb"

    @override
    def begin(self, known: str | None, config: dict[str, Any]) -> str:
        wandb, name = self.library, known or uuid.uuid4().hex[:12]
        try:
            self.run = wandb.init(
                id=name,
                resume="allow",
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=self.folder.resolve().name,
                dir=str(self.folder),
                config=config,
                settings=wandb.Settings(console="off"),
                allow_val_change=True,
            )
        except wandb.errors.Error as error:
            raise ValueError(f"wandb: {error}; log in with: wandb login, or set WANDB_MODE=offline") from error
        self.run.define_metric("*", step_metric="time/total_timesteps")
        self.run.define_metric("sft/*", step_metric="sft/step")
        return name

    @override
    def send(self, figures: Figures, step: int, axis: str) -> None:
        self.run.log(figures | {axis: step})

    @override
    def send_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        cells = [[str(cell) for cell in row] for row in rows]
        table = self.library.Table(columns=[column or "note" for column in columns], data=cells)
        self.run.log({name: table, "time/total_timesteps": step})

    @override
    def send_histogram(self, name: str, values: Any, step: int) -> None:
        self.run.log({f"distributions/{name}": self.library.Histogram(values), "time/total_timesteps": step})

    @override
    def end(self, result: Mapping[str, Any] | None) -> None:
        try:
            self.run.summary.update({} if result is None else {"result": dict(result)})
        finally:
            self.run.finish(exit_code=0 if result is not None else 1)


class MLflow(Tracker):
    """A run of MLflow; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and its other variables apply."""

    module = "mlflow"

    @override
    def begin(self, known: str | None, config: dict[str, Any]) -> str:
        mlflow = self.library
        try:
            if "MLFLOW_EXPERIMENT_NAME" not in os.environ and "MLFLOW_EXPERIMENT_ID" not in os.environ:
                mlflow.set_experiment(PROJECT)
            run = mlflow.start_run(run_id=known, run_name=None if known else self.folder.resolve().name)
            if known is None:
                mlflow.log_params(config)
        except mlflow.exceptions.MlflowException as error:
            first = str(error).splitlines()[0]
            raise ValueError(f"mlflow: {first}; set MLFLOW_TRACKING_URI, such as http://HOST:5000") from error
        return str(run.info.run_id)

    @override
    def send(self, figures: Figures, step: int, axis: str) -> None:
        self.library.log_metrics({_mlflow_name(name): value for name, value in figures.items()}, step=step)

    @override
    def send_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        self.library.log_text(markdown(columns, rows), f"{name}/{step:09d}.md")

    @override
    def end(self, result: Mapping[str, Any] | None) -> None:
        try:
            if result is not None:
                self.library.log_dict(dict(result), "result.json")
        finally:
            self.library.end_run("FINISHED" if result is not None else "KILLED")


TRACKERS: dict[str, type[Tracker]] = {"wandb": Wandb, "mlflow": MLflow}


def library(name: str) -> Any:
    """Return the library of a tracker.

    Raises:
        ValueError: naming the extra to install.
    """
    return require(name, name, f"--track {name}")


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow takes: one slash, for its files of metrics are in folders by name."""
    group, _, rest = name.partition("/")
    return re.sub(r"[^\w\-. :/]", "_", f"{group}/{rest.replace('/', '.')}" if rest else group)
