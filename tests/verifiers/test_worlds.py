"""Environments of others as verifiers: classes as TRL takes them; gym, gem and textarena, with small ones instead.

And "openenv", against a server in this process.
"""

import asyncio
import copy
import random
import sys
import types
from enum import Enum

import gymnasium
import pytest
from environment_classes import Numbers, by_guesses
from hostile_server import HostileServer, whole
from openenv_servers import TEXT, URL, PretendServer

import rlenv  # noqa: F401
from rlenv.verifiers import Problem, isolate, make_verifier
from rlenv.verifiers.base import is_success
from rlenv.verifiers.dialogues import replay
from rlenv.verifiers.dialogues.openenv import ActionForm, text_of
from rlenv.verifiers.dialogues.openenv_client import Server, ServerError
from rlenv.verifiers.plugins import user_code
from rlenv.verifiers.plugins.registry import trusting

SEVEN = Problem("Play: ", metadata={"target": 7})


class Later(Numbers):
    """The same, async, with a lock that belongs to the event loop of the first call."""

    lock = None

    async def guess(self, number: int) -> str:
        self.lock = self.lock or asyncio.Lock()
        async with self.lock:
            await asyncio.sleep(0)
        return super().guess(number)

    async def get_reward(self):
        async with self.lock or asyncio.Lock():
            return self.reward


class Unpaid(Numbers):
    get_reward = None


class Silent(Numbers):
    def reset(self, **columns): ...


def played(made, problem):
    """Return the replies and the verdict of an episode that guesses 5 and 7."""
    playing = made.dialogue(problem)
    said = [playing.reply(f"guess({number})").content[0]["content"] for number in (5, 7)]
    verdict = playing.reply("done").verdict
    playing.close()
    return said, verdict


@pytest.mark.parametrize("cls", [Numbers, Later])
def test_an_episode_of_an_environment_class(cls):
    made = make_verifier(cls)
    problem = made.opened(SEVEN)
    assert problem.prompt == "Play: 1 to 9, odd? " and list(made.dialogue(problem).instance.box.by_name) == ["guess"]
    said, verdict = played(made, problem)
    assert said == ["higher", "right"] and verdict.reward == pytest.approx(0.9) and verdict.parts == {}


def test_calls_that_fail_are_answered_and_those_of_the_last_turn_are_not_made():
    playing = make_verifier(Numbers).dialogue(SEVEN)
    assert playing.reply("guess(10)").content[0]["content"] == "Error: between 1 and 9"
    reply = playing.reply("guess(1)\nreset()")
    assert [each["content"] for each in reply.content] == ["higher"] and reply.counts["tool_calls"] == 1
    short = make_verifier(Numbers, turns=1).dialogue(SEVEN)
    assert short.reply("guess(1)").verdict is None
    assert short.reply("guess(7)").verdict.reward == 0 and short.instance.env.guesses == 1


def test_reset_gets_the_columns_of_the_problem():
    made = make_verifier(Numbers)
    problem = made.opened(Problem("Play: ", "7", {"target": 7, "hint": "odd"}))
    assert made.dialogue(problem).instance.env.resets == [{"prompt": "Play: ", "answer": "7", "hint": "odd"}] * 2
    talk = made.opened(Problem([{"role": "user", "content": "Play: "}], metadata={"target": 6}))
    assert talk.prompt == [{"role": "user", "content": "Play: 1 to 9, even? "}]


def test_without_listed_problems_a_problem_is_a_seed():
    made, before = make_verifier(Numbers), random.getstate()
    problem = made.sample(random.Random(3))
    assert random.getstate() == before and problem.prompt.startswith("1 to 9") and set(problem.metadata) == {"seed"}
    playing = [made.dialogue(problem) for _ in range(8)]
    assert len({each.instance.env.number for each in playing}) == 1
    assert made.split_key(problem) == str(problem.metadata["seed"])
    listed = [made.opened(Problem("Play: ", metadata={"seed": 1, "target": target})) for target in (7, 9, 7)]
    keys = [made.split_key(each) for each in listed]
    assert listed[0].prompt == listed[1].prompt and keys[0] == keys[2] != keys[1]
    others = [made.dialogue(made.sample(random.Random(seed))) for seed in range(20)]
    assert len({each.instance.env.number for each in others}) > 3
    assert playing[0].instance.env.resets[-1].keys() == {"prompt", "seed"}
    assert made.prompt_length >= 2 * len("1 to 9, odd? ") and make_verifier(Silent).prompt_length is None


