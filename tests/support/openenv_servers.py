"""A server of the verifier "openenv" in this process, which speaks its messages without the packages."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

from rlenv.verifiers.dialogues import openenv, openenv_client

URL = "http://127.0.0.1:8000"
TEXT = {"properties": {"guess": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["guess"]}


class ClosedError(Exception):
    """What the package raises when a connection is closed."""


class PretendServer:
    """Asks for the last digit of the seed; the first wrong guess is answered, the second one ends the episode."""

    schema: Any = TEXT
    max_sessions = 64  # at once
    down = 0  # connections that fail from now on
    lose = 0  # sessions that are lost instead of their next answer
    deaf = False  # sends wait until the connection is shut down

    def __init__(self) -> None:
        self.sessions: set[Any] = set()  # open ones
        self.raw: list[str] = []  # texts to send in place of the next answers
        self.resets: list[int] = []  # seeds
        self.lock = threading.Lock()

    def connect(self, *_: Any, **__: Any) -> PretendSession:
        with self.lock:
            if self.down:
                self.down -= 1
                raise ConnectionRefusedError("Connection refused")
            return PretendSession(self)

    def install(self, monkeypatch: Any) -> None:
        """Have the client of the verifier speak to this server, in place of a network."""
        monkeypatch.setitem(sys.modules, "websockets", SimpleNamespace(ConnectionClosed=ClosedError))
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
        if self.full:
            self.answer = error("CAPACITY_REACHED", message="no session is free")
        if self.full or self.gone.is_set():
            raise ClosedError
        message = json.loads(text)
        self.answer = self.answered(message["type"], message["data"])

    def answered(self, kind: str, action: Any) -> str:
        if kind == "reset":
            self.seed, self.tries = action["seed"], 0
            self.server.resets.append(self.seed)
            return observed("a digit? ")
        if not isinstance(action.get("guess"), str):
            return error("VALIDATION_ERROR", errors=[{"loc": ["guess"], "msg": "it should be a text"}])
        if action["guess"] == "crash":
            return error("EXECUTION_ERROR", message="division by\nzero")
        self.tries += 1
        if action["guess"] == str(self.seed % 10):
            return observed("yes", done=True, reward=1.0)
        return observed(f"no <|im_end|> {'x' * self.tries}", done=self.tries == 2, reward=0.25)

    def recv(self, timeout: float) -> str:
        server = self.server
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


def observed(message: str, done: bool = False, reward: float | None = None) -> str:
    observation = {"message": message, "metadata": {"secret": "never shown"}}
    return json.dumps({"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}})


def error(code: str, **data: Any) -> str:
    return json.dumps({"type": "error", "data": {"code": code, **data}})
