"""rlenv: train a language model, or a controller, with reinforcement learning. Start with `rlenv train`."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from rlenv._checks import did_you_mean

from . import DISTRIBUTION
from .config.command import Group
from .process import torchrun
from .process.errors import USER, explain, one_line, own_traceback, reader_gone

COMMANDS = {  # name: its line in `rlenv --help`; the module of its name is imported when it is used
    "train": "Train an agent: a warm start, reinforcement learning, evaluation.",
    "sft": "Imitate a verifier's demonstrations, or the answers in a file.",
    "reward-model": "Learn from pairs which of two answers is better.",
    "evaluate": "Measure runs, checkpoints and models on held-out problems.",
    "report": "Show runs on one page: curves, completions, findings.",
    "doctor": "Say what is wrong with a run, and what to change.",
    "play": "Choose the tokens yourself, or watch a policy choose them.",
    "export": "Write the language model of a run as transformers loads it.",
    "compare": "Train several agents with several seeds, in one table.",
    "check-gradient": "Compare agents' gradients with the true one.",
    "lab": "Run an experiment about one claim.",
    "bench": "Time rlenv and other libraries in turn.",
    "verifiers": "List, show and attack verifiers.",
    "tasks": "List data sets that are tasks by name, and show their prompts.",
    "serve": "Offer a verifier to other libraries, as an OpenEnv server.",
    "info": "Print versions, devices and settings for a bug report.",
}
LONGEST = 960  # characters of a message
IN_SEVERAL = ("train", "sft", "evaluate")  # what torchrun may start
# Turn off other libraries' progress bars; they read these when they are imported.
NO_BARS = ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS")


class Commands(Group):
    """A group that prints errors of the user in one line (exit code 1 or 2), and bugs with their traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command and return it; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f".{name}", __package__), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command that is run; the error for an unknown one names the closest match."""
        if args[0][:1] != "-" and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS).strip() or "rlenv --help lists them"
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and exit; see the class about errors."""
        run: Any = super().main
        warnings.formatwarning = one_line
        if not os.isatty(2):  # standard error, where each state of a bar would be a line of a log
            os.environ |= {name: os.environ.get(name, "1") for name in NO_BARS}
        try:
            code = run(*args, standalone_mode=False, **extra)  # the exit code of ctx.exit(), if any
        except click.ClickException as error:
            _fail(_message(error), error.exit_code)
        except click.Abort as error:  # click makes it of a KeyboardInterrupt; see progress.Interrupt
            numbers = error.__cause__.args if error.__cause__ else ()
            _fail("aborted", 128 + (numbers[0] if numbers else signal.SIGINT))
        except Exception as error:
            if isinstance(error, BrokenPipeError) and reader_gone():
                sys.exit(1)
            explained = explain(error)
            if explained is None:
                sys.stderr = sys.__stderr__  # one of several processes is silent otherwise
                raise
            _fail(*explained, own_traceback(error))
        sys.exit(code if isinstance(code, int) else 0)


def _message(error: click.ClickException) -> str:
    """Return the line about a wrong command line; a setting without an option is written with another one."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from .config.defaults import advice

        if hint := advice(error.option_name, [str(each.name) for each in error.ctx.command.params]):
            return f"No such option {error.option_name!r}: {hint}"
    return error.format_message()


def _fail(message: str, code: int, before: str = "") -> NoReturn:
    """Print an error and exit; errors in the options, which are the same in all processes, once per machine."""
    if len(message) > LONGEST:  # it quotes what is in a file; the advice is at the end
        message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
    if code != USER or torchrun.number("LOCAL_RANK") == 0:
        with suppress(OSError):  # standard error may be closed
            click.echo(f"{before}Error: {message}", err=True, file=sys.__stderr__ if torchrun.count() > 1 else None)
    sys.exit(code)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
    examples={
        "rlenv train": "A language model learns arithmetic",
        "rlenv train --env CartPole-v1": "The same agent balances a pole",
        "rlenv evaluate runs/NAME": "Measure a run on held-out problems",
        "rlenv train --help": "The options that people use; with --help-all, all",
    },
)
@click.version_option(package_name=DISTRIBUTION)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Reinforcement learning for language models in a Gymnasium environment, and for classic control alike."""
    command = ctx.invoked_subcommand
    if torchrun.count() > 1 and command not in IN_SEVERAL:
        allowed = ", ".join(IN_SEVERAL)
        raise click.UsageError(f"{command} runs in one process: start it without torchrun ({allowed} may have several)")
    package = sys.modules[__name__.partition(".")[0]]
    if not hasattr(package, "__rlenv_package__"):  # rlenv on PyPI is another one, and may have overwritten this one
        raise click.ClickException(
            f"{package.__file__} is of another distribution, rlenv on PyPI; run: pip uninstall rlenv; "
            f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
        )
