"""textarena, with a small library in place of the package: what is read, what is paid, and whose randomness it is."""

import random
import sys
import types
from enum import Enum

import pytest

from verifiers import Problem, make_verifier
from verifiers.dialogues.running import replay

Kind = Enum("Kind", "PROMPT PLAYER_ACTION GAME_MESSAGE GAME_BOARD")


class Guess:
    """A number from 1 to 20, drawn from the global random state; a word ends the game with a text for a reward."""

    min_number, max_number, max_turns = 1, 20, 10

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


@pytest.fixture(autouse=True)
def library(monkeypatch):
    ids = dict.fromkeys(["GuessTheNumber-v0", "FrozenLake-v0", "Chess-v0", "Wordle-v0"])
    registration = types.SimpleNamespace(ENV_REGISTRY=ids)
    monkeypatch.setitem(sys.modules, "textarena", types.SimpleNamespace(make=lambda name: Guess()))
    monkeypatch.setitem(sys.modules, "textarena.envs.registration", registration)


def test_the_model_reads_what_the_game_says_and_not_its_own_words():
    verifier = make_verifier("textarena:GuessTheNumber-v0")
    problem = verifier.sample(random.Random(0))
    assert problem.prompt == "Guess S!\n| 1-20 |\n"
    content = verifier.dialogue(problem).reply("[99]").content
    assert content.startswith("No. ") and "[99]" not in content


def test_rules_can_be_replaced():
    verifier = make_verifier("textarena:GuessTheNumber-v0", rules="")
    assert verifier.sample(random.Random(0)).prompt == "| 1-20 |\n"


def test_games_that_run_in_turns_do_not_share_randomness_with_each_other_or_us():
    verifier, problem = make_verifier("textarena:GuessTheNumber-v0"), Problem("", metadata={"seed": 5})
    alone = [replay(verifier, problem, ["[0]"] * count, False) for count in (1, 2, 3)]
    before, games = random.getstate(), [verifier.dialogue(problem) for _ in range(2)]
    turns = [[game.reply("[0]") for game in games] for _ in range(3)]
    assert [pair[0] for pair in turns] == [pair[1] for pair in turns] == alone and random.getstate() == before


def test_a_win_is_paid_and_a_text_in_place_of_a_reward_is_not():
    verifier, rng = make_verifier("textarena:GuessTheNumber-v0"), random.Random(0)
    problem = verifier.sample(rng)
    game, turns = verifier.dialogue(problem), verifier.demonstration_turns(problem, rng)
    assert [game.reply(turn) for turn in turns][-1].verdict.reward == 1
    assert verifier.dialogue(problem).reply("stop").verdict.reward == 0


@pytest.mark.parametrize(("wins_only", "reward"), [(False, 0.9), (True, 0.0)])
def test_parts_of_a_win_can_be_left_unpaid(wins_only, reward):
    verifier = make_verifier("textarena:GuessTheNumber-v0", wins_only=wins_only)
    assert verifier.dialogue(verifier.sample(random.Random(0))).reply("near").verdict.reward == reward
