"""A verifier as an OpenEnv server: an action is a turn of the model, an observation the prompt or a reply."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import random
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any, TypeAlias

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, ServerMode, State
from openenv.core.env_server.http_server import create_fastapi_app
from pydantic import BeforeValidator, Field
from typing_extensions import override

from rlenv.posing import SEEDS, Episode, Posed, as_text
from rlenv.turns import verdict_info
from rlenv.verifiers.conversation import Message, as_messages, text_of

PATHS = ("/ws", "/schema", "/metadata", "/health")  # not /mcp, whose sessions stay open, nor /reset, which opens none
REFUSED, TOO_OLD, TOO_LONG = 1008, 1001, 1009  # codes that WebSockets are closed with
GRACE = 5  # seconds for sessions to end after a signal, and for a client to read why it is closed
MOST_CONNECTIONS = 1024  # at least; more are refused with the HTTP status 503
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class TurnAction(Action):
    """A turn of the model: a completion, or the next turn of a dialogue."""

    text: Annotated[str, BeforeValidator(as_text)] = Field(description="what the model writes")


class TurnObservation(Observation):
    """The prompt after a reset, else the reply to a turn; metadata of the last one have the verdict."""

    text: str = Field(description="what the model reads next, as text")
    messages: list[dict[str, Any]] = Field(description="the same as messages of a conversation")


class EpisodeState(State):
    """The episode so far."""

    seed: int | None = Field(default=None, description="of the problem")


class VerifierEnvironment(Environment[TurnAction, TurnObservation, EpisodeState]):
    """One session: episodes of one verifier, one after the other.

    Args:
        posed: the verifier, shared by all sessions.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, posed: Posed) -> None:
        super().__init__()
        self.posed = posed
        self._episode: Episode | None = None
        self._state = EpisodeState()

    @override
    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int | None = None, **kwargs: Any
    ) -> TurnObservation:
        self.close()
        seed = random.SystemRandom().randrange(SEEDS) if seed is None else seed
        problem = self.posed.problem(seed, level)
        self._episode = self.posed.begin(problem)
        self._state = EpisodeState(episode_id=episode_id, seed=seed)
        known = {name: problem.metadata[name] for name in ("level",) if name in problem.metadata}
        return _observed(
            problem.prompt, metadata={"seed": seed, "max_turns": self.posed.verifier.turns.max_turns, **known}
        )

    @override
    def step(self, action: TurnAction, timeout_s: float | None = None, **kwargs: Any) -> TurnObservation:
        episode = self._episode
        if episode is None:
            raise ValueError("the episode is over or has not begun: send a reset")
        self._state.step_count += 1
        reply = episode.say(action.text)
        if reply.verdict is None:
            return _observed(reply.content, reward=float(reply.reward), metadata={"counts": dict(reply.counts)})
        self.close()
        said, verdict = episode.exchange, reply.verdict
        metadata = {**verdict_info(self.posed.verifier, said.problem, verdict), "counts": dict(said.counts)}
        reward = float(reply.reward + verdict.reward) if verdict.status == "ok" else None  # None if the verifier failed
        return _observed(reply.content, done=True, reward=reward, metadata=metadata)

    @property
    @override
    def state(self) -> EpisodeState:
        return self._state

    @override
    def close(self) -> None:
        if self._episode is not None:
            self._episode.close()
        self._episode = None


