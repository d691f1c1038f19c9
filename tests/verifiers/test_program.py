"""Programs that call a chat API as episodes: good ones, hostile ones, in threads and in worker processes."""

import asyncio
import http.client
import json
import socket
import sys
import threading
from contextlib import ExitStack, closing
from functools import partial
from select import select

import cloudpickle
import gymnasium as gym
import programs
import pytest
from processes import eventually
from programs import ASK, HOSTILE, HOSTILE_PROCESSES, TOOL, agent, calling, say, user

import rlenv  # noqa: F401
from rlenv.verifiers import Isolated, Problem, Verdict, make_verifier
from rlenv.verifiers.base import Completion
from rlenv.verifiers.builtin import Program
from rlenv.verifiers.dialogues import program_run, replay
from rlenv.verifiers.dialogues.calls import Call
from rlenv.verifiers.dialogues.chat_client import as_object, completion
from rlenv.verifiers.dialogues.toolbox import CALL_LENGTH
from rlenv.verifiers.sandbox.pool import _Workers

cloudpickle.register_pickle_by_value(programs)  # so that workers need not find it
SUM = Problem("1+1=", "2", {"row": 1})
CALL = Call("calculator", {"expression": "1+1"})


@pytest.fixture(autouse=True)
def left(monkeypatch):
    """Return a function that returns the threads which the test has left; in the end there are none.

    Those of before are of verifiers that tests of other files keep.
    """
    monkeypatch.setattr(program_run, "PATIENCE", 0.1)
    before = {*threading.enumerate()}

    def threads():
        return [each for each in threading.enumerate() if each.name.startswith("rlenv-") and each not in before]

    yield threads
    assert eventually(lambda: not threads())


def turn(text, calls=None):
    return Completion.of(text, None, {}, calls)


def episode(program, *turns):
    """Return the replies to turns, and the verdict on the last one."""
    playing = program.dialogue(program.opened(SUM))
    replies = [playing.reply(each) for each in turns]
    playing.close()
    assert all(reply.verdict is None for reply in replies[:-1])
    return [reply.content for reply in replies[:-1]], replies[-1].verdict


def test_an_episode_is_a_run_of_a_program():
    program = make_verifier(agent)
    problem = program.opened(SUM)
    assert problem.prompt == ASK and problem.answer == "2"
    assert [tool.__name__ for tool in program.turns.tools] == ["calculator"] and program.turns.tools[0].schema == TOOL
    said, verdict = episode(program, turn("<tool_call>...", [CALL]), turn("2 "))
    assert said == [[{"role": "tool", "content": "2"}]] and verdict == Verdict(1.0, {"calls": 1})
    assert episode(program, turn("3"))[1] == Verdict(0.0, {"calls": 0})


def test_a_plain_call_has_arguments_by_name():
    for asked in (turn("calculator(1+1)", [Call("calculator", "1+1")]), "calculator(1+1)"):  # the latter demonstrated
        said, verdict = episode(Program(agent), asked, turn("2"))
        assert said[0][0]["content"] == "2" and verdict.reward == 1


@pytest.mark.parametrize("parameters", [{"type": "object", "properties": {"any": True}}, True, None])
def test_a_tool_may_take_anything_by_its_schema(parameters):
    tool = {"type": "function", "function": {"name": "tell", "parameters": parameters}}

    def solve(problem, client):
        return float(bool(say(client, tools=[tool]).tool_calls))

    called = turn("tell", [Call("tell", {"any": 1})])
    assert Program(solve).opened(SUM).prompt == ASK and episode(Program(solve), called)[1] == Verdict(1.0)


@pytest.mark.parametrize(("solve", "status", "words"), [(solve, status, words) for solve, status, *words in HOSTILE])
def test_a_hostile_program_is_one_line_and_leaves_nothing(solve, status, words, left):
    program = Program(solve, timeout=0.2)
    playing, verdict = program.dialogue(SUM), None
    if solve in programs.AT_ONCE:  # before the model has answered
        playing.run = program_run.ProgramRun(program, SUM, 0)
        playing.run.next()
        assert eventually(lambda: playing.run._end, 5)
    for said in ("2", "3"):
        verdict = verdict or playing.reply(turn(said)).verdict
    playing.close()
    assert verdict is not None and (verdict.status, verdict.reward) == (status, 0)
    assert "\n" not in verdict.reason and [word for word in words if word not in verdict.reason] == []
    assert eventually(lambda: not left(), 5)


