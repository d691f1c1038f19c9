"""rlenv: train a language model, or a controller, with reinforcement learning. Start with `rlenv train`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, NoReturn

import click

from .bench import bench
from .compare.command import compare
from .evaluation.command import evaluate
from .export import export
from .faults import explain, reader_gone, take_streams, thread_faults
from .hints import hint_of
from .lab import lab
from .reward_model import reward_model
from .sft import sft
from .train import train
from .verifiers import verifiers


class Commands(click.Group):
    """A group that prints errors of the user in one line (exit code 1 or 2), and bugs with their traceback."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; see the class about errors."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            take_streams()
            with thread_faults() as faults:
                code = run(*args, standalone_mode=False, **extra)  # the exit code of ctx.exit(), if any
            for fault in faults:
                raise fault
        except click.ClickException as error:
            _fail(hint_of(error) or error.format_message(), error.exit_code)
        except click.Abort as error:  # click makes it of a KeyboardInterrupt; see progress.Interrupt
            said = error.__cause__.args if error.__cause__ else ()
            _fail("aborted", 128 + (said[0] if said else signal.SIGINT))
        except Exception as error:
            if isinstance(error, BrokenPipeError) and reader_gone():
                sys.exit(1)
            explained = explain(error)
            if explained is None:
                raise
            _fail(*explained)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    with suppress(OSError):  # standard error may be closed
        click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def _check_packages() -> None:
    """Run the check with which rlenv/__init__.py begins, without importing rlenv, which some commands do not need."""
    spec = find_spec("rlenv")
    if spec is None or spec.origin is None:
        raise ImportError("rlenv is not installed completely; run: pip install --force-reinstall --no-deps rlenv")
    run_path(str(Path(spec.origin).with_name("_neighbours.py")))["check_neighbours"]("agents", "verifiers")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="rlenv")
def main() -> None:
    """Reinforcement learning for language models in a Gymnasium environment, and for classic control alike.

    \b
    rlenv train                          a language model learns arithmetic
    rlenv train --env CartPole-v1        the same agent balances a pole
    rlenv sft --problems FILE            imitate the answers in a file
    rlenv reward-model --pairs FILE      learn which of two answers is better
    rlenv evaluate runs/NAME             measure a run on held-out problems
    rlenv export runs/NAME FOLDER        its model, as transformers loads it
    rlenv compare --agents all           every agent with several seeds, in one table
    rlenv lab bandit                     an experiment about one claim
    rlenv bench trl-grpo                 rlenv and another library, timed in turn
    rlenv verifiers lint arith           attack a verifier with wrong answers
    """
    try:
        _check_packages()
    except ImportError as error:
        raise click.ClickException(str(error)) from error


for command in (train, sft, reward_model, evaluate, export, compare, lab, bench, verifiers):
    main.add_command(command)
