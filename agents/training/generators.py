"""The random generators of a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import processes


class Generators:
    """The generators of sampled actions, one per process, and of the order of mini-batches, the same in all.

    They share no state: with `staleness=1` one thread draws actions while another draws the order of an update.

    Args:
        device: of the policy.
        seed: of both.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.actions, self.order = torch.Generator(device), torch.Generator(device)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start again from a seed."""
        self.actions.manual_seed(processes.own_seed(seed))
        self.order.manual_seed(int(np.random.SeedSequence([seed, 0, 1]).generate_state(1)[0]))


class GeneratorState:
    """A generator, as a part."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state_dict(self) -> dict[str, Any]:
        """Return where it is, and on which kind of device."""
        return {"device": self.generator.device.type, "state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; on another kind of device it stays as it is."""
        if state["device"] == self.generator.device.type:
            self.generator.set_state(state["state"])
