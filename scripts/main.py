"""rlenv: train a language model, or a controller, with reinforcement learning. Start with `rlenv train`."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import click

from .bench import bench
from .compare import compare
from .evaluate import evaluate
from .lab import lab
from .sft import sft
from .train import train
from .verifiers import verifiers

OURS = ("rlenv", "agents", "verifiers", "_rlenv_benchmarks", __name__.split(".")[0])


class Commands(click.Group):
    """A group that tells bad input (one line, exit code 2) from its own faults (a traceback)."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and print errors in one line."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            code = run(*args, standalone_mode=False, **extra)  # the exit code of ctx.exit(), if any
        except click.ClickException as error:
            _stop(error.format_message(), error.exit_code)
        except click.Abort:
            _stop("aborted", 130)
        except ValueError as error:
            if not _raised_by_us(error):
                raise
            _stop(str(error), 2)
        except RuntimeError as error:
            from agents import VerifierError  # whoever raises it has imported the package already

            if not isinstance(error, VerifierError):
                raise
            _stop(str(error), 1)
        sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def _raised_by_us(error: BaseException) -> bool:
    """Tell whether our own code raised the error; a library's ValueError is a fault and stays loud."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__", "").split(".")[0] in OURS


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
        importlib.import_module("rlenv")  # checks first that `agents` and `verifiers` are ours
    except ImportError as error:
        raise click.ClickException(str(error)) from error


main.add_command(train)
main.add_command(sft)
main.add_command(evaluate)
main.add_command(compare)
main.add_command(lab)
main.add_command(bench)
main.add_command(verifiers)
