"""rlenv: train a language model, or a controller, with reinforcement learning. Start with `rlenv train`."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, NoReturn

import click

from .bench import bench
from .compare import compare
from .evaluate import evaluate
from .faults import explain, reader_gone, take_streams, thread_faults
from .lab import lab
from .sft import sft
from .train import train
from .verifiers import verifiers


class Commands(click.Group):
    """A group that tells the user's errors (one line, exit code 1 or 2) from its own faults (a traceback)."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and print errors in one line."""
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
            _stop(error.format_message(), error.exit_code)
        except click.Abort:
            _stop("aborted", 130)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and reader_gone():
                sys.exit(1)
            explained = explain(error)
            if explained is None:
                raise
            _stop(*explained)
        sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> NoReturn:
    with suppress(OSError):  # standard error may have gone, too
        click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def _check_neighbours() -> None:
    """Run the check that importing rlenv begins with, without what rlenv imports: some commands do not need it."""
    rlenv = find_spec("rlenv")
    if rlenv is None or rlenv.origin is None:
        raise ImportError("rlenv is not installed completely; run: pip install --force-reinstall --no-deps rlenv")
    check = run_path(str(Path(rlenv.origin).with_name("_neighbours.py")))["check_neighbours"]
    check("agents", "verifiers")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="rlenv")
def main() -> None:
    """Reinforcement learning for language models in a Gymnasium environment, and for classic control alike.

    \b
    rlenv train                          a language model learns arithmetic
    rlenv train --env CartPole-v1        the same agent balances a pole
    rlenv evaluate runs/NAME             measure a run on held-out problems
    rlenv compare --agents all           every agent with several seeds, in one table
    rlenv lab bandit                     an experiment that shows why
    rlenv bench trl-grpo                 ours and a peer, timed in turn
    rlenv verifiers lint arith           what a verifier pays for, and should not
    """
    try:
        _check_neighbours()
    except ImportError as error:
        raise click.ClickException(str(error)) from error


main.add_command(train)
main.add_command(sft)
main.add_command(evaluate)
main.add_command(compare)
main.add_command(lab)
main.add_command(bench)
main.add_command(verifiers)
