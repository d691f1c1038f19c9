"""How `--help` looks: options under headings, and examples to copy at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .task_options import fill_in

LARGEST = 2**63 - 1
ALL = "all options"  # in a context's `meta`, if they are asked for


class Examples:
    """Adds examples to a click command.

    Args:
        examples: one to four lines for a shell, each with what it does; a test parses every one.
    """

    def __init__(self, *args: Any, examples: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = dict(examples or {})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each as a comment and a line that is never wrapped."""
        with formatter.section("Examples"):
            formatter.write_text("\n\n".join(f"\b\n# {about}\n{line}" for line, about in self.examples.items()))


class Command(Examples, click.Command):
    """A command with examples, and with its options under the headings of their groups.

    No option takes a number that is not finite or has more than 64 bits, or bytes that are not UTF-8.

    Args:
        often: {heading: names of options} that `--help` shows; `--help-all` shows all. Without it, `--help` does.
    """

    def __init__(self, *args: Any, often: Mapping[str, Sequence[str]] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.often = dict(often or {})

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with `--help-all` if `--help` shows a part of them."""
        every = super().get_params(ctx)
        return [*every[:-1], HELP_ALL, every[-1]] if self.often else every

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, with those of a task, and check them.

        Raises:
            BadParameter: naming the first that no option takes.
            UsageError: for a second --verifier, of which click would take the last.
        """
        if sum(arg.partition("=")[0] == "--verifier" for arg in args) > 1:
            several = "name several in one, with their weights: --verifier exact,rewards.py:short=0.5"
            raise click.UsageError(f"--verifier is given twice; {several}", ctx)
        left = super().parse_args(ctx, args)
        fill_in(ctx)
        for parameter in self.params:
            if reason := _no_value(ctx.params.get(str(parameter.name))):
                raise click.BadParameter(reason, ctx, parameter)
        return left

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the headings in the order in which they first occur."""
        usual = {name: heading for heading, names in self.often.items() for name in (*names, "help_all")}
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading, record = getattr(parameter, "heading", "Options"), parameter.get_help_record(ctx)
            if self.often and ALL not in ctx.meta:
                heading = usual.get(str(parameter.name), "")
            if record is not None and heading:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _show_all(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options, and exit.",
)


def _no_value(value: Any) -> str:
    """Return the fault of a value, or of one in a tuple, that no option takes; empty for any other."""
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(_no_value, value)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, got {value}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"must be at most {LARGEST}, got {value}"
    if isinstance(value, (str, Path)) and any("\ud800" <= character <= "\udfff" for character in str(value)):
        shown = str(value).encode("utf-8", "backslashreplace").decode()
        return f"must be text in UTF-8, got '{shown}'; rename it, or type another"
    return ""


class Group(Examples, click.Group):
    """A group of such commands."""

    command_class = Command
