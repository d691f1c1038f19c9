"""Text generation as a Gymnasium environment: importing this package registers TextGen-v0."""

from gymnasium.envs.registration import register

from ._neighbours import check_neighbours
from .version import __version__

check_neighbours("agents", "verifiers")

from verifiers.conversation import register_encoder  # noqa: E402 (the check comes first)

register(
    id="TextGen-v0",
    entry_point="rlenv.textgen:TextGenEnv",
    vector_entry_point="rlenv.autoreset:make_vector_env",
)

register_encoder("rlenv.encoder:Encoder")

__rlenv_package__ = True  # `rlenv` on PyPI is a package of somebody else

__all__ = ["__version__"]
