"""What an error about an unknown option says to somebody who knows the option's name in TRL."""

from __future__ import annotations

import click

from .completions import known


def hint_of(error: click.ClickException) -> str:
    """Return the message for an option that has another name here; empty for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    name = error.option_name.lstrip("-").replace("-", "_")
    if name not in known()["trl"]:
        return ""
    from agents.core import trl_names

    said = trl_names.option_hint(name, [str(option.name) for option in error.ctx.command.params])
    return f"No such option {error.option_name!r}: {said}" if said else ""
