"""A server that answers in every wrong way: what comes after a request is a row of `KINDS`."""

import contextlib
import gzip
import itertools
import json
import socket
import struct
import threading
import time

OK = b"HTTP/1.1 200 OK\r\n"
PAUSE, DROPS = 0.01, 300  # seconds between drops, and how many come
MOST = 2**30  # bytes that are sent, unless the client leaves
BLOCK = bytes(2**16)
RESET = object()  # in place of bytes: the connection is reset


def whole(body, status="200 OK", **headers):
    """Return an answer with its length, in one piece."""
    body = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(f"{name}: {headers[name]}" for name in headers)]
    return [("\r\n".join(lines).replace("_", "-") + "\r\n\r\n").encode("latin-1") + body]


def drops(text, *before):
    """Return pieces of one byte, again and again, each after a pause, for three seconds."""
    return itertools.chain(before, ((PAUSE, bytes([byte])) for byte in itertools.islice(itertools.cycle(text), DROPS)))


def flood(piece, *before):
    """Return pieces without a pause, until the client leaves or a gigabyte was sent."""
    return itertools.chain(before, itertools.repeat(piece, MOST // len(piece)))


def redirect(status, place="{other}/schema"):
    return lambda other: whole("", f"{status} Moved", Location=place.format(other=other))


def error(message, status="500 Internal Server Error"):
    return whole(json.dumps({"error": {"message": message}}), status)


def always(pieces):
    return lambda _: pieces() if callable(pieces) else pieces


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = OK + b"Content-Length: 1073741824\r\n\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\n"
KINDS = {
    **{f"redirect {status}": redirect(status) for status in (301, 302, 303, 307, 308)},
    "redirect 300": redirect(300),
    "redirect to itself": redirect(302, "/again"),
    "redirect with control characters": redirect(302, "http://x/\x1b[2J"),
    "redirect to nowhere": always(whole("", "302 Found")),
    "silence": always(lambda: [(9.0, b"")]),
    "drops of the status line": always(lambda: drops(b"1", b"HTTP/1.1 200 O")),
    "drops of headers": always(lambda: drops(b"a: b\r\n", OK)),
    "drops of 100 Continue": always(lambda: drops(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "drops of a body": always(lambda: drops(b" ", OK + b"Content-Length: 10000\r\n\r\n")),
    "drops of a body without length": always(lambda: drops(b" ", OK + b"\r\n")),
    "drops of chunks": always(lambda: drops(b"1\r\n \r\n", CHUNKED)),
    "drops of an error": always(lambda: drops(b" ", FAILED + b"Content-Length: 10000\r\n\r\n")),
    "endless 100 Continue": always(lambda: flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)),
    "endless headers": always(lambda: flood(b"a: b\r\n" * 500, OK)),
    "endless header": always(lambda: flood(b"a" * 5000, OK + b"a: ")),
    "endless body": always(lambda: flood(BLOCK, OK + b"\r\n")),
    "endless chunks": always(lambda: flood(b"1000\r\n" + bytes(4096) + b"\r\n", CHUNKED)),
    "endless error": always(lambda: flood(BLOCK, FAILED + b"\r\n")),
    "a body of 1 GB": always(lambda: flood(BLOCK, LONG)),
    "an error of 1 GB": always(lambda: flood(BLOCK, LONG.replace(OK, FAILED))),
    "a gzip bomb": always(lambda: whole(gzip.compress(bytes(2**24)), Content_Encoding="gzip")),
    "a chunk of 16 exabytes": always([CHUNKED + b"FFFFFFFFFFFFFFFF\r\nabc"]),
    "HTML": always(whole("<html>Sign in to the Wi-Fi</html>")),
    "an empty body": always(whole("")),
    "no content": always([b"HTTP/1.1 204 No Content\r\n\r\n"]),
    "broken JSON": always(whole('{"weight_version": ')),
    "JSON in bad UTF-8": always(whole(b'{"weight_version": "\xff"')),
    "deep JSON": always(whole("[" * 50_000)),
    "a number of 10,000 digits": always(whole("9" * 10_000)),
    "a list": always(whole("[]")),
    "a text": always(whole('"weight_version"')),
    "no field": always(whole('{"other": 1}')),
    "fields of other types": always(whole('{"choices": {"a": 1}, "action": [], "other": null}')),
    "cut before the status": always([]),
    "cut in the headers": always([OK + b"Content-Len"]),
    "cut in the body": always([OK + b'Content-Length: 100\r\n\r\n{"weight_version"']),
    "cut in a chunk": always([CHUNKED + b"10\r\nabc"]),
    "cut in an error": always([FAILED + b"Content-Length: 100\r\n\r\n{"]),
    "reset at once": always([RESET]),
    "reset in the body": always([OK + b"Content-Length: 100\r\n\r\n{", RESET]),
    "control characters": always(error("\x1b[2J\x1b]0;mine\x07 \u202eabc \r\n Last checkpoint: /etc")),
    "control characters in a body": always(whole("\x1b[2J\x1b]0;mine\x07")),
    "control characters in a header": always([OK + b"a: \x1b[2J\x00\r\n\r\n"]),
    "control characters in the reason": always([b"HTTP/1.1 500 \x1b[2J\r\nContent-Length: 0\r\n\r\n"]),
    "a message that is a list": always(error([1, 2])),
    "a message of 100 KB": always(error("x" * 100_000)),
    "429": always(whole("", "429 Too Many Requests", Retry_After="0")),
    "503": always(whole("", "503 Service Unavailable", Retry_After="0")),
    "503 for a year": always(whole("", "503 Service Unavailable", Retry_After="31536000")),
    "503 for a nonsense": always(whole("", "503 Service Unavailable", Retry_After="\xe9 soon")),
    "503 until yesterday": always(whole("", "503 Busy", Retry_After="Mon, 01 Jan 2024 00:00:00 GMT")),
    "401": always(whole("", "401 Unauthorized")),
    "403": always(whole("", "403 Forbidden")),
    "404": always(whole("", "404 Not Found")),
    "status 999": always(whole("", "999 What")),
    "status 2000": always(whole("", "2000 What")),
    "switching protocols": always([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n{}"]),
    "two lengths": always([OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"]),
    "a negative length": always([OK + b"Content-Length: -1\r\n\r\n{}"]),
    "no HTTP": always([b"SSH-2.0-OpenSSH_9.6\r\n"]),
    "bytes": always([bytes(range(256)) * 40]),
}  # fmt: skip


class HostileServer:
    """Answers each request at `url` with the kind.

    Args:
        kind: a key of `KINDS`; None for an answer without fields.
        other: the address that redirects name.

    Attributes:
        asked: the text of each request.
        sent: bytes, of all connections.
    """

    def __init__(self, kind=None, other="http://127.0.0.1:9"):
        self.pieces = KINDS[kind] if kind else always(whole("{}"))
        self.other, self.asked, self.sent = other, [], 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.listening.close()

    def _listen(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as file:
            lines = list(iter(file.readline, b"\r\n"))
            size = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")]
            self.asked.append(b"".join([*lines, file.read(sum(size))]).decode())
            for piece in self.pieces(self.other):
                if piece is RESET:
                    time.sleep(0.02)  # so that the bytes before arrive
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                pause, data = piece if isinstance(piece, tuple) else (0, piece)
                if self.ended.wait(pause) if pause else self.ended.is_set():
                    break
                connection.sendall(data)
                self.sent += len(data)
