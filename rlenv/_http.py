"""Requests to servers of others: one deadline per call, a limit of size, no redirects, faults in one line.

The module imports nothing else of rlenv, so that agents and verifiers share it; httpx is imported on use.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ._loop import wait_for

if TYPE_CHECKING:
    import httpx

BUSY = (429, 503)  # statuses after which a request is sent again
PAUSES = (0.5, 2.0)  # seconds before the second and third try, unless the server says how long (Retry-After)
MOST_OF_AN_ERROR = 2**16  # bytes; the rest of the body of an error is not read
HANDSHAKE = 0.05  # seconds in which a connection that took too long is closed
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
        seconds: for all tries, from connecting to the last byte.
        most_bytes: of the body of an answer that is not an error.

    Raises:
        TimeoutError: if the time has passed.
        ConnectionError: if the server cannot be reached, or breaks off.
        ValueError: for a redirect, and for an answer that is too long; the line goes on after the server's name.
    """
    data = None if body is None else json.dumps(body).encode()
    sent = {"Accept-Encoding": "identity", "User-Agent": "rlenv", **headers}  # nothing that unpacks to more than it is
    sent |= {} if data is None else {"Content-Type": "application/json"}
    end = monotonic() + seconds
    for pause in (*PAUSES, None):
        left = end - monotonic()
        if left <= 0:
            break
        try:
            answer = wait_for(_ask_once(url, data, sent, left, most_bytes), "requests")
        except TimeoutError:
            break
        if answer.status not in BUSY or pause is None:
            return answer
        asked = answer.retry_after or ""
        pause = float(asked) if asked.isascii() and asked.isdigit() else pause  # it may be a date, too
        if monotonic() + pause >= end:
            return answer
        sleep(pause)
    raise TimeoutError(f"not within {seconds:g} s")


@cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _ask_once(
    url: str, data: bytes | None, headers: Mapping[str, str], seconds: float, most_bytes: int
) -> Response:
    import asyncio

    import httpx

    timeout = httpx.Timeout(None, connect=seconds)  # httpx would lose a connection that is cancelled in its handshake
    options: dict[str, Any] = {"timeout": timeout, "verify": _certificates(), "trust_env": not is_loopback(url)}
    try:  # limits of single reads would not end an answer that comes in drops
        async with (
            asyncio.timeout(seconds + HANDSHAKE),
            httpx.AsyncClient(headers=headers, **options) as client,
            client.stream("GET" if data is None else "POST", url, content=data) as answer,
        ):
            return await _read(answer, most_bytes)
    except httpx.InvalidURL as error:
        raise ValueError(f"has an address that cannot be asked ({printable(str(error))})") from error
    except (httpx.TransportError, OSError) as error:
        if isinstance(error, (httpx.TimeoutException, TimeoutError)):
            raise TimeoutError from error
        raise ConnectionError(printable(_reason(error)) or type(error).__name__) from error


def _reason(error: BaseException) -> str:
    """Return the text of an error; of the attempts to connect to all of a host's addresses, that of the first."""
    first: BaseException | None = error
    while first is not None and not isinstance(first, ConnectionRefusedError):
        first = first.exceptions[0] if isinstance(first, BaseExceptionGroup) else first.__cause__ or first.__context__
    return str(error) if first is None else os.strerror(first.errno or 0)


async def _read(answer: httpx.Response, most_bytes: int) -> Response:
    status, found = answer.status_code, bytearray()
    if 300 <= status < 400:  # the client follows none
        where = f"{answer.headers.get('Location', 'nowhere')!r:.200}"
        raise ValueError(f"answers with {status}, a redirect to {where}; if you trust that server, give its address")
    most = most_bytes if status < 300 else MOST_OF_AN_ERROR
    async for part in answer.aiter_raw(2**16):
        found += part
        if len(found) > most and status < 300:
            raise ValueError(f"answers with more than {most_bytes:,} bytes")
        if len(found) > most:
            break
    return Response(status, printable(answer.reason_phrase), bytes(found[:most]), answer.headers.get("Retry-After"))
