"""rlenv serve: offer a verifier to other libraries, as an OpenEnv server."""

from __future__ import annotations

from typing import Any

import click

from .config.command import Command
from .config.names import Name, verifiers
from .config.options import COUNT, problem_file, verifier_arg
from .config.parameters import Options, option


@click.command(
    cls=Command,
    examples={
        "rlenv serve --verifier countdown": "One completion per episode, at http://127.0.0.1:8000",
        "rlenv serve --verifier guess --port 8001 --max-sessions 16": "A dialogue: one step per turn",
        "rlenv serve --verifier rewards.py:f --problems FILE": "Your own reward function",
    },
)
@Options(
    [
        option("--verifier", Name(verifiers), "A name, file.py:function or module:Name.", required=True),
        *verifier_arg,
        *problem_file,
        option("--host", str, "Address; 0.0.0.0 is for other machines too, with --token.", "127.0.0.1"),
        option("--port", click.IntRange(0, 65535), "Port; 0 for any that is free.", 8000),
        option("--max-sessions", COUNT, "Sessions at once.", 64),
        option(
            "--idle-timeout",
            click.FloatRange(min=0, min_open=True),
            "Seconds without a message, or in which nothing is read, after which a session is closed.",
            600.0,
        ),
        option("--max-message-bytes", click.IntRange(min=256), "Longest message.", 2**20),
        option("--token", str, "Token of clients; better in OPENENV_TOKEN.", shown="none", envvar="OPENENV_TOKEN"),
        option("--insecure", bool, "Serve other machines without a token.", False),
    ]
)
def serve(
    verifier: str, verifier_args: Any, host: str, port: int, max_sessions: int, idle_timeout: float,
    max_message_bytes: int, token: str | None, insecure: bool, **file: Any,
) -> None:  # fmt: skip
    """Offer a verifier as an OpenEnv server, until Ctrl-C or SIGTERM.

    An action is a turn of the model, an observation what it reads next; the last one has the verdict. docs/worlds.md
    has a client to copy.
    """
    from rlenv.verifiers import make_verifier
    from rlenv.verifiers.plugins.arguments import require

    from .verifiers import from_file

    judge = make_verifier(verifier, **dict(verifier_args))  # before the imports, which take seconds
    require("openenv.core.env_server", "openenv", "rlenv serve")
    from rlenv.openenv_server import Limits, listen, make_app
    from rlenv.openenv_server import serve as run
    from rlenv.posing import Posed

    bound = listen(host, port, for_others=bool(token) or insecure)
    posed = Posed(judge, from_file(file))
    try:
        posed.problem(0)  # whatever is wrong with the problems is said before anybody connects
        app = make_app(posed, Limits(max_sessions, idle_timeout, max_message_bytes, token or None))
        click.echo(
            f"{verifier} at http://{host}:{bound.getsockname()[1]}, {max_sessions} sessions at once; Ctrl-C ends"
        )
        run(app, bound)
        click.echo("ended")
    finally:
        posed.close()
        bound.close()