def test_functions_beside_it_and_names_in_a_file(monkeypatch):
    made = make_verifier([Numbers, by_guesses], reward_weights=[2.0, 0.25], turns=3)
    _, verdict = played(made, SEVEN)
    assert verdict.parts == pytest.approx({"Numbers": 0.9, "by_guesses": 2.0})
    assert verdict.reward == pytest.approx(2 * 0.9 + 0.25 * 2)
    assert made.part_weights == {"Numbers": 2.0, "by_guesses": 0.25} and made.turns.max_turns == 4
    assert played(make_verifier([Unpaid, by_guesses]), SEVEN)[1].reward == 2
    file = sys.modules[Numbers.__module__].__file__
    for spec in (f"{file}:Numbers", f"environment:{file}:Numbers", f"{file}:Numbers,{file}:by_guesses=0"):
        assert played(make_verifier(spec), Problem("-", metadata={"target": 5}))[1].reward == 1
        with trusting(False), pytest.raises(ValueError, match="--trust"):
            make_verifier(spec)
    made = make_verifier(f"{file}:Numbers")
    problem, pool = made.sample(random.Random(0)), isolate(made, workers=1)
    (future,) = pool.ask([(problem, ["guess(5)", "done"])])
    assert future.result() == replay(made, problem, ["guess(5)", "done"])
    pool.close()


def test_the_environment_renders_the_observation_and_pays():
    row = {"prompt": "Play: ", "target": 7}
    env = gymnasium.make("TextGen-v0", verifier=Numbers, problems=[row], test_fraction=0.0)
    env.reset(seed=0)
    task = env.unwrapped.task
    assert env.unwrapped.task.stream[0].prompt == "Play: 1 to 9, odd? "
    for turn in ("guess(5)", "guess(7)", "7"):
        for token in [*task.encoding.encoder.ids([turn])[0], task.encoding.eos_token_id]:
            _, reward, over, _, info = env.step(token)
    assert over and reward == pytest.approx(0.9) and info["turns"] == 3 and info["tool_calls"] == 2
    with pytest.raises(ValueError, match=r"EnvironmentClass.*guess"):
        gymnasium.make("TextGen-v0", verifier=Numbers, tools=["calculator"])


class Own:
    """Draws from a generator that no seed reaches."""

    def __init__(self):
        self.rng = random.Random(0)

    def reset(self):
        return str(self.rng.random())

    def get_reward(self):
        return 1.0


class Seeded(Own):
    def reset(self, seed):
        self.rng = random.Random(seed)
        return super().reset()


def test_an_episode_that_is_not_the_one_in_the_prompt_is_refused():
    made = make_verifier(Own)
    with pytest.raises(ValueError, match=r"Own\.reset.* seed"):
        made.dialogue(made.sample(random.Random(0)))
    made = make_verifier(Seeded)
    for problem in (made.sample(random.Random(0)), made.opened(Problem("Play: "))):
        assert problem.prompt.endswith(made.dialogue(problem).observation)


