"""rlenv play: sit in the agent's chair, or watch a policy in it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from .config.command import Command
from .config.options import common, environment, text
from .config.parameters import flag_of, given_by_user
from .evaluate import of_a_policy

INTERRUPTED = 130  # exit code: 128 + SIGINT


@click.command(
    cls=Command,
    examples={
        "rlenv play": "Sums, as the agent sees them",
        "rlenv play runs/NAME": "The same with the probabilities of a policy",
        "rlenv play runs/NAME --watch": "Watch it answer, token by token",
        "rlenv play --env CartPole-v1": "0 pushes left, 1 pushes right",
    },
    often={
        "What is played": ("env_id", "verifier", "problems", "column_args", "split"),
        "Who plays": ("watch", "episodes", "deterministic", "temperature", "top"),
        "What comes of it": ("as_json", "trust", "seed"),
    },
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--watch", is_flag=True, help="Watch the policy of RUN play, step by step, instead of playing.")
@click.option(
    "--episodes", type=click.IntRange(min=1), default=None, show_default="1 with --watch, else until /quit",
    help="Episodes to play.",
)  # fmt: skip
@click.option("--top", type=click.IntRange(1, 26), default=8, help="How many of the likeliest tokens are listed.")
@of_a_policy
@environment
@text.without("temperature", "curriculum", "prompt_choice", "activation_checkpointing")
@common
def play(run: Path | None, **given: Any) -> None:
    """Choose the actions yourself, in the environment of RUN or in one that the options describe.

    With RUN (a run folder, a checkpoint, or with --verifier any language model) the likeliest tokens are listed with
    their probabilities. The verifier judges the episode. In a pipe, lines of standard input are the moves.
    """
    import torch

    from rlenv.agents.rollouts.action_probabilities import Choices

    from .jobs.games import Game, open_subject, play_episodes

    _check(run, given)
    env, onlooker = open_subject(run, given)
    try:
        game = Game(env, given["top"])
        draw = None
        if given["watch"]:
            generator = torch.Generator().manual_seed(given["seed"])
            draw = partial(Choices.draw, deterministic=given["deterministic"], generator=generator)
        else:
            click.echo(game.help)
        wanted = given["episodes"] or (1 if given["watch"] else None)
        result = play_episodes(game, onlooker, draw, given["seed"], wanted)
    finally:
        env.close()
    count = result["episodes"]
    reward = "" if count == 0 else f", mean reward {result['mean_reward']:g}"
    solved = "" if result["success_rate"] is None else f", solved {result['success_rate']:.0%}"
    click.echo(f"\n{count} episode{'' if count == 1 else 's'}{reward}{solved}  ({result['ended']})")
    if given["as_json"]:
        click.echo(json.dumps(result))
    if result["ended"] == "Ctrl-C":
        click.get_current_context().exit(INTERRUPTED)


def _check(run: Path | None, given: dict[str, Any]) -> None:
    """Refuse options that have no effect."""
    of_policy, of_env = (
        ("watch", "top", "temperature", "top_p", "policy_args", "trust", "dtype"),
        ("env_id", "env_args"),
    )
    if useless := next(filter(given_by_user, of_policy if run is None else of_env), None):
        why = "is about a policy; pass a run or a model: rlenv play RUN ..."
        why = why if run is None else "is for playing without a run; a run names its own environment"
        raise ValueError(f"{flag_of(useless)} {why}")
    if given_by_user("deterministic") and not given["watch"]:
        raise ValueError("--deterministic and --stochastic say how the policy plays; add --watch")
