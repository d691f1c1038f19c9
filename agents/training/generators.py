"""The random generators of a training."""

from __future__ import annotations

from typing import Any

import torch

from .. import processes


class Generators:
    """The generators of sampled actions and of the order of mini-batches.

    A single process has one for both. Of several, each has its own for actions, and all have the same for the order.

    Args:
        device: of the policy.
        seed: of both.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.actions = torch.Generator(device)
        self.order = torch.Generator(device) if processes.size() > 1 else self.actions
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start again from a seed."""
        self.order.manual_seed(seed)
        self.actions.manual_seed(processes.own_seed(seed))

    def state_dict(self) -> dict[str, Any]:
        """Return where they are, and on which kind of device."""
        return {
            "device": self.actions.device.type,
            "actions": self.actions.get_state(),
            "order": self.order.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; on another kind of device they stay as they are."""
        if state["device"] == self.actions.device.type:
            self.order.set_state(state["order"])
            self.actions.set_state(state["actions"])
