"""Draw docs/env/*.png, an episode of each environment that has a page: python docs/make_env_pictures.py.

Control environments draw themselves with pygame: pip install -e '.[pictures]'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

import rlenv  # noqa: F401 (registers TextGen-v0)

FOLDER = Path(__file__).resolve().parent / "env"
SUM = {"prompt": "12+34=", "answer": "46"}
STEPS = {"CartPole-v1": 8, "Acrobot-v1": 30, "MountainCar-v0": 60, "Pendulum-v1": 30}  # before the picture
WIDTH = 320  # pixels of a picture of a control environment
GAP = 8


def textgen() -> np.ndarray:
    """Return the frames of a right answer, below each other."""
    env: Any = gym.make("TextGen-v0", verifier="arith", problems=[SUM], test_fraction=0.0, render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    for token in ("4", "6", "<eos>"):
        env.step(env.unwrapped.task.tokenizer.convert_tokens_to_ids(token))
        frames.append(env.render())
    gap = np.full((GAP, frames[0].shape[1], 3), 208, dtype=np.uint8)
    return np.concatenate([part for frame in frames for part in (frame, gap)][:-1])


def control(env_id: str) -> np.ndarray:
    """Return an environment after some random steps."""
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(STEPS[env_id]):
        env.step(env.action_space.sample())
    frame = np.asarray(env.render())
    env.close()
    return frame


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    Image.fromarray(textgen()).quantize(32).save(FOLDER / "textgen.png", optimize=True)
    for env_id in STEPS:
        image = Image.fromarray(control(env_id))
        image = image.resize((WIDTH, round(WIDTH * image.height / image.width)))
        image.quantize(32).save(FOLDER / f"{env_id.split('-')[0].lower()}.png", optimize=True)


if __name__ == "__main__":
    main()