@pytest.fixture
def worker(mark):
    """Return a function that plays turns in a worker process; none is left afterwards."""
    with ExitStack() as stack:

        def make(program, timeout=30.0):
            pool = stack.enter_context(closing(Isolated(program, workers=1, timeout=timeout)))
            return lambda problem, *turns: pool.ask([(problem, [*turns])])[0].result(60)

        yield make


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found and cleared away with Linux's means")
@pytest.mark.parametrize(
    ("solve", "status", "words"), [(solve, status, words) for solve, status, *words in HOSTILE_PROCESSES]
)
def test_a_hostile_program_in_a_worker_process(worker, solve, status, words):
    play, first = worker(Program(solve), 0.5 if solve is programs.sleeps else 30.0), turn("2")
    reply = play(SUM, first)
    if reply.verdict is None:
        first.reply = reply.content
        reply = play(SUM, first, turn("3"))
    assert reply.verdict.status == status and all(word in reply.verdict.reason for word in words)


def test_an_unpickled_episode_and_a_worker_process_repeat_the_program(worker):
    program, first, last = Program(agent), turn("calculator(1+1)", [CALL]), turn("2")
    problem, play = program.opened(SUM), worker(program)
    playing = program.dialogue(problem)
    first.reply = play(problem, first).content
    assert playing.reply(first).content == first.reply == [{"role": "tool", "content": "2"}]
    copy = cloudpickle.loads(cloudpickle.dumps(playing))
    playing.close()
    assert copy.reply(last).verdict == play(problem, first, last).verdict == Verdict(1.0, {"calls": 1})
    assert play(problem, first, None).verdict == Verdict(0.0, success=False)


def test_a_worker_whose_program_does_not_end_is_replaced(monkeypatch, worker):
    def solve(problem, client):
        program_run.PATIENCE = 0.05
        programs.ignores_interrupts(problem, client, 60.0)

    retired, retire = [], _Workers._retire
    monkeypatch.setattr(_Workers, "_retire", lambda pool, each: (retired.append(each), retire(pool, each))[1])
    reply = worker(Program(solve, timeout=0.2))(SUM, turn("2"))
    assert reply.verdict.status == "timeout" and eventually(lambda: retired)


def test_randomness_is_that_of_the_problem():
    import random

    def solve(problem, client):
        number = random.random()
        say(client, [user(f"{number}")])
        return random.random() - number

    program, before = Program(solve), random.getstate()
    one, other = (program.opened(each) for each in (SUM, Problem("1+1=", "2", {"row": 2})))
    assert one.prompt == program.opened(SUM).prompt != other.prompt
    assert episode(program, turn("2")) == episode(program, turn("3")) and random.getstate() == before


def test_the_budget_ends_with_what_the_program_returns():
    def patient(problem, client):
        try:
            say(client)
        except Exception as error:
            return 0.5 if "used up" in str(error) else 0.0

    def insisting(problem, client):
        while True:
            try:
                say(client)
            except Exception:
                continue

    spent = Verdict(0.0, success=False)
    for solve, verdict in ((patient, Verdict(0.5)), (insisting, spent), (agent, spent)):
        playing = Program(solve).dialogue(SUM)
        assert playing.out_of_budget() == verdict
        playing.close()
    replayed = replay(Program(agent, reward_range=(-2, -1)), SUM, [turn("", [CALL]), None])
    assert replayed.verdict == Verdict(-1.0, success=False)


class Agent:
    async def __call__(self, problem, client, right=1.0):
        answer = await client.chat.completions.create(messages=[user(problem.text)])
        await asyncio.sleep(0)
        return right * (answer.choices[0].message.content == problem.answer)

    async def solve(self, problem, client):
        return await self(problem, client)


@pytest.mark.parametrize("solve", [Agent(), Agent().solve, partial(Agent().solve), partial(Agent(), right=1.0)])
def test_an_async_program_awaits_the_client_whatever_kind_of_callable_it_is(solve):
    assert episode(make_verifier(solve), turn("2"))[1] == Verdict(1.0)


def test_what_a_turn_looks_like_in_an_answer(monkeypatch):
    """In objects of OpenAI's library if it is installed, else in others with the same attributes."""
    limits = {"tools": [TOOL], "max_tokens": None, "stop": ["\n"]}
    tagged = turn('think <tool_call>{"name": ...}</tool_call>', [CALL])
    answer = completion(3, tagged, limits)
    monkeypatch.setitem(sys.modules, "openai.types.chat", None)
    (choice,) = as_object(answer).choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content, choice.message.role) == ("tool_calls", "think", "assistant")
    assert (call.id, call.type, call.function.name) == ("call_3_1", "function", "calculator")
    assert json.loads(call.function.arguments) == {"expression": "1+1"}
    assert choice.message.model_dump(exclude_none=True) == answer["choices"][0]["message"]
    cut = turn("2\n3")
    cut.cut = True
    (choice,) = as_object(completion(1, cut, limits)).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("2", None, "length")
    broken = completion(1, turn("<tool_call>{", [Call(fault="not JSON")]), limits)["choices"][0]
    assert broken["message"]["content"] == "<tool_call>{" and broken["finish_reason"] == "stop"


