"""rlenv completion: the script with which a shell completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .config.command import Command


@click.command(
    cls=Command,
    examples={
        'eval "$(rlenv completion bash)"': "Complete in this bash; the same line in ~/.bashrc for every bash",
        'eval "$(rlenv completion zsh)"': "The same for zsh, after compinit",
        "rlenv completion fish > ~/.config/fish/completions/rlenv.fish": "For fish, once",
    },
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes rlenv in SHELL: commands, options, agents, verifiers.

    Completion of a verifier's name lists those of installed plugins too, without importing them.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(ctx.find_root().command, {}, "rlenv", "_RLENV_COMPLETE").source())
