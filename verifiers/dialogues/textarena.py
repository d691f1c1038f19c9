"""textarena: the games of TextArena 0.7.4 for one player, offline: "textarena:GuessTheNumber-v0" and others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from typing_extensions import override

from rlenv._checks import check_choice, check_count, check_flag, require

from ..base import Execution, Reply, Turns, Verdict
from ..plugins.registry import register_verifier
from .world import Playing, Randomness, WorldVerifier, spelled

PROBED = 8  # games whose openings the lengths are read off
GAME = -1  # what messages of the game have for a sender; three games mix up the fields of the player's
FAULT = 256  # characters of what is said of an invalid move


@dataclass(frozen=True)
class Game:
    """Facts of a game that TextArena does not tell.

    Args:
        turns: per episode, if the game has no limit.
        answer_length: longest sensible action in characters.
        low: lowest reward.
        high: highest reward.
        deterministic: whether the result of a turn with several actions is the same in every process.
    """

    turns: int | None = None
    answer_length: int = 12
    low: float = 0.0
    high: float = 1.0
    deterministic: bool = True


GAMES: Mapping[str, Game] = {
    "2048": Game(turns=300, answer_length=7),
    "Blackjack": Game(turns=40, answer_length=7),
    "Countdown": Game(),  # one puzzle, whatever the seed
    "Crosswords": Game(deterministic=False),
    "Cryptarithm": Game(),  # one puzzle, whatever the seed
    "FifteenPuzzle": Game(answer_length=7),
    "FrozenLake": Game(answer_length=7),
    "GuessTheNumber": Game(answer_length=4),
    "LightsOut": Game(low=-math.inf),  # more lights than at the beginning count as negative
    "LogicPuzzle": Game(answer_length=60, deterministic=False),
    "Mastermind": Game(),
    "Minesweeper": Game(),
    "PegJump": Game(turns=14),
    "RushHour": Game(turns=60),
    "Secretary": Game(answer_length=10, low=-1.0),
    "Set": Game(answer_length=14, high=20.0),
    "Slitherlink": Game(),
    "Sokoban": Game(answer_length=7),
    "Sudoku": Game(),
    "ThreeCardMonte": Game(turns=2),
    "TowerOfHanoi": Game(),  # one puzzle, whatever the seed
}


@register_verifier("textarena")
class TextArena(WorldVerifier):
    """A game of TextArena; its reward is the player's at the end, mostly 1.0 for a win, and less for a part of one.

    A problem is a seed, and the prompt is the game's rules and its first board. A turn is an action such as `[7]`; the
    brackets may be left out where the game's own wrapper adds them. The reply is the game's messages since, without the
    player's own words. TextArena allows an invalid move and ends the game at the next one; invalid moves count as
    turns. An episode whose turns run out before the game ends has a reward of 0. Where TextArena returns a message in
    place of a reward, as four games do at invalid moves, the reward is 0.

    Characters other than printable ASCII are transliterated: `♠` is S. TextArena draws from Python's global random
    state, which each game has for itself here. Demonstrations come from a column `turns` alone.

    Args:
        game: its id, such as "GuessTheNumber-v0" or "FrozenLake-v0-random".
        rules: the text in place of the game's rules, which are long and the same in all problems; empty for none.
        turns: actions per episode; by default the game's own limit.
        wins_only: pay 1.0 for a reward of at least 1.0, and 0.0 for less. Many games pay for parts of a win even when
            an invalid move ends them, so that learning the game's rewards may be learning to lose near the goal.

    Raises:
        ValueError: if textarena is not installed, for an unknown game (with the closest match), or one that is
            not supported, as it needs other players, downloads or services.
    """

    execution = Execution(needs={"textarena": "textarena"})

    def __init__(self, game: str, rules: str | None = None, turns: int | None = None, wins_only: bool = False) -> None:
        if rules is not None and not isinstance(rules, str):
            raise ValueError(f"textarena: rules must be a text, got {rules!r:.60}")
        self.game, self.rules = game, rules
        self.wins_only = check_flag("textarena: wins_only", wins_only)
        self.known = game_of(game, _library(".envs.registration").ENV_REGISTRY)
        games = [Play(self, seed) for seed in range(PROBED)]
        limit = self.known.turns or games[0].env.state.max_turns
        limit = limit if turns is None else check_count("textarena: turns", turns, 1, 10_000)
        self.turns = Turns(limit, max(len(one.board) for one in games) + FAULT)
        self.prompt_length = max(len(one.opening) for one in games) + 64
        self.answer_length = self.known.answer_length
        self.reward_range = (0.0, 1.0) if self.wins_only else (self.known.low, self.known.high)

    @override
    def playing(self, seed: int) -> Play:
        return Play(self, seed)


class Play(Playing):
    """A game.

    Attributes:
        board: the game's first text after its rules.
    """

    def __init__(self, verifier: TextArena, seed: int) -> None:
        self.verifier, self.randomness = verifier, Randomness(seed)
        self.deterministic = verifier.known.deterministic
        with self.randomness(), redirect_stdout(StringIO()):  # RushHour prints its progress
            self.env = _library().make(verifier.game)
            self.env.reset(num_players=1, seed=seed)
        said = self._said()
        rules = [text for kind, text in said if kind == "PROMPT"] if verifier.rules is None else [verifier.rules]
        boards = [text for kind, text in said if kind != "PROMPT"]
        self.opening, self.board = self._written([*rules, *boards]), self._written(boards)

    @override
    def reply(self, turn: str) -> Reply:
        with self.randomness(), redirect_stdout(StringIO()):
            done, _ = self.env.step(turn)
        if not done:
            return Reply(self._written([text for _, text in self._said()]))
        rewards, _ = self.env.close()
        reward = float(rewards[0]) if isinstance(rewards[0], (int, float)) else 0.0
        return Reply(verdict=Verdict(float(reward >= 1.0) if self.verifier.wins_only else reward))

    def _said(self) -> list[tuple[str, str]]:
        """Return kind and text of the game's messages since the last call.

        The messages are read before TextArena's wrappers join them to all that was said before.
        """
        messages = self.env.state.get_current_player_observation()
        return [(kind.name, text) for sender, text, kind in messages if sender == GAME]

    def _written(self, texts: list[str]) -> str:
        kept = [text.strip("\n") for text in texts if text.strip()]
        return spelled("\n".join(kept) + "\n", self.verifier.alphabet)


def _library(part: str = "") -> Any:
    return require(f"textarena{part}", "textarena", "verifier 'textarena'")


def game_of(name: str, registered: Collection[str]) -> Game:
    """Return the facts of a game.

    Args:
        name: an id of TextArena, such as "GuessTheNumber-v0" or "GuessTheNumber-v0-hardcore".
        registered: the ids that TextArena knows.

    Raises:
        ValueError: for an unknown id, with the closest match, or one that is not supported.
    """
    base = name.partition("-v0")[0]
    if name not in registered:
        check_choice("game of textarena", name, _offered(registered))
    if base not in GAMES:
        games = ", ".join(f"{game}-v0" for game in GAMES)
        raise ValueError(f"textarena: {name} is not supported; games: {games}")
    return GAMES[base]


def _offered(registered: Collection[str]) -> list[str]:
    """Return the supported ids, without variants that differ only in TextArena's wrappers."""
    return [one for one in registered if one.partition("-v0")[0] in GAMES and not one.endswith(("-raw", "-train"))]
