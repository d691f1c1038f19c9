"""The games of TextArena 0.7.4: which can be trained on alone and offline, and why others cannot."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..plugins.arguments import hint


@dataclass(frozen=True)
class Game:
    """What TextArena does not tell about a game.

    Args:
        turns: per episode, if the game has no limit.
        answer_length: longest sensible action in characters.
        low: lowest reward.
        high: highest reward.
        deterministic: whether the result of a turn with several actions is the same in every process.
        player: returns the right actions, given the game after its reset and a source of choices; None if there are
            no demonstrations.
    """

    turns: int | None = None
    answer_length: int = 12
    low: float = 0.0
    high: float = 1.0
    deterministic: bool = True
    player: Callable[[Any, random.Random], list[str]] | None = None


def guess_the_number(game: Any, rng: random.Random) -> list[str]:
    """Return guesses that the hints so far allow; after the first half of the turns, bisection."""
    low, high, number = game.min_number, game.max_number, game.game_number
    guesses: list[int] = []
    while not guesses or guesses[-1] != number:
        guess = rng.randint(low, high) if len(guesses) < game.max_turns // 2 else (low + high) // 2
        guesses.append(guess)
        low, high = (guess + 1, high) if guess < number else (low, guess - 1)
    return [f"[{guess}]" for guess in guesses]


def frozen_lake(game: Any, rng: random.Random) -> list[str]:
    """Return a shortest way around the holes; of several, one by chance."""
    state = game.state.game_state
    grid, start, goal = state["grid"], tuple(state["player_pos"]), tuple(state["goal_pos"])
    moves = list({"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}.items())
    ways: dict[tuple[int, ...], list[str]] = {start: []}
    waiting = deque([start])
    while goal not in ways:
        at = waiting.popleft()
        for name, step in rng.sample(moves, len(moves)):
            row, column = at[0] + step[0], at[1] + step[1]
            inside = 0 <= row < len(grid) and 0 <= column < len(grid)
            if inside and grid[row][column] != "H" and (row, column) not in ways:
                ways[row, column] = [*ways[at], f"[{name}]"]
                waiting.append((row, column))
    return ways[goal]


def secretary(game: Any, rng: random.Random) -> list[str]:
    """Return the turns that pick the highest value, which a player cannot know."""
    draws = game.state.game_state["draws"]
    return ["[continue]"] * draws.index(max(draws)) + ["[accept]"]


GAMES: Mapping[str, Game] = {
    "2048": Game(turns=300, answer_length=7),
    "Blackjack": Game(turns=40, answer_length=7),
    "Countdown": Game(),  # one puzzle, whatever the seed
    "Crosswords": Game(deterministic=False),
    "Cryptarithm": Game(),  # one puzzle, whatever the seed
    "FifteenPuzzle": Game(answer_length=7),
    "FrozenLake": Game(answer_length=7, player=frozen_lake),
    "GuessTheNumber": Game(answer_length=4, player=guess_the_number),
    "LightsOut": Game(low=-math.inf),  # more lights than at the beginning count as negative
    "LogicPuzzle": Game(answer_length=60, deterministic=False),
    "Mastermind": Game(),
    "Minesweeper": Game(),
    "PegJump": Game(turns=14),
    "RushHour": Game(turns=60),
    "Secretary": Game(answer_length=10, low=-1.0, player=secretary),
    "Set": Game(answer_length=14, high=20.0),
    "Slitherlink": Game(),
    "Sokoban": Game(answer_length=7),
    "Sudoku": Game(),
    "ThreeCardMonte": Game(turns=2),
    "TowerOfHanoi": Game(),  # one puzzle, whatever the seed
}
WORDS = "it reads word lists that NLTK downloads"
MODEL = "it asks a model of another service, with an API key"
SEVERAL = "it needs several players"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("DontSayIt", "Hangman", "LetterAuction", "SpellingBee", "WordChains"), WORDS),
    **dict.fromkeys(("Codenames", "WordLadder", "WordSearch", "Wordle"), WORDS),
    **dict.fromkeys(("Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions"), MODEL),
    "Klondike": "its code has a syntax error",
    "UltimateTexasHoldem": "its code needs Python 3.12, and a game has 1,000 rounds",
    "BabyAiText": "it needs packages that TextArena does not install",
    "Bandit": "it pays nothing for the best choice, and most for the worst",
}


def game_of(name: str, registered: Collection[str]) -> Game:
    """Return what is known of a game.

    Args:
        name: an id of TextArena, such as "GuessTheNumber-v0" or "GuessTheNumber-v0-hardcore".
        registered: the ids that TextArena knows.

    Raises:
        ValueError: for an unknown id, with the closest matches, or a game that cannot be trained on, with the reason.
    """
    base = name.partition("-v0")[0]
    if name not in registered:
        raise ValueError(f"textarena: unknown game {name!r}; {hint(name, _offered(registered))}")
    if base not in GAMES:
        games = ", ".join(f"{game}-v0" for game in GAMES)
        raise ValueError(f"textarena: {name} is not supported: {REFUSED.get(base, SEVERAL)}; games: {games}")
    return GAMES[base]


def _offered(registered: Collection[str]) -> list[str]:
    """Return the supported ids, without those that differ by TextArena's wrappers only."""
    return [one for one in registered if one.partition("-v0")[0] in GAMES and not one.endswith(("-raw", "-train"))]