def _observed(content: str | list[Message], **fields: Any) -> TurnObservation:
    return TurnObservation(text=text_of(content), messages=as_messages(content) if content else [], **fields)


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server.

    Args:
        max_sessions: at once; further ones are told so and closed.
        idle_timeout: seconds without a message, or in which nothing that was sent is read, after which a session is
            closed.
        max_message_bytes: of a message.
        token: that clients have to send as `Authorization: Bearer TOKEN`; None for none.
    """

    max_sessions: int = 64
    idle_timeout: float = 600.0
    max_message_bytes: int = 2**20
    token: str | None = None


class Gate:
    """Refuses requests and sessions beyond the limits before they reach the app.

    Args:
        app: an ASGI application.
        limits: of the server.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], limits: ServerLimits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, one WebSocket, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the HTTP status and the reason why a client is refused."""
        if self.limits.token is not None:
            sent = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(sent, b"Bearer " + self.limits.token.encode()):
                return 401, "a token is needed: send Authorization: Bearer TOKEN"
        if scope["path"] not in PATHS or (scope["type"] == "websocket") != (scope["path"] == "/ws"):
            return 404, f"unknown path; episodes are played at /ws, and there are {', '.join(PATHS[1:])}"
        return None

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := self._refusal(scope)) is None:
            await self.app(scope, receive, send)
            return
        status, reason = refusal
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps({"detail": reason}).encode()})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := self._refusal(scope)) is not None:
            await send({"type": "websocket.close", "code": REFUSED, "reason": refusal[1]})  # an HTTP status of 403
            return
        closed = False

        async def close(code: int, reason: str) -> Any:
            nonlocal closed
            closed = True
            with suppress(TimeoutError):  # whoever reads nothing does not read this either
                closing = send({"type": "websocket.close", "code": code, "reason": reason})
                await asyncio.wait_for(closing, min(GRACE, self.limits.idle_timeout))
            return {"type": "websocket.disconnect", "code": code}

        async def watched() -> Any:
            if closed:
                return {"type": "websocket.disconnect", "code": TOO_OLD}
            try:
                message = await asyncio.wait_for(receive(), self.limits.idle_timeout)
            except TimeoutError:
                return await close(TOO_OLD, f"idle for {self.limits.idle_timeout:g} s")
            if message.get("bytes") is not None:
                return await close(REFUSED, "messages are text")
            if len((message.get("text") or "").encode()) > self.limits.max_message_bytes:
                return await close(TOO_LONG, f"a message has more than {self.limits.max_message_bytes} bytes")
            if _is_mcp(message.get("text")):
                return await close(REFUSED, "MCP is not offered; a session ends with its connection")
            return message

        async def unless_closed(message: Any) -> None:
            nonlocal closed
            if not closed:
                try:
                    await asyncio.wait_for(send(message), self.limits.idle_timeout)
                except OSError:  # nothing is read there (TimeoutError), or the client has vanished
                    closed = True

        scope = {**scope, "query_string": b""}  # a session cannot be attached to another one
        await self.app(scope, watched, unless_closed)


def _is_mcp(text: str | None) -> bool:
    """Tell whether a message is one of MCP, with which one session could end another one of which it knows the id."""
    try:
        message = json.loads(text or "null")
    except (ValueError, RecursionError):  # is answered with an error
        return False
    return isinstance(message, dict) and message.get("type") == "mcp"


def make_app(posed: Posed, limits: ServerLimits) -> Gate:
    """Return the ASGI application of a verifier."""
    app = create_fastapi_app(
        partial(VerifierEnvironment, posed), TurnAction, TurnObservation,
        max_concurrent_envs=limits.max_sessions, state_cls=EpisodeState, mode=ServerMode.SIMULATION,
    )  # fmt: skip
    return Gate(app, limits)


def listen(host: str, port: int, for_others: bool) -> socket.socket:
    """Return a socket that listens at an address.

    Args:
        host: name or address.
        port: 0 for any.
        for_others: whether other machines may connect.

    Raises:
        ValueError: if it cannot be bound, or other machines could connect.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (for_others or ip_address(address[0]).is_loopback):
            raise ValueError(
                f"other machines could connect to --host {host} without a token: set OPENENV_TOKEN, or allow it with "
                "--insecure"
            )
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(MOST_CONNECTIONS)  # whoever connects from now on waits until the app is there
    except OSError as error:
        raise ValueError(f"cannot serve at {host}:{port}: {error.strerror}; choose another --host or --port") from error
    return bound


def _is_of_the_server(record: logging.LogRecord) -> bool:
    """Tell whether a record of uvicorn is not about a text of a client that is not UTF-8, which gets the code 1007."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, UnicodeDecodeError) and record.getMessage().startswith("Invalid UTF-8"))


def serve(app: Gate, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and close the sessions."""
    limits = app.limits
    config = uvicorn.Config(
        app, log_level="warning", ws_max_size=limits.max_message_bytes, ws_ping_interval=None,
        limit_concurrency=max(MOST_CONNECTIONS, 4 * limits.max_sessions), timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").addFilter(_is_of_the_server)
    server = uvicorn.Server(config)
    for name in (signal.SIGINT, signal.SIGTERM):  # before uvicorn listens to them, and when it raises them again
        signal.signal(name, lambda *_: setattr(server, "should_exit", True))
    server.run(sockets=[bound])
