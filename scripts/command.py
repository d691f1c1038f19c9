"""How `--help` looks: options under headings, and examples to copy at its end."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

LARGEST = 2**63 - 1
ALL = "all options"  # in a context's `meta`, if they are asked for
LONGEST_DEFAULT = 24  # characters of one that `--help` shows: with more, most options need a further line


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
        if not self.examples:
            return
        with formatter.section("Examples"):
            for number, (line, about) in enumerate(self.examples.items()):
                gap = "\n" if number else ""
                indent = " " * formatter.current_indent
                formatter.write(f"{gap}{indent}# {about}\n{indent}{line}\n")


class Command(Examples, click.Command):
    """A command with examples, and with its options under the headings that `options` in parameters.py gives them.

    No option takes a number that is not finite or has more than 64 bits, or bytes that are not UTF-8.

    Args:
        often: {heading: names of options} that `--help` shows, a sentence and a default each; `--help-all` shows all.
            Without it, `--help` does.
    """

    def __init__(self, *args: Any, often: Mapping[str, Sequence[str]] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.often = dict(often or {})

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with `--help-all` if `--help` shows a part of them."""
        every = super().get_params(ctx)
        return [*every[:-1], _help_all(len(every)), every[-1]] if self.often else every

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a second --verifier, of which click would take the last; see the base class about the rest."""
        if sum(arg.partition("=")[0] == "--verifier" for arg in args) > 1:
            several = "name several in one, with their weights: --verifier exact,rewards.py:short=0.5"
            raise click.UsageError(f"--verifier is given twice; {several}", ctx)
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the options, and check them.

        Raises:
            BadParameter: naming the first that no option takes.
        """
        context = super().make_context(*args, **more)
        for parameter in self.params:
            reason = _no_value(context.params.get(str(parameter.name)))
            if reason:
                raise click.BadParameter(reason, context, parameter)
        return context

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the headings in the order in which they first occur."""
        if self.often and ALL not in ctx.meta:
            self._format_often(ctx, formatter)
            return
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "heading", None) or "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _format_often(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        every = self.get_params(ctx)
        by_name = {parameter.name: parameter for parameter in every}
        sections = {heading: [by_name[name] for name in names] for heading, names in self.often.items()}
        next(reversed(sections.values())).extend(every[-2:])  # --help-all and --help
        for heading, parameters in sections.items():
            records = filter(None, (parameter.get_help_record(ctx) for parameter in parameters))
            with formatter.section(heading):
                formatter.write_dl([(option, _first_sentence(about)) for option, about in records])


def _help_all(count: int) -> click.Option:
    """Return the option that shows all so many options and exits."""

    def show(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            ctx.meta[ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show,
        help=f"Show all {count} options and exit.",
    )  # fmt: skip


def _first_sentence(about: str) -> str:
    """Return the first sentence of an option's help, and its default if that is a value."""
    text, _, extra = about.partition("  [")
    first = re.split(r"(?<=\w)[.;] ", text)[0].rstrip(" .,")
    value = re.match(r"default: (?:\(([^)]+)\)|([^;\]]+))", extra)
    shown = value and (value[2] or re.sub(r"([,;] | \().*", ", ...", value[1]))
    return f"{first}  [{shown}]" if shown and len(shown) <= LONGEST_DEFAULT else first


def _no_value(value: Any) -> str:
    """Return why a value, or one in a tuple, is none that an option takes; empty if it is one."""
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
    """A group of such commands, listed in the order of their definition."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)
