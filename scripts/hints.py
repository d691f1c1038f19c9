"""What an error about an unknown option says to somebody who knows the option's name in TRL."""

from __future__ import annotations

import click


def hint_of(error: click.ClickException) -> str:
    """Return the message for an option that has another name here; empty for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    from agents import trl_names

    options = [str(option.name) for option in error.ctx.command.params]
    said = trl_names.option_hint(error.option_name.lstrip("-").replace("-", "_"), options)
    return f"No such option {error.option_name!r}: {said}" if said else ""
