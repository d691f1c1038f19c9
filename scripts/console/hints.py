"""What an error about an unknown option says to somebody who knows its name in Python, TRL or stable-baselines3."""

from __future__ import annotations

from collections.abc import Collection

import click

from .completions import known

_PLACES = {"": "agent", "policy_kwargs": "policy"}  # of settings without an option: --agent-arg, --policy-arg


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
    if name not in known()["foreign"]:
        return f"pass --agent-arg {name}=..." if name in known()["agent_args"] and "agent_args" in options else ""
    ours, where, note = known()["foreign"][name]
    note = f", {note}" if note else ""
    if ours in options:
        return f"here it is --{ours.replace('_', '-')}{note}"
    place = _PLACES.get(where)
    return f"here it is --{place}-arg {ours}=...{note}" if f"{place}_args" in options else ""
