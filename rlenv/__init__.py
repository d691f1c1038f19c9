"""Text generation as a Gymnasium environment, agents that learn in it (`rlenv.agents`), and judges (`rlenv.verifiers`).

Importing this package registers TextGen-v0, as soon as Gymnasium is imported: commands that need neither, and worker
processes, start without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:  # these take a tenth of the start of a worker process
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from ._scripts.config.configs import SftConfig, TrainConfig
    from ._scripts.config.other_configs import CompareConfig, EvaluateConfig
    from ._scripts.jobs.comparison import compare
    from ._scripts.jobs.evaluation import evaluate
    from ._scripts.jobs.imitation import sft
    from ._scripts.jobs.training import train

_JOBS = {  # what commands do: imported on use
    "rlenv._scripts.config.configs": ("SftConfig", "TrainConfig"),
    "rlenv._scripts.config.other_configs": ("CompareConfig", "EvaluateConfig"),
    "rlenv._scripts.jobs.comparison": ("compare",),
    "rlenv._scripts.jobs.evaluation": ("evaluate",),
    "rlenv._scripts.jobs.imitation": ("sft",),
    "rlenv._scripts.jobs.training": ("train",),
}


def register_envs() -> None:
    """Register TextGen-v0 with Gymnasium."""
    from gymnasium.envs.registration import register

    register(
        id="TextGen-v0",
        entry_point="rlenv.textgen:TextGenEnv",
        vector_entry_point="rlenv.vector_env:make_vector_env",
    )


class _OnGymnasium:
    """A finder of modules that finds none, and registers the environments after the first import of Gymnasium."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register_envs()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    register_envs()
else:
    sys.meta_path.insert(0, _OnGymnasium())

__rlenv_package__ = True  # `rlenv` on PyPI is a package of somebody else

__all__ = [
    "CompareConfig",
    "EvaluateConfig",
    "SftConfig",
    "TrainConfig",
    "__version__",
    "compare",
    "evaluate",
    "sft",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a job or its config."""
    for module, names in _JOBS.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
