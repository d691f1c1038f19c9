"""The state of a training between updates: the parts of an agent, each with the state that a checkpoint keeps.

`saving.py` writes them, `loading.py` puts them into another agent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, TypedDict

import torch

from .. import processes
from .learned import learned_by


class Counters(TypedDict):
    """How far a training is."""

    num_timesteps: int
    trained_timesteps: int
    num_episodes: int
    num_updates: int


COUNTERS = tuple(Counters.__annotations__)


class Stateful(Protocol):
    """A part of an agent that carries something from update to update."""

    def state_dict(self) -> Any:
        """Return plain values, tensors and arrays, in dictionaries, lists and tuples; see `saving.py`."""

    def load_state_dict(self, state: Any) -> None:
        """Restore the state from `state_dict`; raise any error for another state."""


class Attributes:
    """Attributes of an object, as a part: plain values.

    Args:
        owner: has the attributes.
        names: of the attributes.
    """

    def __init__(self, owner: object, *names: str) -> None:
        self.owner, self.names = owner, names

    def state_dict(self) -> dict[str, Any]:
        """Return copies of them by name."""
        return {name: copy.copy(getattr(self.owner, name)) for name in self.names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace them."""
        for name in self.names:
            setattr(self.owner, name, state[name])


class DictState:
    """An attribute that is a dictionary, as a part.

    Args:
        owner: has the attribute.
        name: of the attribute.
    """

    def __init__(self, owner: object, name: str) -> None:
        self.owner, self.name = owner, name

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of it."""
        return dict(getattr(self.owner, self.name))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace it."""
        setattr(self.owner, self.name, dict(state))


class GeneratorState:
    """A random generator, as a part."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state_dict(self) -> dict[str, Any]:
        """Return where it is, and on which kind of device."""
        return {"device": self.generator.device.type, "state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`; on another kind of device the generator stays as it is."""
        if state["device"] == self.generator.device.type:
            self.generator.set_state(state["state"])


def parts_of(agent: Any) -> dict[str, Stateful]:
    """Return the parts that are saved as they are now, by their name in a checkpoint; the same in all processes."""
    return {
        "order": GeneratorState(agent.shuffle_generator),
        "reward_scale": Attributes(agent.reward_scale.moments, "mean", "var", "count"),
        "unwritten": DictState(agent.unwritten, "figures"),
        "extra": DictState(agent, "extra_state"),
        "optimizer": agent.policy_optimizer,
        **({"teaching": agent.anchor} if agent.anchor.is_teacher else {}),
        **{f"carried/{name}": part for name, part in agent.carried.items()},
        **{f"learned/{name}": part for name, part in learned_by(agent).items()},
    }


def own_parts_of(agent: Any) -> dict[str, Stateful]:
    """Return the parts that change while a rollout is collected, by their name in a checkpoint; one per process."""
    return {
        "actions": GeneratorState(agent.generator),
        "failures": Attributes(agent.failure_watch, "recent", "totals"),
        "start": Attributes(agent.start_watch, "warns", "looks", "episodes"),
        "metrics": DictState(agent, "last_metrics"),
        "envs": agent.collector,
    }


def moment_of(agent: Any) -> dict[str, Any]:
    """Return the present counters of an agent and states of its parts, as this process has them."""
    counters, before = Attributes(agent, *COUNTERS).state_dict(), agent.player.moment
    parts = own_parts_of(agent).items()
    return {"counters": counters} | {name: before.get(name) or part.state_dict() for name, part in parts}


def state_of(agent: Any) -> dict[str, Any]:
    """Return everything that a training carries, of the moment before a rollout that is under way."""
    parts, moment = parts_of(agent), agent.moment or moment_of(agent)
    state = {name: part.state_dict() for name, part in parts.items()}
    return state | {"moments": processes.gather(moment)}
