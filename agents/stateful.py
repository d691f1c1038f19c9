"""Parts of an agent that carry something from update to update."""

from __future__ import annotations

from typing import Any, Protocol


class Stateful(Protocol):
    """A part of an agent that carries something from update to update."""

    def state_dict(self) -> Any:
        """Return plain values, tensors and arrays, in dictionaries, lists and tuples; see `training/saving.py`."""

    def load_state_dict(self, state: Any) -> None:
        """Restore what `state_dict` returned; any error says that it was something else."""
