"""Parts of an agent that carry something from update to update; saving and resuming walk them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Stateful(Protocol):
    """A part of an agent that carries something from update to update."""

    def state_dict(self) -> Any:
        """Return plain values, tensors and arrays, in dictionaries, lists and tuples; see `training/state.py`."""

    def load_state_dict(self, state: Any) -> None:
        """Restore what `state_dict` returned; any error says that it was something else."""


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
