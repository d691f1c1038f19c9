"""rlenv verifiers: list, show and lint verifiers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from .config.command import Group
from .config.names import VERIFIER
from .config.options import as_json
from .config.other_configs import Judged
from .process.terminal import console, plain

if TYPE_CHECKING:
    from rlenv.forms import ProblemFile
    from rlenv.verifiers import Problem
    from rlenv.verifiers.lint.report import Report


@click.group(
    cls=Group,
    examples={
        "rlenv verifiers list": "Every verifier that has a name",
        "rlenv verifiers show arith": "Its problems and verdicts",
        "rlenv verifiers lint rewards.py:f --problems FILE": "Attack your own",
    },
)
def verifiers() -> None:
    """List verifiers, show their problems and verdicts, and lint them.

    A verifier is a name ("arith"), a name with its first argument ("regex:[0-9]+"), or "module:Name", where Name is a
    Verifier or a reward function f(prompts, completions, **columns). docs/verifiers.md says how to write one.
    """


@verifiers.command(
    "list",
    examples={
        "rlenv verifiers list": "Names, what they judge, where they come from",
        "rlenv verifiers list --json": "The same for a program",
    },
)
@as_json
def list_command(as_json: bool) -> None:  # fmt: skip
    """List the verifiers that have a name, including installed packages."""
    from rlenv.verifiers.lint.shown import summaries

    rows = summaries()
    if as_json:
        click.echo(json.dumps(rows))
    else:
        _show(rows, "name", "summary", "from", "missing")


def _show(rows: Sequence[Mapping[str, Any]], *columns: str) -> None:
    """Print these columns of the rows as a table."""
    from rlenv.verifiers.text import shorten

    def shown(name: str, value: Any) -> str:
        if name in ("prompt", "completion"):
            return shorten(value, 100)
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(plain(shown(name, row[name]))) for name in columns))
    console().print(table)


@verifiers.command(
    config=Judged,
    examples={
        "rlenv verifiers show arith": "Three problems, with right, wrong and empty answers judged",
        "rlenv verifiers show countdown -n 5 --seed 1 --verifier-arg numbers=3": "Five others, of another setting",
        "rlenv verifiers show rewards.py:f --problems FILE --completion 42": "Your own, with an answer of yours",
    },
)
@click.argument("name", shell_complete=VERIFIER.shell_complete)
@click.option("-n", "--count", type=click.IntRange(min=1), default=3, help="Problems to show.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the problems.")
@click.option("--completion", "completions", multiple=True, help="A completion to judge as well.")
@as_json
def show(
    config: Judged, name: str, count: int, seed: int, completions: tuple[str, ...], as_json: bool
) -> None:  # fmt: skip
    """Show problems of the verifier NAME, with its verdicts on a right, a wrong and an empty answer."""
    from rlenv.verifiers import make_verifier
    from rlenv.verifiers.dialogues import opened
    from rlenv.verifiers.lint.shown import arguments_of, some_problems, verdicts_on

    verifier = make_verifier(name, **config.verifier_kwargs)
    problems = list(opened(verifier, list(islice(from_file(config) or (), count))))
    rows = verdicts_on(verifier, problems or some_problems(verifier, count, seed), completions)
    if as_json:
        click.echo(json.dumps(rows))
        return
    _show(rows, "prompt", "kind", "completion", "reward", "success", "status", "reason")
    if arguments := arguments_of(verifier):
        click.echo(f"--verifier-arg, with defaults: {arguments}")


def from_file(config: ProblemFile) -> Sequence[Problem] | None:
    """Return the problems of --problems; None without the option."""
    if (config.problems, config.columns, config.prompt_template) == (None, {}, None):
        return None
    from rlenv.problems import listed_problems  # slow

    return listed_problems(config)


@verifiers.command(
    config=Judged,
    examples={
        "rlenv verifiers lint countdown": "Right answers must be paid for, wrong ones must not",
        "rlenv verifiers lint rewards.py:f --problems FILE": "Your own, on your problems",
        "rlenv verifiers lint --all --json": "Every verifier that needs no argument, for a program",
    },
)
@click.argument("names", nargs=-1, shell_complete=VERIFIER.shell_complete)
@click.option("--all", "everything", is_flag=True, help="Lint every verifier that needs no arguments.")
@as_json
def lint(config: Judged, names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Check the verifiers NAMES: right answers must be accepted, wrong ones rejected.

    Each verifier judges its demonstrations and right probes, which must be successes, and wrong completions, which must
    not: wrong answers, and eight attacks, such as the prompt again, all options listed, several answers, two boxes,
    100,000 characters, and digits of other scripts. A list of answers must not earn a part for the right one in it.
    Verdicts must be fast and must not depend on order or batch.

    The exit code is 0 if all rules hold, else 1.
    """
    from rlenv.verifiers import list_verifiers, make_verifier
    from rlenv.verifiers.dialogues import opened
    from rlenv.verifiers.lint.report import lint as examine

    if everything == bool(names):
        raise ValueError("pass the names of verifiers, or --all")
    problems, reports, skipped = from_file(config), [], {}
    for name in list_verifiers() if everything else names:
        try:
            verifier = make_verifier(name, **config.verifier_kwargs)
            listed = None if problems is None else opened(verifier, problems)
            reports.append(examine(verifier, listed, name))
        except ValueError as error:
            if not everything:
                raise
            skipped[name] = str(error)  # it needs arguments
    if as_json:
        click.echo(json.dumps({"verifiers": [report.as_dict() for report in reports], "skipped": skipped}))
    else:
        if reports:
            counts = ("problems", "attacks", "false_accepts", "honest", "false_rejects")
            _show([report.as_dict() for report in reports], "verifier", *counts, "median", "passed")
        notes = [f"{report.verifier}: {note}" for report in reports for note in _notes(report)]
        click.echo("\n".join([*notes, *(f"{name}: not linted: {reason}" for name, reason in skipped.items())]))
    sys.exit(0 if all(report.passed for report in reports) else 1)


def _notes(report: Report) -> Iterator[str]:
    """Yield lines about the declared weaknesses, the checks that were left out, and the findings."""
    yield from (f"declared: {form!r} is paid for, {count} times" for form, count in report.declared.items())
    if report.without_demonstration:
        yield (
            f"{report.without_demonstration} of {report.problems} problems have no reference answer: whether right "
            "answers to them are paid for was not checked; if another column has them, add --column answer=NAME"
        )
    if report.partial:
        yield f"{report.partial} attacks earn part of a success, at most {report.most:g}"
    for finding in report.findings:
        case = f"{finding.problem} <- {finding.completion}" if finding.completion else ""
        reward = "" if finding.reward is None else f"reward {finding.reward:g}, {finding.times} times"
        yield f"{finding.rule}: {'; '.join(filter(None, (finding.family, finding.explanation, case, reward)))}"
