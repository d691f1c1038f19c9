"""rlenv check-gradient: an agent's expected gradient beside the true one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from agents.algorithms import SETTINGS

from .command import Command
from .names import Name, agent_class, short_name
from .options import agent_arg


@click.command(
    "check-gradient",
    cls=Command,
    examples={
        "rlenv check-gradient rloo grpo": "Two agents with their defaults",
        "rlenv check-gradient my_file.py:MyAgent --episodes 4 --group-size 2": "Your own, with two prompts per rollout",
        "rlenv check-gradient ppo --gamma 0.9 --turns 2 --agent-arg gae_lambda=0.5": "Discounted, in two turns",
        "rlenv check-gradient dapo --tokens 2": "Resampling plays many rollouts; a smaller world has fewer",
    },
)
@click.argument("agent_names", metavar="AGENTS...", nargs=-1, required=True, type=Name(SETTINGS.keys))
@click.option("--group-size", type=click.IntRange(min=1), default=3, help="Episodes that share a prompt.")
@click.option(
    "--episodes", type=click.IntRange(min=1), default=None, show_default="--group-size",
    help="Episodes per rollout, in groups of different prompts.",
)  # fmt: skip
@click.option("--gamma", type=float, default=1.0, help="Discount of the agent and of the objective.")
@click.option("--turns", type=click.IntRange(min=1), default=1, help="Turns of an episode; a reward ends each.")
@click.option(
    "--tokens", type=click.IntRange(min=2), default=None, show_default="3, with several turns 2",
    help="Vocabulary; token 0 ends a turn.",
)  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=2, help="Tokens of a turn, at most.")
@agent_arg
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the world's policy and rewards.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on the last line.")
def check_gradient(agent_names: tuple[str, ...], turns: int, tokens: int | None, steps: int, **given: Any) -> None:
    """Compare the expected gradient of AGENTS with the true gradient, exactly.

    Every rollout of a world of a few answers goes through the agent by itself, weighed by its probability. The error is
    0 if there is no bias; in the right direction, the learning rate makes up for the scale. The noise is the variance
    of one rollout's gradient. The objective is the expected reward: maxrl, pkpo and gdpo have others.
    """
    import torch

    from agents.exact import World
    from agents.exact import check_gradient as check

    from .settings import agent_arguments

    torch.set_num_threads(1)  # the tensors are tiny
    world = World(tokens or (3 if turns == 1 else 2), steps, end=0, turns=turns)
    found = {}
    for name in agent_names:
        cls = agent_class(name)
        settings = agent_arguments(name, cls, {key: given[key] for key in ("gamma", "agent_args")})
        one = check(cls, given["group_size"], given["episodes"], world, seed=given["seed"], **settings)
        found[short_name(name)] = asdict(one) | {"meaning": one.meaning}
        if not given["as_json"]:
            click.echo(f"{short_name(name):<20} {one}")
    if given["as_json"]:
        click.echo(json.dumps(found))
