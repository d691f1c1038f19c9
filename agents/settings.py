"""Settings of agents: their defaults by kind of policy, and their values in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlenv._setting import ANY


def absent() -> Any:
    """Return the None that stands for a setting which only some children have."""
    return None


def by_settings(value: Callable[[Any], Any]) -> Any:
    """Return a declaration of a class of an agent that depends on its settings, given a function of the agent.

    On the class itself, which has no values of settings, it is the parents' value.
    """
    return _BySettings(value)


class _BySettings:
    def __init__(self, value: Callable[[Any], Any]) -> None:
        self.value = value

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, agent: Any, cls: type) -> Any:
        return getattr(super(self.owner, cls), self.name) if agent is None else self.value(agent)


def default_of(name: str, cls: Any, kind: str, otherwise: str = "") -> Any:
    """Return the default of a setting for a kind of policy (`Policy.kind`).

    Args:
        name: of the setting.
        cls: of the agent.
        kind: of the policy.
        otherwise: the kind whose default is taken if there is none for `kind`, as for a policy class of your own.

    Raises:
        ValueError: if none is declared.
    """
    by_kind = cls._declared[name].by_kind if name in cls._declared else {}
    key = next((each for each in (kind, ANY, otherwise) if each in by_kind), None)
    if key is None:
        raise ValueError(
            f"{name} has no default for a policy of kind {kind!r}; pass {name}=..., or name it in the "
            "`defaults` of the policy's class"
        )
    return by_kind[key]


def is_kept(cls: Any, name: str) -> bool:
    """Tell whether a checkpoint may keep an argument of this name."""
    return name not in ("policy", "env") and (name not in cls._declared or cls._declared[name].saved)


def kept_of(agent: Any) -> dict[str, Any]:
    """Return the attributes for a checkpoint: the ones named like a setting or an argument of a constructor."""
    classes = [vars(cls) for cls in type(agent).__mro__]
    named = [name for each in classes for name in (*each.get("_own_arguments", ()), *each.get("_own_settings", ()))]
    return {name: getattr(agent, name) for name in named if is_kept(type(agent), name) and hasattr(agent, name)}
