"""`rlenv serve`, driven by OpenEnv's client, and trained against by the verifier "openenv"."""

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from hostile_server import DROPS, HostileServer

from rlenv.verifiers import Problem, make_verifier
from rlenv.verifiers.dialogues import openenv_client
from rlenv.verifiers.dialogues.tools import WithTools

openenv = pytest.importorskip("openenv")
closed, sync = map(pytest.importorskip, ("websockets.exceptions", "websockets.sync.client"))
pytestmark = pytest.mark.neighbours


class Served:
    """A server in a process of its own."""

    def __init__(self, *options):
        command = [sys.executable, "-m", "rlenv", "serve", "--verifier", "guess", "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.line = self.process.stdout.readline()
        self.url = self.line.split(" at ")[1].split(",")[0] if " at " in self.line else ""

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


@pytest.fixture(scope="module")
def guess():
    made = Served("--max-sessions", "4", "--max-message-bytes", "2000")
    yield made
    assert made.end() == (0, "ended\n")


def test_a_dialogue_in_which_clients_send_texts_or_values(guess):
    with openenv.GenericEnvClient(guess.url).sync() as env:
        result = env.reset(seed=3)
        while not result.done:
            result = env.step({"text": "50"})
        assert result.metadata["verdict_status"] == "ok" and result.reward == 0
        with pytest.raises(RuntimeError, match="send a reset"):
            env.step({"text": "50"})
        for value in (50, 50.0, [50], True):
            assert env.reset(seed=3).observation["messages"][0]["role"] == "user"
            said = env.step({"text": value}).observation
            env.reset(seed=3)
            assert said == env.step({"text": json.dumps(value)}).observation


def test_the_end_has_the_counts_of_all_turns():
    from rlenv.openenv_server import TurnAction, VerifierEnvironment
    from rlenv.posing import Posed

    env = VerifierEnvironment(Posed(WithTools(make_verifier("arith"), ["calculator"])))
    env.reset(seed=0)
    calls = [f'<tool_call>{{"name": "{name}", "arguments": {{"expression": "1"}}}}</tool_call>' for name in "xy"]
    turns = [env.step(TurnAction(text=text)).metadata["counts"] for text in [*calls, "1"]]
    assert [each.get("tool_errors") for each in turns] == [1, 1, 2]


def test_sessions_beyond_the_limit_are_refused_and_none_leaks(guess):
    async def one():
        async with openenv.GenericEnvClient(guess.url) as env:
            try:
                await env.reset(seed=1)
            except RuntimeError as error:
                assert "CAPACITY_REACHED" in str(error)
                return False
            await asyncio.sleep(1)
            return True

    async def crowd():
        return sum(await asyncio.gather(*(one() for _ in range(40))))

    assert [asyncio.run(crowd()) for _ in range(2)] == [4, 4]


NO_MCP = "MCP is not offered; a session ends with its connection"  # so that none can end that of another


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("hello", "INVALID_JSON"),
        ('{"type": "step", "data": {"txt": 1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"level": 9}}', "level must be a whole number from 1 to 1, got 9"),
        ('{"type": "reset", "data": {"seed": 1e400}}', "VALIDATION_ERROR"),
        ("x" * 3000, "limit of 2000 bytes"),
        (b"\x00", "messages are text"),
        ('{"type": "mcp", "data": {"method": "openenv/session/close", "params": {"session_id": "x"}}}', NO_MCP),
        ('{"type": "\\u006dcp", "data": {"method": "openenv/session/create"}}', NO_MCP),
    ],
)
def test_messages_that_are_refused(guess, message, answer):
    with sync.connect(f"{guess.url.replace('http', 'ws')}/ws", proxy=None) as connection:
        try:
            connection.send(message)
            said = connection.recv(timeout=30)
        except closed.ConnectionClosed as error:
            said = str(error)
        assert answer in said


