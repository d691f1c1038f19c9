"""A client of OpenEnv servers: the schema over HTTP, and one WebSocket per episode.

The package's GenericEnvClient connects again by itself when its socket has closed, and then sends a step to a session
that was never reset. Here a lost session is an error, so that the dialogue can repeat its turns.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from rlenv._checks import first_line, require
from rlenv._http import ask, bearer, is_address, is_loopback, printable
from rlenv._status import Status

from ..base import as_reward

TOKEN = "OPENENV_TOKEN"  # the environment variable whose value is sent as the bearer token, if any
MOST_BYTES = 2**24  # of a message from the server
CLOSING = 0.5  # seconds
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class ServerError(ValueError):
    """A server failed.

    Attributes:
        status: of the verdict, if the episode ends with it.
        again: whether a new session may succeed.
        is_full: whether the server has as many sessions as it allows.
    """

    def __init__(self, message: str, status: Status = "error", again: bool = False, is_full: bool = False) -> None:
        super().__init__(printable(message, 600))
        self.status, self.again, self.is_full = status, again, is_full


class InvalidActionError(Exception):
    """The server refused an action; the session goes on."""


@dataclass(frozen=True)
class ServerStep:
    """A server's answer to a reset or an action."""

    observation: Mapping[str, Any]
    reward: float
    done: bool

    @classmethod
    def of(cls, data: Any) -> ServerStep:
        """Return the step that the data of a message describe.

        Raises:
            ServerError: if they are malformed.
        """
        observation = data.get("observation") if isinstance(data, dict) else None
        if not isinstance(observation, dict):
            raise ServerError(f"the server answers without an observation: {data!r:.100}")
        reward = data.get("reward")
        try:
            reward = as_reward("the server's reward", 0.0 if reward is None else reward)
        except ValueError as error:
            raise ServerError(str(error)) from error
        return cls(observation, reward, data.get("done") is True)


class Server:
    """The address of a server, and how long to wait for it.

    Args:
        url: such as "http://127.0.0.1:8000".
        timeout: seconds per answer.

    Raises:
        ValueError: for something else.
    """

    def __init__(self, url: str, timeout: float) -> None:
        if not is_address(url, tuple(_SCHEMES)):
            raise ValueError(
                f"openenv: the address of a server is like http://127.0.0.1:8000, got {url!r:.200}; a token is set as "
                f"{TOKEN}"
            )
        self.url, self.timeout = url.rstrip("/"), timeout
        scheme, _, self._rest = self.url.partition("://")
        self._local, self._secure = is_loopback(url), _SCHEMES[scheme.lower()] == "wss"

    def schema(self) -> dict[str, Any]:
        """Return the schema of actions.

        Raises:
            ServerError: if there is no such server.
        """
        address = f"http{'s' * self._secure}://{self._rest}/schema"
        headers, found = bearer(TOKEN), None
        try:
            answer = ask(address, headers=headers, seconds=self.timeout)
        except OSError as error:
            raise ServerError(f"openenv: {self.url} does not answer ({first_line(error)}); start the server") from error
        except ValueError as error:
            raise ServerError(f"openenv: {address} {error}") from error
        if not answer.is_success:
            hint = f"set {TOKEN} to its token" if answer.status in (401, 403) else "is it an OpenEnv server?"
            raise ServerError(f"openenv: {address} answers with the HTTP status {answer.status}; {hint}")
        with suppress(ValueError):  # not JSON
            found = answer.json()
        action: Any = found.get("action") if isinstance(found, dict) else None
        right = isinstance(action, dict) and isinstance(action.get("properties", {}), dict)
        needed = action.get("required", []) if right else None
        if not isinstance(needed, list) or not all(isinstance(name, str) for name in needed):
            raise ServerError(f"openenv: {address} has no schema of actions; is it an OpenEnv server?")
        return dict(action)

    def connect(self, stack: ExitStack) -> Any:
        """Return a WebSocket to a new session, which the stack closes.

        Raises:
            ServerError: if the server does not answer.
        """
        client: Any = require("websockets.sync.client", "openenv", "verifier 'openenv'")
        options: dict[str, Any] = {"proxy": None} if self._local else {}
        connect, headers = client.connect, bearer(TOKEN)
        if isinstance(connect, type):  # follows redirects
            connect = type("connect", (connect,), {"process_redirect": lambda _, error: error})
        try:
            connection = connect(
                f"ws{'s' * self._secure}://{self._rest}/ws", additional_headers=headers, max_size=MOST_BYTES,
                open_timeout=self.timeout, close_timeout=CLOSING, ping_interval=None, **options,
            )  # fmt: skip
            return stack.enter_context(connection)
        except Exception as error:  # whatever the protocol, the system or a proxy raise
            raise ServerError(f"no connection to {self.url}: {first_line(error)}", again=True) from error


