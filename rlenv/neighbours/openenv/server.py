"""The server: OpenEnv's app behind a gate that keeps its limits."""

from __future__ import annotations

import asyncio
import hmac
import json
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeAlias

import uvicorn
from openenv.core.env_server import ServerMode
from openenv.core.env_server.http_server import create_fastapi_app

from rlenv.neighbours.posing import Posed

from .environment import EpisodeState, TurnAction, TurnObservation, VerifierEnvironment

PATHS = ("/ws", "/schema", "/metadata", "/health")  # not /mcp, whose sessions stay open, nor /reset, which opens none
REFUSED, TOO_OLD, TOO_LONG = 1008, 1001, 1009  # codes that WebSockets are closed with
GRACE = 5  # seconds for sessions to end after a signal, and for a client to read why it is closed
MOST_CONNECTIONS = 1024  # at least; more are refused with the HTTP status 503
Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """What a server allows.

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
    """Refuses what the limits exclude before the app sees it.

    Args:
        app: an ASGI application.
        limits: what is allowed.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], limits: Limits) -> None:
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
            return message

        async def unless_closed(message: Any) -> None:
            nonlocal closed
            if not closed:
                try:
                    await asyncio.wait_for(send(message), self.limits.idle_timeout)
                except TimeoutError:  # nothing is read there
                    closed = True

        scope = {**scope, "query_string": b""}  # a session cannot be attached to another one
        await self.app(scope, watched, unless_closed)


def make_app(posed: Posed, limits: Limits) -> Gate:
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


def serve(app: Gate, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and close the sessions."""
    limits = app.limits
    config = uvicorn.Config(
        app, log_level="warning", ws_max_size=limits.max_message_bytes, ws_ping_interval=None,
        limit_concurrency=max(MOST_CONNECTIONS, 4 * limits.max_sessions), timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    for name in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again when it has ended
        signal.signal(name, lambda *_: None)
    uvicorn.Server(config).run(sockets=[bound])
