"""rlenv check-gradient: an agent's expected gradient beside the true one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from agents.algorithms import SETTINGS

from .command import Command
from .names import Name, agent_class, short_name
from .options import COUNT, FROM_ZERO, agent_arg, as_json
from .parameters import Options, option


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
@Options(
    [
        option("--group-size", COUNT, "Episodes that share a prompt.", 3),
        option("--episodes", COUNT, "Episodes per rollout, in groups.", shown="--group-size"),
        option("--gamma", float, "Discount of the agent and of the objective.", 1.0),
        option("--turns", COUNT, "Turns of an episode; a reward ends each.", 1),
        option("--tokens", click.IntRange(min=2), "Vocabulary; token 0 ends a turn.", shown="3, with several turns 2"),
        option("--steps", COUNT, "Tokens of a turn, at most.", 2),
        *agent_arg,
        option("--seed", FROM_ZERO, "Seed of the world's policy and rewards.", 0),
    ]
)
@as_json
def check_gradient(agent_names: tuple[str, ...], turns: int, tokens: int | None, steps: int, **given: Any) -> None:
    """Compare the expected gradient of AGENTS with the true gradient, exactly.

    Every rollout of a world of a few answers goes through the agent by itself, weighed by its probability. The error is
    0 if there is no bias; in the right direction, the learning rate makes up for the scale. The noise is the variance
    of one rollout's gradient. The objective is the expected reward: maxrl, pkpo and gdpo have others.
    """
    import torch

    from agents.exact import World
    from agents.exact import check_gradient as check

    from .arguments import agent_arguments

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
