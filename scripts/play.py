"""rlenv play: sit in the agent's chair, or watch a policy in it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import click

from .config.command import Command
from .config.other_configs import PlayConfig

INTERRUPTED = 130  # exit code: 128 + SIGINT


@click.command(
    cls=Command,
    config=PlayConfig,
    examples={
        "rlenv play": "Sums, as the agent sees them",
        "rlenv play runs/NAME": "The same with the probabilities of a policy",
        "rlenv play runs/NAME --watch": "Watch it answer, token by token",
    },
    often={
        "What is played": ("verifier", "problems", "columns", "split"),
        "Who plays": ("watch", "episodes", "deterministic", "temperature", "top"),
        "What comes of it": ("as_json", "trust", "seed"),
    },
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
def play(config: PlayConfig, run: Path | None) -> None:
    """Choose the tokens yourself, in the environment of RUN or in one that the options describe.

    With RUN (a run folder, a checkpoint, or with --verifier any language model) the likeliest tokens are listed with
    their probabilities. The verifier judges the episode. In a pipe, lines of standard input are the moves.
    """
    from .config.options import with_task
    from .jobs.games import Game, open_subject

    of_policy = ("watch", "top", "temperature", "top_p", "policy_kwargs", "trust", "dtype")
    if run is None and (useless := next((name for name in of_policy if name in config.chosen), None)):
        raise ValueError(f"{config.flag(useless)} is about a policy; pass a run or a model: rlenv play RUN ...")
    if "deterministic" in config.chosen and not config.watch:
        raise ValueError("--deterministic and --stochastic say how the policy plays; add --watch")
    config = with_task(config)
    env, onlooker = open_subject(run, config)
    with closing(env):
        result = Game(env, onlooker, config).play()
    count = result["episodes"]
    reward = "" if count == 0 else f", mean reward {result['mean_reward']:g}"
    solved = "" if result["success_rate"] is None else f", solved {result['success_rate']:.0%}"
    click.echo(f"\n{count} episode{'' if count == 1 else 's'}{reward}{solved}  ({result['ended']})")
    if config.as_json:
        click.echo(json.dumps(result))
    if result["ended"] == "Ctrl-C":
        sys.exit(INTERRUPTED)
