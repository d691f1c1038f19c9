"""rlenv doctor: the failures that the figures of runs show."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from .config.command import Command
from .config.options import as_json
from .reports.history import read_run
from .reports.rules import findings_of


@click.command(
    cls=Command,
    examples={
        "rlenv doctor runs/NAME": "What is wrong with a run, and what to change",
        "rlenv doctor runs/a runs/b --fail-on warning": "Exit code 1 if one of them has a warning",
    },
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--fail-on", type=click.Choice(["warning", "error"]), help="Exit with code 1 for a finding as severe.")
@as_json
def doctor(runs: tuple[Path, ...], fail_on: str | None, as_json: bool) -> None:
    """Report the failures of RUNS, each with its evidence and the option to change.

    RUNS are run folders of rlenv train, which may be over, stopped or still running.
    """
    by_run = {str(run): findings_of(read_run(run)) for run in dict.fromkeys(runs)}
    if as_json:
        click.echo(json.dumps({run: [asdict(finding) for finding in findings] for run, findings in by_run.items()}))
    else:
        for run, findings in by_run.items():
            click.echo(f"{run}:" if findings else f"{run}: nothing found")
            for each in findings:
                click.echo(f"  {each.severity}: {each.title}  [{each.rule}]")
                click.echo(f"    evidence  {each.evidence}\n    fix       {each.fix}\n")
    severities = {finding.severity for findings in by_run.values() for finding in findings}
    sys.exit(fail_on in severities or (fail_on == "warning" and "error" in severities))
