"""The verifier "openenv", against a server in this process."""

import copy
import random

import pytest
from hostile_server import HostileServer, whole
from openenv_servers import TEXT, URL, PretendServer

from rlenv.verifiers import make_verifier
from rlenv.verifiers.base import is_success
from rlenv.verifiers.dialogues.openenv import ActionForm, text_of
from rlenv.verifiers.dialogues.openenv_client import Server, ServerError

DATA = '{"type": "observation", "data": %s}'
TWO = {"properties": {"x": {"type": "integer"}, "y": {"type": "string"}}, "required": ["x", "y"]}
ONE = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.fixture
def server(monkeypatch):
    made = PretendServer()
    made.install(monkeypatch)
    return made


def world(**kwargs):
    return make_verifier(f"openenv:{URL}", patience=5, **kwargs)


def episode(made, seed=7):
    problem = made.sample(random.Random(0))
    return made.dialogue(type(problem)(problem.prompt, metadata={"seed": seed}))


@pytest.mark.parametrize(
    ("schema", "turn", "action"),
    [
        (TEXT, "7", {"guess": "7"}),
        (TEXT, '{"guess": "7"}', {"guess": "7"}),
        (TEXT, 'so\n```json\n{"guess": "7"}\n```', {"guess": "7"}),
        (TEXT, '{"other": "7"}', {"guess": '{"other": "7"}'}),
        (TEXT, "[" * 100_000, {"guess": "[" * 100_000}),
        (ONE, "7", {"x": 7}),
        (ONE, "seven", None),
        (ONE, '{"y": 7}', None),
        (TWO, '{"x": 1, "y": "b"}', {"x": 1, "y": "b"}),
        (TWO, '{"x": 1}', None),
        ({}, "{}", {}),
    ],
)
def test_a_turn_states_an_action(schema, turn, action):
    assert ActionForm(schema).read(turn) == action


def test_an_episode_with_its_rewards(server):
    made = world(longest=12)
    problem = made.sample(random.Random(0))
    assert problem.prompt == "a digit? " and made.split_key(problem) == str(problem.metadata["seed"])
    other, right = (made.dialogue(problem) for _ in range(2))
    said = other.reply("x")
    assert said.content == "no <|im_end|" and said.counts["cut_observations"] == 1, "what it says is data"
    assert [said.reward, other.reply("x").verdict.reward] == [0.25, 0.25]
    reply = right.reply(str(problem.metadata["seed"] % 10))
    assert is_success(made, reply.verdict) and reply.reward == 0
    assert len(server.sessions) == 2
    made.close()
    assert not server.sessions


def test_what_is_not_an_action_is_answered(server):
    server.schema = TWO
    reply = episode(world()).reply("nonsense")
    assert reply.content == 'Not an action: write {"x": integer, "y": string}' and reply.counts["invalid_actions"] == 1
    server.schema = {"properties": {"guess": {}}, "required": ["guess"]}
    playing = episode(world())
    reply = playing.reply('{"guess": 3}')
    assert reply.content == "Not an action: guess: it should be a text" and reply.verdict is None
    assert playing.reply('{"guess": "7"}').verdict.reward == 1


def test_a_copy_goes_on_in_a_session_of_its_own_and_a_lost_session_is_repeated(server):
    playing = episode(world())
    playing.reply("x")
    copies = [copy.deepcopy(playing) for _ in range(2)]
    assert copies[0].reply("x") == copies[1].reply("x")
    before, server.lose, server.down = len(server.resets), 1, 3
    reply = playing.reply("x")
    assert reply.verdict.reward == 0.25 and reply.counts["reconnects"] == 1
    assert server.resets[before:] == [7]


@pytest.mark.parametrize(
    ("turn", "raw", "status", "reason"),
    [
        ("crash", [], "error", "the server says EXECUTION_ERROR: division by zero"),
        ("x", ["nonsense"], "error", "the server's message cannot be read: 'nonsense'"),
        ("x", ['{"type": "observation", "data": {}}'], "error", "the server answers without an observation: {}"),
        ("x", [DATA % f'{{"observation": {{}}, "reward": {"9" * 400}}}'], "error", "reward must be a finite number"),
        ("x", [DATA % ("[" * 100_000)], "error", "cannot be read"),
    ],
)
def test_a_server_that_fails_ends_the_episode_with_an_error(server, turn, raw, status, reason):
    playing = episode(world())
    playing.reply("y")
    server.raw = raw
    verdict = playing.reply(turn).verdict
    assert verdict.status == status and reason in verdict.reason


def test_a_server_that_goes_away_costs_episodes_and_not_the_run(server):
    made = make_verifier(f"openenv:{URL}", patience=0)
    server.down = 10**9
    problem = made.sample(random.Random(0))
    verdict = made.dialogue(problem).reply("7").verdict
    assert verdict.status == "error" and "Connection refused" in verdict.reason
    server.down = 0
    assert made.sample(random.Random(0)).metadata["seed"] == problem.metadata["seed"]


def test_more_episodes_than_sessions_take_turns(server):
    server.max_sessions = 2
    made = world()
    playing = [episode(made, seed) for seed in range(6)]
    first = [each.reply("x") for each in playing]
    assert [reply.reward for reply in first] == [0.25] * 6 and sum(each.counts["reconnects"] for each in first) == 0
    assert [each.reply(str(seed)).verdict.reward for seed, each in enumerate(playing)] == [1] * 6


def test_an_action_that_the_server_does_not_read_in_time(server):
    playing = episode(world(timeout=0.2))
    server.deaf = True
    verdict = playing.reply("x").verdict
    assert (verdict.status, verdict.reason) == ("timeout", "the server took longer than 0.2 s for a reset")


@pytest.mark.parametrize("required", ["5", '[["a"]]'])
def test_a_schema_whose_required_fields_are_no_names_is_refused(required):
    with HostileServer() as hostile, pytest.raises(ServerError, match="has no schema of actions"):
        hostile.pieces = lambda _: whole(f'{{"action": {{"required": {required}}}}}')
        Server(hostile.url, 30).schema()


def test_observations_as_text():
    assert text_of({"message": "hello", "left": 2, "metadata": {"a": "b"}}) == "hello"
    assert text_of({"a": "x", "b": "y"}) == '{"a": "x", "b": "y"}'
    assert text_of({"a": "x", "b": "y"}, field="b") == "y"
