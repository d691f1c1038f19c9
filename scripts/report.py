"""rlenv report: one page about one run or several, which opens from disk."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .config.command import Command
from .config.options import as_json
from .run.folder import REPORT


@click.command(
    cls=Command,
    examples={
        "rlenv report runs/NAME": "One run, in RUN/report.html",
        "rlenv report runs/a runs/b --out two.html": "Two runs side by side",
    },
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page, if not report.html of the run.",
)
@as_json
def report(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write one page about each RUN: curves, completions, configuration and the doctor's findings.

    RUN is the folder of rlenv train or rlenv compare. Runs that differ in their seed only share a curve with a band;
    other runs are side by side. The page needs no network.
    """
    from .reports.page import write_report

    if out is None:
        out = runs[0] / REPORT if len(runs) == 1 and runs[0].is_dir() else Path(REPORT)
    result = write_report(runs, out)
    click.echo(json.dumps(result) if as_json else f"Report: {out}")
