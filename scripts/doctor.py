"""rlenv doctor: what the figures of runs say about them."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from .command import Command
from .reports.findings import Finding
from .reports.rules import examine_run

GRAVE = {"error": ("error",), "warning": ("error", "warning")}


@click.command(
    cls=Command,
    examples={
        "rlenv doctor runs/NAME": "What is wrong with a run, and what to change",
        "rlenv doctor runs/a runs/b --fail-on warning": "Exit code 1 if one of them has a warning",
    },
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "error"]),
    default=None,
    show_default="never",
    help="Exit with code 1 if a finding is at least this severe.",
)
@click.option("--all", "notes", is_flag=True, help="Show notes, too: what is normal, though it surprises.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object on the last line.")
def doctor(runs: tuple[Path, ...], fail_on: str | None, notes: bool, as_json: bool) -> None:
    """Say what is wrong with RUNS: the failure, its evidence and the option to change.

    RUNS are run folders of rlenv train, which may be over, stopped or still running. docs/symptoms.md explains each
    finding.
    """
    found = {str(run): examine_run(run, notes) for run in dict.fromkeys(runs)}
    if as_json:
        click.echo(json.dumps({run: [asdict(finding) for finding in findings] for run, findings in found.items()}))
    else:
        click.echo("\n\n".join(_text(run, findings) for run, findings in found.items()))
    grave = GRAVE.get(fail_on or "", ())
    sys.exit(any(finding.severity in grave for findings in found.values() for finding in findings))


def _text(run: str, findings: list[Finding]) -> str:
    """Return the findings of a run as plain text."""
    if not findings:
        return f"{run}: nothing found"
    return "\n".join([f"{run}:", *(line for finding in findings for line in ["", *_lines(finding)])])


def _lines(finding: Finding) -> list[str]:
    when = "" if finding.update is None else f" (update {finding.update})"
    return [
        f"  {finding.severity}: {finding.title}  [{finding.rule}]{when}",
        *_wrapped("evidence", finding.evidence),
        *_wrapped("fix", finding.fix),
    ]


def _wrapped(name: str, text: str) -> list[str]:
    indent = " " * 14
    return textwrap.wrap(f"    {name:<10}{text}", 110, subsequent_indent=indent, break_on_hyphens=False)
