"""The pictures of an episode, as an animated GIF that pillow writes."""

from __future__ import annotations

import itertools
from pathlib import Path

import gymnasium as gym
from PIL import Image

LAST = 2000  # milliseconds that the last picture stays


class Film:
    """Collects what an environment renders, and writes a file per episode.

    Args:
        folder: of the files; made when the first one is written.
        env: with render_mode "rgb_array".

    Raises:
        ValueError: if the environment draws no pictures, or needs a library for them that is missing.
    """

    def __init__(self, folder: Path, env: gym.Env) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--picture {str(folder)!r} is a file; pass a folder")
        if env.render_mode != "rgb_array":
            raise ValueError(f"{_name(env)} draws no pictures: its render modes are {env.metadata.get('render_modes')}")
        self.folder, self.env = folder, env
        self.milliseconds = max(20, round(1000 / env.metadata.get("render_fps", 30)))  # viewers slow down shorter ones
        self._frames: list[Image.Image] = []

    def start(self) -> None:
        """Begin with the picture of a new episode."""
        self._frames = []
        self.take()

    def take(self) -> None:
        """Keep the picture of this moment."""
        try:
            frame = self.env.render()
        except gym.error.DependencyNotInstalled as error:
            raise ValueError(
                f"{_name(self.env)}: its pictures need a missing library ({error}); pip install 'rlenv-lm[pictures]'"
            ) from error
        self._frames.append(Image.fromarray(frame))

    def drop(self, count: int) -> None:
        """Forget the last pictures."""
        del self._frames[-count:]

    def save(self) -> Path:
        """Write the episode to the first episode-N.gif that does not exist; return its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = (self.folder / f"episode-{number}.gif" for number in itertools.count(1))
        path = next(path for path in paths if not path.exists())
        first, *others = self._frames
        times = [self.milliseconds] * len(others) + [LAST]
        first.save(path, save_all=True, append_images=others, duration=times, loop=0)
        return path


def _name(env: gym.Env) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__
