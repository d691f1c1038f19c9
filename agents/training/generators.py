"""The random generators of a training."""

from __future__ import annotations

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
