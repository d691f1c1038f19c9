"""rlenv serve: offer a verifier to other libraries, as an OpenEnv server."""

from __future__ import annotations

import click

from .config.command import Command
from .config.other_configs import ServeConfig


@click.command(
    cls=Command,
    config=ServeConfig,
    examples={
        "rlenv serve --verifier countdown": "One completion per episode, at http://127.0.0.1:8000",
        "rlenv serve --verifier guess --port 8001 --max-sessions 16": "A dialogue: one step per turn",
        "rlenv serve --verifier rewards.py:f --problems FILE": "Your own reward function",
    },
)
def serve(config: ServeConfig) -> None:
    """Offer a verifier as an OpenEnv server, until Ctrl-C or SIGTERM.

    An action is a turn of the model, an observation what it reads next; the last one has the verdict. docs/worlds.md
    has a client to copy.
    """
    from rlenv._checks import require
    from rlenv.verifiers import make_verifier

    judge = make_verifier(config.verifier, **config.verifier_kwargs)  # before the imports, which take seconds
    require("openenv.core.env_server", "openenv", "rlenv serve")
    from rlenv.openenv_server import ServerLimits, listen, make_app
    from rlenv.openenv_server import serve as run
    from rlenv.posing import Posed
    from rlenv.problems import listed_problems

    bound = listen(config.host, config.port, for_others=bool(config.token) or config.insecure)
    limits = ServerLimits(config.max_sessions, config.idle_timeout, config.max_message_bytes, config.token or None)
    posed = Posed(judge, listed_problems(config))
    try:
        posed.problem(0)  # whatever is wrong with the problems is said before anybody connects
        app = make_app(posed, limits)
        address = f"http://{config.host}:{bound.getsockname()[1]}"
        click.echo(f"{config.verifier} at {address}, {config.max_sessions} sessions at once; Ctrl-C ends")
        run(app, bound)
        click.echo("ended")
    finally:
        posed.close()
        bound.close()
