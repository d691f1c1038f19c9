"""What an error about an unknown option says to somebody who knows its name in Python, TRL or stable-baselines3."""

from __future__ import annotations

from collections.abc import Collection

import click

from .completions import known


def hint_of(error: click.ClickException) -> str:
    """Return the message for an option that has another name here; empty for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    name = error.option_name.lstrip("-").replace("-", "_")
    said = said_of(name, [str(option.name) for option in error.ctx.command.params])
    return f"No such option {error.option_name!r}: {said}" if said else ""


def said_of(name: str, options: Collection[str]) -> str:
    """Return how a setting is written on the command line, given a name without an option; empty for unknown names.

    Args:
        name: such as "num_generations", "n_steps" or "clip_range".
        options: parameter names of the command.
    """
    if name in known()["foreign"]:  # otherwise agents is not imported, which takes seconds
        from agents.core import sb3_names, trl_names

        return trl_names.option_hint(name, list(options)) or sb3_names.option_hint(name, options)
    return f"pass --agent-arg {name}=..." if name in known()["agent_args"] and "agent_args" in options else ""
