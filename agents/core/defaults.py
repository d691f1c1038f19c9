"""The defaults that depend on the kind of policy: what None stands for in an agent's constructor."""

from __future__ import annotations

from typing import Any

# kind of policy -> class of agent -> setting. The row of a subclass goes before those of its parents.
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "control": {
        "Agent": {
            "total_timesteps": 1_000_000,
            "gamma": 0.99,
            "learning_rate": 5e-3,
            "episodes_per_update": 16,
            "num_envs": 16,
        },
        "Reinforce": {"gamma": 1.0, "learning_rate": 3e-3},
        "PPO": {"gae_lambda": 0.95, "num_epochs": 4, "num_minibatches": 4},
    },
    "language-model": {
        "Agent": {
            "total_timesteps": 1_600_000,
            "gamma": 1.0,
            "learning_rate": 3e-4,
            "episodes_per_update": 256,
            "num_envs": 256,
        },
        "PPO": {"num_epochs": 2, "num_minibatches": 2},
    },
}
ANY_KIND: dict[str, dict[str, Any]] = {
    "ActorCritic": {"gae_lambda": 1.0},
    "PassesAgent": {"num_epochs": 1, "num_minibatches": 1},
}


# Of language models by size: most parameters, learning rate, learning rate of the warm start. Larger models move less.
RATES = ((2e6, 3e-4, 2e-3), (2e7, 3e-5, 5e-4), (1e8, 1e-5, 3e-4), (float("inf"), 1e-6, 1e-5))
ADAPTER = 10  # an adapter has few weights and starts at zero: its rates are so many times larger


def rates_of(parameters: int, adapter: bool) -> tuple[float, float]:
    """Return the learning rates of a language model for reinforcement learning and for its warm start.

    Args:
        parameters: of the whole model.
        adapter: whether only an adapter is trained.
    """
    times = ADAPTER if adapter else 1
    return next((times * rate, times * warm) for most, rate, warm in RATES if parameters <= most)


def default_of(name: str, agent: type, kind: str) -> Any:
    """Return the default of a setting for a class of agent and a kind of policy (`Policy.kind`).

    Raises:
        ValueError: if the table has none, as for a policy class of your own: pass the setting, or add its kind to
            `DEFAULTS`.
    """
    for cls in agent.__mro__:
        for table in (DEFAULTS.get(kind, {}), ANY_KIND):
            if name in table.get(cls.__name__, {}):
                return table[cls.__name__][name]
    raise ValueError(
        f"{name} has no default for a policy of kind {kind!r}; pass {name}=..., or add the kind to "
        "agents.core.defaults.DEFAULTS"
    )
