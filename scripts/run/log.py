"""progress.csv, samples.jsonl and TensorBoard's events, which a resumed run continues without a seam or a repeat."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import CSVOutputFormat, Logger, TensorBoardOutputFormat
from typing_extensions import override

from rlenv.agents.files import writing

from ..process.terminal import plain
from .folder import CSV, LogPlace, RunFolder, write_text

LONGEST = 600  # characters of a text in a table


class Table(CSVOutputFormat):
    """stable-baselines3's CSV file, appended to instead of overwritten, and whole at any moment.

    A new column, such as for the first failure, changes all lines; that is done in another file, which then takes
    the place of this one.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.separator, self.quotechar = path, ",", '"'
        path.touch()
        self._open()

    def _open(self) -> None:
        self.file = self.path.open("r+", encoding="utf-8", errors="replace")
        self.keys = next(csv.reader(self.file), [])
        self.file.seek(0, io.SEEK_END)

    @override
    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        shown = {name for name in key_values if "csv" not in (key_excluded.get(name) or ())}
        if fresh := sorted(shown - set(self.keys)):
            self.file.seek(0)
            rows = [line.rstrip("\n") + self.separator * len(fresh) for line in self.file][1:]
            write_text(self.path, "\n".join([self.separator.join([*self.keys, *fresh]), *rows, ""]))
            self.file.close()
            self._open()
        with writing(self.path):
            super().write(key_values, key_excluded, step)


def open_log(run: RunFolder, place: LogPlace | None = None, name: str = "run") -> Logger:
    """Return a logger that writes progress.csv and events, which go on where a checkpoint was written.

    TensorBoard names a run after its folder below --logdir, and "." if that is the folder itself. So the events have
    a separate folder.

    Args:
        run: the run.
        place: what `Run.log_place` returned when the checkpoint was written; None begins the log anew.
        name: of the folder of events, unless there are some.
    """
    run.cut_log(place)
    files = run.event_files()
    events = TensorBoardOutputFormat(str(files[0].parent if files else run.path / name))
    return Logger(str(run.path), [events, Table(run.path / CSV)])  # an error before the table leaves figures pending


def flush(logger: Logger) -> None:
    """Write the events that TensorBoard's writers still hold in memory."""
    for output in logger.output_formats:
        if isinstance(output, TensorBoardOutputFormat):
            output.writer.flush()


def log_scalar(logger: Logger, name: str, value: float, step: int) -> None:
    """Write one figure to TensorBoard and trackers only, with its own count of steps."""
    for writer in _writers(logger):
        writer.add_scalar(name, value, step)


def log_table(logger: Logger, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
    """Write a table of texts and numbers to TensorBoard, as Markdown, and to trackers."""
    for writer in _writers(logger):
        if hasattr(writer, "add_table"):
            writer.add_table(name, columns, rows, step)
        else:
            writer.add_text(name, markdown(columns, rows), step)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown: texts literally, as code, and numbers with four digits, NaN as an empty cell."""
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]) + "\n"


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return "" if math.isnan(value) else f"{value:.4g}"
    text = value if len(value) <= LONGEST else f"{value[: LONGEST // 2]} ... {value[-LONGEST // 2 :]}"
    literal = plain(json.dumps(text, ensure_ascii=False)[1:-1])  # as code, with control characters spelled out
    return "`" + literal.replace("|", "\\|").replace("`", "'") + "`" if text else ""


def _writers(logger: Logger) -> list[Any]:
    """Return the writers to TensorBoard and trackers."""
    outputs = [output for output in logger.output_formats if not isinstance(output, CSVOutputFormat)]
    return [output.writer if isinstance(output, TensorBoardOutputFormat) else output for output in outputs]
