"""How `--help` looks: options under headings, and examples to copy at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click


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
    """A command with examples, and with its options under the headings that `options` in options.py gives them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the headings in the order in which they first occur."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "heading", None) or "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Group(Examples, click.Group):
    """A group of such commands, listed in the order of their definition."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)