def test_clients_that_send_no_utf8_or_vanish_print_nothing():
    from websockets.asyncio.client import connect

    async def vanish(turn):
        connection = await connect(address, proxy=None)
        await connection.send('{"type": "reset", "data": {"seed": 1}}')
        await connection.recv()
        await connection.send(json.dumps({"type": "step", "data": {"text": turn}}))
        connection.transport.abort()

    served = Served()
    address = f"{served.url.replace('http', 'ws')}/ws"
    for _ in range(3):
        with sync.connect(address, proxy=None) as connection:
            connection.send(b"\xff\xfe", text=True)
            with pytest.raises(closed.ConnectionClosed, match="1007"):
                connection.recv(timeout=30)
    for turn in map(str, range(10)):
        asyncio.run(vanish(turn))
    assert served.end() == (0, "ended\n")


def test_idle_sessions_are_closed_and_a_token_is_asked_for(monkeypatch):
    served = Served("--idle-timeout", "0.5", "--token", "secret")
    with pytest.raises(ConnectionError, match="403"):
        openenv.GenericEnvClient(served.url).sync().connect()
    with pytest.raises(ValueError, match="set OPENENV_TOKEN to its token"):
        make_verifier(f"openenv:{served.url}")
    monkeypatch.setenv("OPENENV_TOKEN", "secret")
    made = make_verifier(f"openenv:{served.url}")
    playing = made.dialogue(made.examples()[0])
    playing.reply("50")
    with pytest.raises(closed.ConnectionClosed, match="idle for"):
        playing._session._socket.recv(timeout=30)
    assert playing.reply("50").counts["reconnects"] == 1
    assert served.end()[0] == 0


@pytest.mark.parametrize("path", ["reset", "mcp", "x"])
def test_a_request_that_cannot_play_is_refused_before_its_body_came(guess, path):
    host, port = guess.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 404") and b"episodes are played at /ws" in answer


def test_an_address_for_others_needs_a_token_and_one_that_is_taken_is_named(guess, monkeypatch):
    monkeypatch.delenv("OPENENV_TOKEN", raising=False)
    others, port = ("--host", "0.0.0.0"), guess.url.rpartition(":")[2]
    for options, said in ((others, "OPENENV_TOKEN"), (("--port", port), f"cannot serve at 127.0.0.1:{port}: ")):
        refused = Served(*options)
        refused.process.communicate(timeout=60)
        assert refused.process.returncode == 2 and said in refused.line
    for more in (["--insecure"], ["--token", "secret"]):
        served = Served(*others, *more)
        served.end()
        assert served.url.startswith("http://0.0.0.0:")


def test_ours_comes_in_as_it_goes_out(guess):
    made, own = make_verifier(f"openenv:{guess.url}", longest=200), make_verifier("guess")
    for seed in range(5):
        there = made.dialogue(Problem(made.opening(seed), metadata={"seed": seed}))
        rng = random.Random(seed)
        rng.randint(1, 1)  # the level
        here = own.dialogue(own.sample(rng))
        for turn in ("50", "25", "75", "x", "10", "90", "30"):
            theirs, ours = there.reply(turn), here.reply(turn)
            if theirs.verdict is not None:
                break
            assert (theirs.content, theirs.reward) == (ours.content, ours.reward)
    made.close()


@pytest.mark.parametrize("kind", ["redirect 302", "redirect 307", "drops of headers", "endless 100 Continue", "HTML"])
def test_a_hostile_server_gets_no_websocket_and_no_token_goes_on(kind, monkeypatch):
    """Each ends within its deadline: the drops would come for three seconds, and others without end."""
    monkeypatch.setenv(openenv_client.TOKEN, "tok-123456")
    with HostileServer() as other, HostileServer(kind, other.url) as server, ExitStack() as stack:
        with pytest.raises(openenv_client.ServerError, match="no connection to") as refused:
            openenv_client.Server(server.url, 0.3).connect(stack)
        assert not other.asked and server.sent < DROPS * 2**15
    assert str(refused.value).isprintable() and "tok-123456" not in str(refused.value)
