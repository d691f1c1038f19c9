"""A game of TextWorld as a Gymnasium environment of texts, to train in: `gym:textworld_game:TextWorld-v0`.

    pip install textworld
    tw-make custom --world-size 1 --nb-objects 3 --quest-length 2 --seed 3 --output game.z8
    cd examples
    rlenv evaluate smollm2 --verifier gym:textworld_game:TextWorld-v0 --verifier-arg game=../game.z8 \\
        --verifier-arg turns=5 --max-new-tokens 16 --max-context-tokens 8192

TextWorld's registry and interface are its own: `reset` takes no seed, and `step` returns four results, whose reward is
the score so far. A game is a file and has one beginning, so all problems of one game are alike.
"""

import gymnasium
import textworld.gym
from textworld import EnvInfos

LONGEST = 2000  # characters of an observation


class TextWorld(gymnasium.Env):
    """A compiled game; each step pays the points that it gains.

    Args:
        game: its file, as tw-make writes it.
        max_steps: actions before TextWorld ends the game.
    """

    def __init__(self, game: str, max_steps: int = 50) -> None:
        self.observation_space = gymnasium.spaces.Text(LONGEST)
        self.action_space = gymnasium.spaces.Text(60)
        known = EnvInfos(objective=True, description=True, feedback=True, score=True)
        self.game = textworld.gym.make(textworld.gym.register_game(game, known, max_episode_steps=max_steps))

    def reset(self, *, seed=None, options=None):
        """Return the objective and the first room."""
        super().reset(seed=seed)
        _, known = self.game.reset()
        self.score = 0
        return _tidy(known["objective"], known["description"]), {}

    def step(self, action):
        """Return the game's text after a command, and the points gained."""
        _, score, done, known = self.game.step(action)
        gained, self.score = score - self.score, score
        return _tidy(known["feedback"]), float(gained), done, False, {}

    def close(self):
        """End the interpreter of the game."""
        self.game.close()


def _tidy(*texts: str) -> str:
    """Return texts without empty lines and without the prompt and status line of the interpreter."""
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(">"))[:LONGEST]


gymnasium.register("TextWorld-v0", TextWorld, disable_env_checker=True, order_enforce=False)