def test_a_problem_that_the_program_does_not_ask_about():
    def picky(problem, client):
        if problem.answer:
            say(client)
        raise OSError("no answer")

    program = Program(picky)
    with pytest.raises(ValueError, match=r"picky\(problem, client\): OSError: no answer"):
        program.opened(Problem("1+1="))
    program.opened(SUM)
    problem = program.opened(Problem("1+1="))
    assert problem.prompt == "1+1="
    verdict = program.dialogue(problem).reply("2").verdict
    assert verdict.status == "error" and "no answer" in verdict.reason


def test_problems_offer_the_tools_of_the_first():
    program = Program(lambda problem, client: float(bool(say(client, tools=[TOOL] * (problem.answer == "2")))))
    program.opened(SUM)
    verdict = program.dialogue(program.opened(Problem("1+1=", "3"))).reply(turn("2")).verdict
    assert verdict.status == "error" and "tools" in verdict.reason and "first problem" in verdict.reason


def test_the_limits_of_the_first_call_are_those_of_the_environment():
    settings = {"problems": [SUM], "test_fraction": 0.0, "verifier_workers": 0, "disable_env_checker": True}
    made = [
        gym.make("TextGen-v0", verifier=programs.twice(), **settings, **more).unwrapped.task.encoding
        for more in ({}, {"stop_strings": "!", "max_new_tokens": 5})
    ]
    assert [(each.stop_strings, each.max_new_tokens) for each in made] == [(("\n",), 8), (("!",), 5)]
    assert [tool["function"]["name"] for tool in made[0].encoder.chat.schemas] == ["calculator"]


def test_a_later_call_may_ask_for_more_tokens_and_for_less_again():
    def solve(problem, client):
        said = list(ASK)
        for most in (8, 16, 8):
            said += [say(client, said, max_tokens=most), user("sure?")]
        return 1.0

    assert episode(Program(solve), turn("2"), turn("3"), turn("4"))[1] == Verdict(1.0)


def made_with_tools(solve):
    settings = {"max_reply_tokens": 40, "test_fraction": 0.0, "verifier_workers": 0, "disable_env_checker": True}
    return gym.make("TextGen-v0", verifier=Program(solve), problems=[SUM], tools=["calculator"], **settings)


def test_tools_around_a_program_answer_turns_of_their_own_leave_room_for_both_and_are_refused_if_it_has_tools():
    lengths = [made_with_tools(calling(max_tokens=most)).unwrapped.task.encoding.max_new_tokens for most in (300, 8)]
    assert lengths == [300, 1 + CALL_LENGTH]
    with pytest.raises(ValueError, match=r"Program has tools of its own \(calculator\)"):
        made_with_tools(agent)
    env = made_with_tools(calling(stop=["\n"]))
    env.reset(seed=0)
    encoding = env.unwrapped.task.encoding
    assert (encoding.stop_strings, encoding.max_turns) == (("\n",), 14)
    infos = []
    for text in ("calc(1+1)\n", "2\n"):
        for action in encoding.tokenizer.encode(text, add_special_tokens=False):
            *_, info = env.step(action)
        infos.append(info)
    env.close()
    assert infos[0]["reply"].strip() == "2" and (infos[1]["tool_calls"], infos[1]["is_success"]) == (1, True)


