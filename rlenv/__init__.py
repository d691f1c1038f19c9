"""Text generation as a Gymnasium environment: importing this package registers TextGen-v0."""

from gymnasium.envs.registration import register

from ._neighbours import check_neighbours
from .version import __version__

check_neighbours("agents", "verifiers")

register(
    id="TextGen-v0",
    entry_point="rlenv.envs.textgen:TextGenEnv",
    vector_entry_point="rlenv.envs.vector:TextGenVectorEnv",
)

__all__ = ["__version__"]
