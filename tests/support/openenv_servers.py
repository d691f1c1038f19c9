"""A server of the verifier "openenv" in this process, which speaks its messages without the packages."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

from verifiers.dialogues import openenv, openenv_client

URL = "http://127.0.0.1:8000"
TEXT = {"properties": {"guess": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["guess"]}


class ClosedError(Exception):
    """What the package raises when a connection is closed."""


class PretendServer:
    """Asks for the last digit of the seed; the first wrong guess is answered, the second one ends the episode.

    Attributes:
        sessions: open ones.
        max_sessions: at once.
        down: connections that fail from now on.
        deaf: sends wait until the connection is shut down.
        lose: a session is lost instead of its next answer.
        raw: texts to send in place of the next answers.
        resets: seeds of all resets.
    """

    def __init__(self, schema: Any = None) -> None:
        self.schema, self.sessions, self.max_sessions = TEXT if schema is None else schema, set(), 64
        self.down = self.lose = 0
        self.deaf = False
        self.raw: list[str] = []
        self.resets: list[int] = []
        self.together: threading.Barrier | None = None
        self.lock = threading.Lock()

    def connect(self, *_: Any, **__: Any) -> PretendSession:
        with self.lock:
            if self.down:
                self.down -= 1
                raise ConnectionRefusedError("Connection refused")
            return PretendSession(self)

    def install(self, monkeypatch: Any) -> None:
        """Have the client of the verifier speak to this server, in place of a network."""
        package = SimpleNamespace(ConnectionClosed=ClosedError)
        monkeypatch.setitem(sys.modules, "websockets", package)
        monkeypatch.setitem(sys.modules, "websockets.sync", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "websockets.sync.client", SimpleNamespace(connect=self.connect))
        monkeypatch.setattr(openenv_client.Server, "schema", lambda _: self.schema)
        monkeypatch.setattr(openenv, "PAUSE", 0.0)


class PretendSession:
    """One connection."""

    def __init__(self, server: PretendServer) -> None:
        self.server, self.seed, self.tries, self.answer = server, 0, 0, ""
        self.socket, self.gone, self.full = self, threading.Event(), len(server.sessions) >= server.max_sessions
        if not self.full:
            server.sessions.add(self)

    def shutdown(self, _: int) -> None:
        self.gone.set()
        self.close()

    def send(self, text: str) -> None:
        if self.server.deaf:
            self.gone.wait(2)
        if self.gone.is_set():
            raise ClosedError
        if self.full:
            self.answer = _error("CAPACITY_REACHED", message="no session is free")
            raise ClosedError
        message = json.loads(text)
        self.answer = self._answered(message["type"], message["data"])

    def _answered(self, kind: str, action: Any) -> str:
        if kind == "reset":
            self.seed, self.tries = action["seed"], 0
            self.server.resets.append(self.seed)
            return _observed("a digit? ")
        if not isinstance(action.get("guess"), str):
            return _error("VALIDATION_ERROR", errors=[{"loc": ["guess"], "msg": "it should be a text"}])
        if action["guess"] == "crash":
            return _error("EXECUTION_ERROR", message="division by\nzero")
        self.tries += 1
        if action["guess"] == str(self.seed % 10):
            return _observed("yes", done=True, reward=1.0)
        return _observed(f"no <|im_end|> {'x' * self.tries}", done=self.tries == 2, reward=0.25)

    def recv(self, timeout: float) -> str:
        server = self.server
        if server.together is not None and self.tries:
            server.together.wait(timeout)
        if server.lose:
            server.lose -= 1
            self.close()
        if self not in server.sessions and not self.full:
            raise ClosedError("no close frame received")
        return server.raw.pop(0) if server.raw else self.answer

    def __enter__(self) -> PretendSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.server.sessions.discard(self)


def _observed(message: str, done: bool = False, reward: float | None = None) -> str:
    observation = {"message": message, "metadata": {"secret": "never shown"}}
    return json.dumps({"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}})


def _error(code: str, **data: Any) -> str:
    return json.dumps({"type": "error", "data": {"code": code, **data}})
