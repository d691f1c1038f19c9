"""The client for other people's servers, against one that answers in every wrong way."""

import socket
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from diagonal import slow
from hostile_server import DROPS, KINDS, HostileServer, whole

import rlenv._http as client
from rlenv._http import ask, bearer, is_address, is_loopback
from rlenv._loop import wait_for
from rlenv.agents import EngineError
from rlenv.agents.engines import server as engines
from rlenv.agents.engines.base import Request
from rlenv.verifiers.dialogues import openenv_client as openenv

SECRET = "tok-123456"
MOST_SENT = 2**25  # bytes: limits of three answers, and what the system buffers


@pytest.fixture
def other(monkeypatch):
    """A server that a redirect names."""
    for name in (engines.TOKEN, openenv.TOKEN):
        monkeypatch.setenv(name, SECRET)
    with HostileServer() as made:
        yield made


def engine_of(url, patience):
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=5))
    return engines.ServerEngine(
        url, SimpleNamespace(vocab_size=5, model=SimpleNamespace(config=config)), None, patience
    )


def said_to(call, url, patience):
    """Return what an engine or a verifier says of a server."""
    with warnings.catch_warnings(record=True) as recorded, pytest.raises((EngineError, openenv.ServerError)) as refused:
        warnings.simplefilter("always")
        if call == "schema":
            openenv.Server(url, patience).schema()
        elif call == "weights":
            engine_of(url, patience)._begin()
        else:
            list(engine_of(url, patience).write([Request([1, 2], 4, 1.0, (0,), 0)] * 3))
    return [str(refused.value), *(str(each.message) for each in recorded)]


WAITED = (  # how kinds begin that an engine waits for, or asks again
    "silence", "drops", "endless 1", "endless h", "cut", "reset", "switching", "two lengths", "a negative", "a chunk",
    "no HTTP", "bytes", "status 2", "503 for a n", "redirect with", "control characters in a h",
)  # fmt: skip
QUICK = [kind for kind in KINDS if not kind.startswith(WAITED)]


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *((kind, "weights") for kind in KINDS),
        *((kind, "schema") if number % 3 == 0 else slow(kind, "schema") for number, kind in enumerate(QUICK)),
        *(slow(kind, "generate") for kind in QUICK),  # of the client of the weights
    ],
)
def test_a_hostile_server_gets_no_token_time_or_memory_and_its_fault_is_one_line(other, kind, call, monkeypatch):
    monkeypatch.setattr(client, "PAUSES", (0.01, 0.02))
    with HostileServer(kind, other.url) as server:
        lines = said_to(call, server.url, 0.1 if kind.startswith(WAITED) else 20)
        assert all(SECRET in each for each in server.asked)
        assert server.sent < (DROPS if kind.startswith("drops") else MOST_SENT)  # one deadline holds for all drops
    assert not other.asked
    for line in lines:
        assert server.url in line and line.isprintable() and SECRET not in line and len(line) < 700


def test_the_deadline_holds_in_the_handshake_of_tls():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(TimeoutError, match=r"not within 0\.1 s"):  # nobody answers the greeting
            ask(f"https://127.0.0.1:{port}", headers={}, seconds=0.1)


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("redirect 302", ValueError, "answers with 302, a redirect to 'http://127.0.0.1:9/schema'; if you trust"),
        ("a body of 1 GB", ValueError, "answers with more than 1,048,576 bytes"),
        ("cut in the body", ConnectionError, "received 17 bytes, expected 100"),
    ],
    ids=["redirect", "long", "cut in the body"],
)
def test_faults_have_a_class_and_say_what_came(kind, fault, said):
    with HostileServer(kind) as server, pytest.raises(fault, match=said):
        ask(server.url, headers={}, seconds=5)


@pytest.mark.parametrize(("kind", "length"), [("an error of 1 GB", client.MOST_OF_AN_ERROR), ("a gzip bomb", None)])
def test_an_error_is_read_in_part_and_nothing_is_unpacked(kind, length):
    with HostileServer(kind) as server:
        answer = ask(server.url, headers={}, seconds=60)
        assert server.sent < MOST_SENT
    assert len(answer.body) == length if length else answer.body.startswith(b"\x1f\x8b")


@pytest.fixture
def clock(monkeypatch):
    """Time that passes in pauses only."""
    made = SimpleNamespace(now=0.0, pauses=[])

    def pause(seconds):
        made.pauses.append(seconds)
        made.now += seconds

    monkeypatch.setattr(client, "monotonic", lambda: made.now)
    monkeypatch.setattr(client, "sleep", pause)
    return made


@pytest.mark.parametrize(
    ("asked", "seconds", "pauses"),
    [
        (None, 60.0, list(client.PAUSES)),
        ("3", 60.0, [3.0, 3.0]),
        ("30", 60.0, [30.0]),  # the second pause would outlast the deadline
        ("61", 60.0, []),
        ("soon", 60.0, list(client.PAUSES)),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 60.0, list(client.PAUSES)),
        (None, 0.4, []),
    ],
    ids=["nothing", "3", "30", "61", "soon", "a date", "a short deadline"],
)
@pytest.mark.parametrize("status", client.BUSY)
def test_a_busy_server_is_asked_three_times_within_the_deadline(clock, status, asked, seconds, pauses):
    headers = {} if asked is None else {"Retry_After": asked}
    with HostileServer() as server:
        server.pieces = lambda _: whole("", f"{status} busy", **headers)
        assert ask(server.url, headers={}, seconds=seconds).status == status
        assert len(server.asked) == len(pauses) + 1
    assert clock.pauses == pauses


def test_this_machine_is_asked_without_a_proxy_and_others_through_it(other, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with HostileServer() as server:
        assert ask(server.url, {"a": 1}, headers=bearer(engines.TOKEN), seconds=30).json() == {}
    (asked,) = server.asked
    assert asked.startswith("POST / ") and asked.endswith('{"a": 1}') and f"Bearer {SECRET}" in asked
    assert not other.asked
    ask("http://server.invalid/x", headers={}, seconds=30)
    assert other.asked[0].startswith("GET http://server.invalid/x ")


def test_a_coroutine_of_the_users_that_blocks_its_loop_does_not_hold_up_requests(other):
    entered, asked = threading.Event(), threading.Event()

    async def judge():
        entered.set()
        return asked.wait(60)  # a blocking call, as of another client

    with ThreadPoolExecutor(1) as beside:
        judged = beside.submit(wait_for, judge())
        assert entered.wait(60)
        try:
            assert ask(other.url, headers={}, seconds=5.0).status == 200
        finally:
            asked.set()
        assert judged.result()


def test_addresses():
    right = ["http://localhost:8000", "https://host/path", "http://[::1]:80", "HTTP://host"]
    wrong = ["localhost:8000", "http://", "http://x:99999", "http://u:p@x", "http://x?a", "ftp://x", "http://[x", "", 5]
    assert [is_address(url) for url in (*right, *wrong)] == [True] * 4 + [False] * 9
    near = ["http://localhost", "http://127.0.0.2:1", "http://[::1]:1"]
    assert [is_loopback(url) for url in (*near, "http://host", "http://10.0.0.1")] == [True] * 3 + [False] * 2


def test_a_token_that_no_header_can_carry_is_named_and_not_shown(monkeypatch):
    for token in (f"{SECRET}\n", f"{SECRET}\nHost: x", f"{SECRET}é"):
        monkeypatch.setenv(engines.TOKEN, token)
        with pytest.raises(ValueError, match=engines.TOKEN) as refused:
            bearer(engines.TOKEN)
        assert SECRET not in str(refused.value)