def post(client, body=None, key=None, path="/chat/completions"):
    address = client.base_url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(address, timeout=10)
    body = json.dumps({"messages": ASK}) if body is None else body
    connection.request("POST", f"/v1{path}", body, {"Authorization": f"Bearer {key or client.api_key}"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def test_the_endpoint_answers_by_the_same_turns_and_usage_counts_the_tokens_of_the_episode():
    """In the client and in the endpoint: the context before the turn, and the turn."""
    told = []

    def solve(problem, client):
        answer = client.chat.completions.create(messages=ASK)
        said = [*ASK, answer.choices[0].message.model_dump(), user("sure?")]
        status, second = post(client, json.dumps({"messages": said, "stream": False, "temperature": 1}))
        told.extend([answer.usage.model_dump(), second["usage"]])
        assert (status, second["choices"][0]["message"]["content"]) == (200, "33")
        return 3.0

    settings = {"max_new_tokens": 2, "max_turns": 2, "test_fraction": 0.0, "disable_env_checker": True}
    env = gym.make("TextGen-v0", verifier=solve, problems=[SUM], verifier_workers=0, **settings)
    observation, _ = env.reset(seed=0)
    wanted = []
    for text in ("22", "33"):
        before = int(observation["length"])
        for action in env.unwrapped.task.encoding.tokenizer.encode(text, add_special_tokens=False):
            observation, reward, done, _, _ = env.step(action)
        wanted.append({"prompt_tokens": before, "completion_tokens": 2, "total_tokens": before + 2})
    env.close()
    assert done and reward == 3 and wanted[0]["prompt_tokens"] < wanted[1]["prompt_tokens"]
    assert [{key: each[key] for key in wanted[0]} for each in told] == wanted
    assert completion(1, "2", {"tools": [], "max_tokens": None, "stop": []})["usage"] is None  # nobody sampled it


def connected(client):
    host, port = client.base_url.removeprefix("http://").partition("/")[0].split(":")
    return socket.create_connection((host, int(port)), 5)


def test_an_episode_that_ends_cuts_off_half_requests(left):
    connections = []

    def solve(problem, client):
        for _ in range(20):
            connections.append(connected(client))
            connections[-1].sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
        say(client)
        return 1.0

    assert episode(Program(solve), turn("2"))[1] == Verdict(1.0)
    assert eventually(lambda: not left(), 5)
    for each in connections:
        with each:
            assert select([each], [], [], 5)[0], "the endpoint neither answers nor closes a connection"


def test_an_idle_connection_holds_up_no_request():
    def solve(problem, client):
        with connected(client):
            return float(post(client)[0])

    assert Program(solve, timeout=2.0).dialogue(SUM).reply(turn("2")).verdict == Verdict(200.0)


def raw(client, text, ends=True):
    """Return what the endpoint says to half a request."""
    with connected(client) as connection:
        connection.sendall(text.replace("KEY", client.api_key).encode())
        if ends:
            connection.shutdown(socket.SHUT_WR)
        return int(connection.recv(1000).split()[1])


HEAD = "POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer KEY\r\n"
CLIENTS = [  # what a client does, the status that it gets
    (lambda client: post(client, key="wrong")[0], 401),
    (lambda client: post(client, key="é")[0], 401),
    (lambda client: post(client, path="/models")[0], 404),
    (lambda client: post(client, "{")[0], 400),
    (lambda client: post(client, "[]")[0], 400),
    (lambda client: raw(client, f"{HEAD}Content-Length: {2**23}\r\n\r\n"), 413),
    (lambda client: raw(client, f"{HEAD}\r\n"), 413),
    (lambda client: raw(client, f"{HEAD}Content-Length: 100\r\n\r\n{{"), 400),
    (lambda client: raw(client, f"{HEAD}Content-Length: 9\r\n\r\n{{", ends=False), 408),
]


@pytest.mark.parametrize(("act", "status"), CLIENTS)
def test_a_hostile_client_costs_the_program_nothing(act, status, monkeypatch):
    if status == 408:
        monkeypatch.setattr("rlenv.chat_server.Handler.timeout", 0.1)

    def solve(problem, client):
        answers = [act(client) for _ in range(3)]
        return float((answers, post(client)[0]) == ([status] * 3, 200))

    assert episode(Program(solve), turn("2"))[1] == Verdict(1.0)


def test_a_refused_call_is_an_answer_of_the_endpoint():
    def solve(problem, client):
        status, answer = post(client, json.dumps({"messages": ASK, "n": 2}))
        assert status == 400 and answer["error"]["code"] == "episode_over" and "n=2" in answer["error"]["message"]
        return 1.0

    verdict = Program(solve).dialogue(SUM).reply(turn("2")).verdict
    assert verdict.status == "error" and "n=2" in verdict.reason


def test_keys_are_of_one_episode_after_whose_end_no_call_has_an_answer():
    clients = []

    def solve(problem, client):
        clients.append(client)
        status, _ = post(client, key=clients[0].api_key)
        if status != 200:
            say(client)
        return float(status)

    program = Program(solve)
    assert [program.dialogue(SUM).reply(turn("2")).verdict.reward for _ in range(2)] == [200, 401]
    for client in clients:  # of whom the second one has asked by itself
        with pytest.raises(BaseException, match="after its end"):
            say(client)
