"""rlenv check-gradient: an agent's expected gradient beside the true one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click

from rlenv.agents.algorithms.options import SETTINGS

from .config.command import Command
from .config.names import Name, agent_class, short_name
from .config.other_configs import Discounted, GradientConfig


@click.command(
    "check-gradient",
    cls=Command,
    config=GradientConfig,
    examples={
        "rlenv check-gradient rloo grpo": "Two agents with their defaults",
        "rlenv check-gradient my_file.py:MyAgent --agent-arg num_minibatches=4": "Your own, with four steps per pass",
        "rlenv check-gradient ppo --gamma 0.9 --turns 2 --agent-arg gae_lambda=0.5": "Discounted, in two turns",
        "rlenv check-gradient dapo --tokens 2 --steps 1 --agent-arg max_rounds=2": "Two prompts for it",
    },
)
@click.argument("agent_names", metavar="AGENTS...", nargs=-1, required=True, type=Name(SETTINGS.keys))
def check_gradient(config: GradientConfig, agent_names: tuple[str, ...]) -> None:
    """Compare the expected gradient of AGENTS with the true gradient, exactly, and their updates with PPO's.

    Every rollout of a world of a few answers goes through the agent by itself, weighed by its probability. The error is
    0 without bias; in the right direction, the learning rate makes up for the scale. The noise is the variance
    of one rollout's gradient. The objective is the expected reward: maxrl, pkpo and gdpo have others.

    On some rollouts, the agent then makes its updates, of two passes in two parts unless said otherwise. A second line
    compares the gradient with that of PPO's clipped ratio. The exit code is 1 after a FAULT: batches that do not add up
    to the rollout, a clip that is missing or the wrong way, a wrong discount, a wrong claim of the class.
    """
    import torch

    from rlenv.agents.exact import World
    from rlenv.agents.gradient_check import check_gradient as check

    from .config.arguments import agent_arguments

    torch.set_num_threads(1)  # the tensors are tiny
    tokens, steps, turns = config.tokens, config.steps, config.turns
    chosen = tokens is not None or steps is not None or turns > 1
    world = World(tokens or 2, steps or (3 if turns == 1 else 2), end=0, turns=turns) if chosen else None
    checks = {}
    for name in agent_names:
        cls = agent_class(name)
        settings = agent_arguments(config.into(Discounted), cls, name)
        one = check(cls, config.group_size, config.episodes, world, seed=config.seed, **settings)
        checks[short_name(name)] = one
        if not config.as_json:
            click.echo(f"{short_name(name):<20} {one}\n{'':<20} {one.update}")
    if config.as_json:
        click.echo(json.dumps({name: one.as_dict() for name, one in checks.items()}))
    else:
        click.echo(f"checked: {_listed({name: one.checked for name, one in checks.items()})}")
        click.echo(f"not checked: {_listed({name: one.unchecked for name, one in checks.items()})}")
    if any(one.faults for one in checks.values()):
        raise SystemExit(1)


def _listed(by_agent: Mapping[str, Sequence[str]]) -> str:
    """Return the items of all agents, then each other item with its agents."""
    items = dict.fromkeys(item for items in by_agent.values() for item in items)
    lacking = {item: [name for name, items in by_agent.items() if item not in items] for item in items}
    listed = []
    for item, others in sorted(lacking.items(), key=lambda each: len(each[1])):  # of most agents first
        names = [name for name in by_agent if name not in others]
        of = f"all but {', '.join(others)}" if len(others) < len(names) else ", ".join(names)
        listed.append(f"{item} ({of})" if others else item)
    return "; ".join(listed)
