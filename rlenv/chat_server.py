"""The endpoint of one episode: POST /v1/chat/completions on loopback, for programs that take a base URL and a key."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from weakref import WeakSet

from typing_extensions import override

from rlenv.verifiers.dialogues.chat_client import EpisodeOver, OutOfBudgetError

PATH = "/v1/chat/completions"
DEADLINE = 30  # seconds for a request to arrive, and for an answer to be read
MOST_BYTES = 2**22  # of a request


class ChatServer(ThreadingHTTPServer):
    """An endpoint in threads of this process, until `close`.

    Args:
        ask: returns the answer to a request, both in JSON's types, or raises what `ProgramRun.ask` does.

    Attributes:
        url: for a client's `base_url`.
        key: that requests have to send as `Authorization: Bearer KEY`.
    """

    request_queue_size = 64
    timeout = 1.0  # seconds until the thread looks whether it is closed, if no connection can wake it

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ask, self.key = ask, secrets.token_urlsafe(32)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._open, self._connections = True, WeakSet[Any]()  # those that are closed leave it
        self._thread = threading.Thread(target=self._serve, name="rlenv-endpoint", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._open:
            self.handle_request()

    @override
    def verify_request(self, request: Any, client_address: Any) -> bool:
        self._connections.add(request)
        return True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away in the middle of a request."""

    def close(self) -> None:
        """Stop listening, and cut off requests that have not arrived; one that waits is answered by `ask`."""
        self._open = False
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.server_port), 1):  # wakes the thread
            pass
        self._thread.join()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)


class Handler(BaseHTTPRequestHandler):
    """One connection with one request."""

    timeout = DEADLINE
    server: ChatServer

    def do_POST(self) -> None:
        """Answer a request."""
        sent = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(sent, f"Bearer {self.server.key}".encode()):
            return self.send_error(401, "the key of the episode is needed: send Authorization: Bearer KEY")
        if self.path != PATH:
            return self.send_error(404, f"unknown path; there is POST {PATH}")
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() else 0
        if not 0 < size <= MOST_BYTES:
            return self.send_error(413, f"a request needs a Content-Length from 1 to {MOST_BYTES}")
        try:
            request = json.loads(self.rfile.read(size))
        except TimeoutError:
            return self.send_error(408, f"the request did not arrive within {DEADLINE} s")
        except (ValueError, RecursionError):
            return self.send_error(400, "the request is not JSON")
        if not isinstance(request, dict):
            return self.send_error(400, "a request is a JSON object")
        try:
            self._send(200, self.server.ask(request))
        except OutOfBudgetError as error:
            self.send_error(400, str(error), "context_length_exceeded")
        except EpisodeOver as error:
            self.send_error(400, str(error), "episode_over")
        return None

    @override
    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        error = {"message": message or "bad request", "type": "invalid_request_error", "code": explain, "param": None}
        self._send(code, {"error": error})

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response_only(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
