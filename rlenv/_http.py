"""Requests to servers of others: one deadline per call, a limit of size, no redirects, faults in one line.

The module imports nothing of rlenv, so that agents and verifiers share it; httpx is imported when something is asked.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import ip_address
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

BUSY = (429, 503)  # statuses after which a request is sent again
PAUSES = (0.5, 2.0)  # seconds before the second and third try, unless the server says how long (Retry-After)
MOST_OF_AN_ERROR = 2**16  # bytes; the rest of the body of an error is not read
LONGEST = 300  # characters of a server that are shown


def printable(text: str, longest: int = LONGEST) -> str:
    r"""Return a text of a server in one line, cut, with escapes in place of control characters (\x1b)."""
    line = " ".join(text[: 8 * longest].split())
    line = line if len(line) <= longest else line[: longest - 3] + "..."
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def is_address(url: Any, schemes: tuple[str, ...] = ("http", "https")) -> bool:
    """Tell whether a text is the address of a server, without a user, a password or a query."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        right = parts.scheme in schemes and parts.hostname and (parts.port or True)
    except ValueError:  # the port, or an IPv6 address
        return False
    return bool(right) and url.isprintable() and not (parts.username or parts.password or parts.query)


def is_loopback(url: str) -> bool:
    """Tell whether an address is of this machine, which no proxy is asked for."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def bearer(variable: str) -> dict[str, str]:
    """Return the header with the token in an environment variable; {} if it is not set.

    Raises:
        ValueError: for a token that a header cannot carry, such as one with the end of its line.
    """
    token = os.environ.get(variable)
    if not token:
        return {}
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ValueError(f"{variable} must be one line of printable ASCII; set it to the token alone")
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Response:
    """A server's answer.

    Attributes:
        status: of HTTP; never of a redirect.
        reason: that came with it, printable.
        body: the whole of it; of an error, the first `MOST_OF_AN_ERROR` bytes.
        retry_after: the header, if any.
    """

    status: int
    reason: str
    body: bytes
    retry_after: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the value that the body describes.

        Raises:
            ValueError: in one line, if it is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            start = f"{self.body[:40]!r}{'...' * (len(self.body) > 40)}"
            raise ValueError(f"answers with what is not JSON ({printable(str(error))}): {start}") from error


class Deadline:
    """A time limit for a connection, which is shut down when the time has passed, also in a read or write.

    Limits of single reads do not end a response that comes in drops.

    Args:
        seconds: until then, from entering the context.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._lock, self._watched = threading.Lock(), list[socket.socket]()
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def watch(self, connection: socket.socket) -> None:
        """Shut a connection down when the time has passed, also after TLS has taken its socket over."""
        copy = connection.dup()
        with self._lock:
            self._watched.append(copy)
            if self.passed:
                _shut_down(copy)

    def _pass(self) -> None:
        with self._lock:
            self.passed = True
            for connection in self._watched:
                _shut_down(connection)

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._watched:
                connection.close()
            self._watched = []


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # closed meanwhile
        connection.shutdown(socket.SHUT_RDWR)


def ask(
    url: str, body: Any = None, *, headers: Mapping[str, str], seconds: float, most_bytes: int = 2**20
) -> Response:  # fmt: skip
    """Return the answer to a request: GET, or POST with JSON.

    A server that is busy (429, 503) is asked three times, after the pauses that it asks for; if a pause would outlast
    the deadline, its answer is returned.

    Args:
        url: of the request.
        body: sent as JSON; None for GET.
        headers: such as from `bearer`, for this server only.
        seconds: for all tries, from connecting to the last byte; looking up the host's name is limited by the system.
        most_bytes: of the body of an answer that is not an error.

    Raises:
        TimeoutError: if the time has passed.
        ConnectionError: if the server cannot be reached, or breaks off.
        ValueError: for a redirect, and for an answer that is too long; the line goes on after the server's name.
    """
    import httpx

    data = None if body is None else json.dumps(body).encode()
    sent = {"Accept-Encoding": "identity", "User-Agent": "rlenv", **headers}  # nothing that unpacks to more than it is
    sent |= {} if data is None else {"Content-Type": "application/json"}
    options: dict[str, Any] = {"verify": _certificates(), "limits": httpx.Limits(max_keepalive_connections=0)}
    with httpx.Client(headers=sent, trust_env=not is_loopback(url), **options) as client:  # follows no redirects
        end = monotonic() + seconds
        for pause in (*PAUSES, None):
            left = end - monotonic()
            if left <= 0:
                break
            try:
                answer = _ask_once(client, url, data, left, most_bytes)
            except TimeoutError:
                break
            if answer.status not in BUSY or pause is None:
                return answer
            pause = _pause(answer.retry_after, pause)
            if monotonic() + pause >= end:
                return answer
            sleep(pause)
    raise TimeoutError(f"not within {seconds:g} s")


def _pause(asked: str | None, otherwise: float) -> float:
    """Return the seconds to wait, given the header Retry-After: seconds, or a date."""
    if asked is None:
        return otherwise
    if asked.isascii() and asked.isdigit():
        return float(asked)
    try:
        return max((parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError, OverflowError):  # no date, or one without a time zone
        return otherwise


@cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


def _ask_once(client: httpx.Client, url: str, data: bytes | None, seconds: float, most_bytes: int) -> Response:
    import httpx

    def traced(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            deadline.watch(info["return_value"].get_extra_info("socket"))

    method, options = "GET" if data is None else "POST", dict[str, Any](timeout=seconds, extensions={"trace": traced})
    try:
        with Deadline(seconds) as deadline, client.stream(method, url, content=data, **options) as answer:
            status, found = answer.status_code, bytearray()
            if 300 <= status < 400:
                where = f"{answer.headers.get('Location', 'nowhere')!r:.200}"
                raise ValueError(
                    f"answers with {status}, a redirect to {where}; if you trust that server, give its address"
                )
            most = most_bytes if status < 300 else MOST_OF_AN_ERROR
            for part in answer.iter_raw(2**16):
                found += part
                if len(found) > most and status < 300:
                    raise ValueError(f"answers with more than {most_bytes:,} bytes")
                if len(found) > most:
                    break
            if deadline.passed:  # a body without a length ends when its connection is shut down
                raise TimeoutError
            reason = printable(answer.reason_phrase)
            return Response(status, reason, bytes(found[:most]), answer.headers.get("Retry-After"))
    except httpx.InvalidURL as error:
        raise ValueError(f"has an address that cannot be asked ({printable(str(error))})") from error
    except (httpx.TransportError, OSError) as error:
        if deadline.passed or isinstance(error, (httpx.TimeoutException, TimeoutError)):
            raise TimeoutError from error
        raise ConnectionError(printable(str(error)) or type(error).__name__) from error
