"""How `--help` looks: options under headings, and examples to copy at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .parameters import no_value, option_of

if TYPE_CHECKING:
    from .base import Config

ALL = "all options"  # in a context's `meta`, if they are asked for


class Examples:
    """Adds examples to a click command.

    Args:
        examples: one to four lines for a shell, each with its purpose; a test parses every one.
    """

    def __init__(self, *args: Any, examples: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = dict(examples or {})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each as a comment and a line that is never wrapped."""
        with formatter.section("Examples"):
            formatter.write_text("\n\n".join(f"\b\n# {about}\n{line}" for line, about in self.examples.items()))


class Command(Examples, click.Command):
    """A command with examples, whose options are the fields of a config; it is called with the config.

    No option takes a number that is not finite or has more than 64 bits, or bytes that are not UTF-8.

    Args:
        config: of the job; None for a command whose options are its own.
        often: {heading: names of options} that `--help` shows; `--help-all` shows all. Without it, `--help` does.
    """

    def __init__(
        self,
        *args: Any,
        config: type[Config] | None = None,
        often: Mapping[str, Sequence[str]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.config, self.often = config, dict(often or {})
        if config is not None:
            from .base import options_of  # it reads the settings of agents, which `rlenv --help` does not need

            options = options_of(config)
            self.params += [*map(option_of, options.values()), *([CONFIG] if "device" in options else [])]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with `--help-all` if `--help` shows a part of them."""
        every = super().get_params(ctx)
        return [*every[:-1], HELP_ALL, every[-1]] if self.often else every

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options into the config, the command line over a file, and check them.

        Raises:
            BadParameter: naming the first value that no option takes.
            UsageError: for a second --verifier, of which click would take the last; a missing option.
        """
        if sum(arg.partition("=")[0] == "--verifier" for arg in args) > 1:
            several = "name several in one, with their weights: --verifier exact,rewards.py:short=0.5"
            raise click.UsageError(f"--verifier is given twice; {several}", ctx)
        left = super().parse_args(ctx, args)
        for parameter in self.params:
            if reason := no_value(ctx.params.get(str(parameter.name))):
                raise click.BadParameter(reason, ctx, parameter)
        if self.config is not None and not ctx.resilient_parsing:
            ctx.params["config"] = self._config(ctx, self.config)
        return left

    def _config(self, ctx: click.Context, cls: type[Config]) -> Config:
        """Return the config of this command line; its options are no longer parameters."""
        from .base import by_field, check_free, options_of, overlaid, read_file

        file: Path | None = ctx.params.pop("config_file", None)
        options = options_of(cls)
        source = {name: ctx.get_parameter_source(name) for name in options}
        values = {name: ctx.params.pop(name) for name in options}
        typed = {name for name in values if source[name] is ParameterSource.COMMANDLINE}
        values = {name: values[name] for name in values if name in typed or source[name] is ParameterSource.ENVIRONMENT}
        if file is not None and "resume" in typed:
            raise click.UsageError("--config and --resume exclude each other", ctx)
        values |= {name: dict(each) for name, each in values.items() if options[name].kind == "table"}
        check_free("--agent-arg", values.get("settings", ()), options)
        config = cls(**overlaid({} if file is None else read_file(cls, file), by_field(cls, values)))
        config.typed = frozenset(typed)
        if missing := next((one for name, one in options.items() if one.required and name not in config.chosen), None):
            raise click.UsageError(f"Missing option {missing.option!r}.", ctx)
        return config

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the headings in the order in which they first occur; those without one are last."""
        usual = {name: heading for heading, names in self.often.items() for name in (*names, "help_all")}
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading, record = getattr(parameter, "heading", "Options"), parameter.get_help_record(ctx)
            if self.often and ALL not in ctx.meta:
                heading = usual.get(str(parameter.name), "")
            if record is not None and heading:
                sections.setdefault(heading, []).append(record)
        for heading, records in sorted(sections.items(), key=lambda section: section[0] == "Options"):
            with formatter.section(heading):
                formatter.write_dl(records)


def _show_all(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
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


CONFIG = click.Option(
    ["--config", "config_file"],
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML or JSON file with options of this command; the command line wins.",
)
CONFIG.heading = "Every run"  # type: ignore[attr-defined]


class Group(Examples, click.Group):
    """A group of such commands."""

    command_class = Command