class Count(gymnasium.Env):
    """Say the digit; each right one pays 0.5."""

    observation_space = action_space = gymnasium.spaces.Text(8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = 0
        return self.ask(), {}

    def ask(self):
        self.digit = str(random.randrange(10))
        return self.digit

    def step(self, action):
        right = action == self.digit
        self.right += right
        return self.ask(), 0.5 * right, self.right == 2, False, {}


Kind = Enum("Kind", "PROMPT PLAYER_ACTION GAME_MESSAGE GAME_BOARD")


class Guess:
    """A number from 1 to 20, drawn from the global random state; a word ends the game with a text for a reward."""

    max_turns = 10

    def reset(self, num_players, seed):
        random.seed(seed)
        self.game_number = random.randint(1, 20)
        self.state, self.said = self, [(-1, "Guess ♠!", Kind.PROMPT), (-1, "| 1-20 |", Kind.GAME_BOARD)]

    def step(self, action):
        if action == "near":
            self.rewards = {0: 0.9}
            return True, {}
        self.said.append((0, action, Kind.PLAYER_ACTION))
        self.rewards = {0: 1.0 if action == f"[{self.game_number}]" else "what?"}
        self.said.append((-1, f"No. {random.random()}", Kind.GAME_MESSAGE))
        return action == "stop" or self.rewards[0] == 1.0, {}

    def get_current_player_observation(self):
        said, self.said = self.said, []
        return said

    def close(self):
        return self.rewards, {}


@pytest.fixture
def libraries(monkeypatch):
    """Put the small environments in the places of registered ones and of packages."""
    monkeypatch.setitem(gymnasium.registry, "Count-v0", gymnasium.envs.registration.EnvSpec("Count-v0", Count))
    for package, made, name in (("gem", Count, "Count-v0"), ("textarena", Guess, "GuessTheNumber-v0")):
        monkeypatch.setitem(sys.modules, package, types.SimpleNamespace(make=lambda name, made=made: made()))
        registration = types.SimpleNamespace(ENV_REGISTRY={name: made})
        monkeypatch.setitem(sys.modules, f"{package}.envs.registration", registration)


@pytest.mark.parametrize("spec", ["gym:Count-v0", "gem:Count-v0"])
def test_rewards_are_those_of_the_steps(libraries, spec):
    verifier = make_verifier(spec)
    problem = verifier.sample(random.Random(0))
    game, again = verifier.dialogue(problem), verifier.dialogue(problem)
    first = game.reply(problem.prompt.strip())
    assert again.reply(problem.prompt.strip()) == first and first.reward == 0.5
    last = game.reply(first.content.strip())
    assert last.reward + last.verdict.reward == 0.5 and is_success(verifier, last.verdict)


GAME = """
import gymnasium
from gymnasium.spaces import Text

class Game(gymnasium.Env):
    observation_space = action_space = Text(9, charset="7: ")
    def reset(self, seed=None, options=None):
        return "7: ", {}
    def step(self, action):
        return "", float(action == "7"), True, False, {}

gymnasium.register("Seven-v0", Game)
"""


def test_an_environment_of_a_module_in_this_folder_plays_also_in_worker_processes(tmp_path, monkeypatch):
    """The command `rlenv` has no folder of the user's on its search path."""
    (tmp_path / "game_of_this_folder.py").write_text(GAME)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_code.CODE, "folders", [])
    try:
        verifier = make_verifier("gym:game_of_this_folder:Seven-v0")
        pool = isolate(verifier, 1)
        problem = verifier.sample(random.Random(0))
        assert pool.ask([(problem, ["7"])])[0].result().verdict.reward == 1.0
        pool.close()
    finally:
        gymnasium.registry.pop("Seven-v0", None)
        sys.modules.pop("game_of_this_folder", None)


@pytest.mark.parametrize(
    ("method", "returned", "said"),
    [
        ("reset", "7", r"gym:Count-v0: reset must return the tuple \(observation, info\), got '7'"),
        ("step", ("7", 0.5, True, {}), r"gym:Count-v0: step must return the tuple \(observation, reward, terminated"),
        ("step", ("7", "0.5", True, False, {}), "gym:Count-v0: the reward of step must be a finite number"),
    ],
)
def test_what_a_broken_environment_returns_is_said_with_its_method(libraries, monkeypatch, method, returned, said):
    monkeypatch.setattr(Count, method, lambda self, *action, **given: returned)
    with pytest.raises(ValueError, match=said):
        verifier = make_verifier("gym:Count-v0")
        verifier.dialogue(verifier.sample(random.Random(0))).reply("7")


def test_a_game_is_shown_without_the_models_words_and_a_text_in_place_of_a_reward_pays_nothing(libraries):
    verifier = make_verifier("textarena:GuessTheNumber-v0")
    problem = verifier.sample(random.Random(0))
    assert problem.prompt == "Guess S!\n| 1-20 |\n"
    content = verifier.dialogue(problem).reply("[99]").content
    assert content.startswith("No. ") and "[99]" not in content
    bare, wins = (make_verifier("textarena:GuessTheNumber-v0", **each) for each in ({"rules": ""}, {"wins_only": True}))
    assert bare.sample(random.Random(0)).prompt == "| 1-20 |\n"
    game = verifier.dialogue(problem)
    assert game.reply(f"[{game.env.game_number}]").verdict.reward == 1
    ends = [(verifier, "stop", 0), (verifier, "near", 0.9), (wins, "near", 0)]
    assert all(made.dialogue(problem).reply(turn).verdict.reward == reward for made, turn, reward in ends)


# OpenEnv.

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