class Session:
    """One episode on a server.

    Args:
        server: where it is.

    Raises:
        ServerError: if the server does not answer.
    """

    def __init__(self, server: Server) -> None:
        self.server, self._stack = server, ExitStack()
        self._socket = server.connect(self._stack)

    def reset(self, seed: int) -> ServerStep:
        """Begin the episode of a seed.

        Raises:
            ServerError: if the server does not, or closes the session.
        """
        try:
            return self._ask("reset", {"seed": seed})
        except InvalidActionError as error:
            raise ServerError(f"the server refuses reset(seed={seed}): {error}") from error

    def step(self, action: Mapping[str, Any]) -> ServerStep:
        """Take an action.

        Raises:
            ServerError: if the server fails or closes the session.
            InvalidActionError: if it refuses the action.
        """
        return self._ask("step", action)

    def _ask(self, kind: str, data: Mapping[str, Any]) -> ServerStep:
        """Send a message and return the answer to it."""
        client: Any = require("websockets", "openenv", "verifier 'openenv'")
        deadline = time.monotonic() + self.server.timeout
        guard = threading.Timer(self.server.timeout, self._shut_down)  # a server that reads nothing stops `send`
        guard.daemon = True
        guard.start()
        try:
            with suppress(client.ConnectionClosed):  # a server that is full says so before it closes: read that
                self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = self._socket.recv(timeout=max(deadline - time.monotonic(), 0.0))
        except Exception as error:  # of the connection; the package has many
            if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                message = f"the server took longer than {self.server.timeout:g} s for a {kind}"
                raise ServerError(message, status="timeout") from error
            huge = getattr(getattr(error, "sent", None), "code", None) == 1009
            lost = f"a message of more than {MOST_BYTES:,} bytes" if huge else f"lost: {first_line(error)}"
            raise ServerError(f"the session on {self.server.url}: {lost}", again=not huge) from error
        finally:
            guard.cancel()
        try:
            message = json.loads(answer)
            failed, content = message["type"] == "error", message["data"]
            if failed:
                raise _error(content if isinstance(content, dict) else {})
            return ServerStep.of(content)
        except ServerError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ServerError(f"the server's message cannot be read: {answer!r:.100}") from error

    def _shut_down(self) -> None:
        with suppress(OSError):  # closed meanwhile
            self._socket.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Leave the session."""
        self._stack.close()


def _error(data: Mapping[str, Any]) -> ServerError | InvalidActionError:
    """Return the exception that a server's message about an error stands for."""
    code, said = data.get("code"), " ".join(str(data.get("message", "")).split())
    if code == "VALIDATION_ERROR":
        errors = data.get("errors")
        found = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
        named = [f"{'.'.join(map(str, each.get('loc') or ['it']))}: {each.get('msg')}" for each in found]
        return InvalidActionError("; ".join(named) or said)
    full = code == "CAPACITY_REACHED"
    hint = "; let the server have more sessions at once" if full else ""
    again = full or code == "SESSION_ERROR"
    return ServerError(f"the server says {code}: {said:.200}{hint}", again=again, is_full=full)
