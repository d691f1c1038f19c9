"""The critic of a language model: a value for every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from ..policies.base import load_weights
from .adapters import adapted_layers, is_adapters, share_frozen
from .reading import Reading

WEIGHTS = "critic.safetensors"


class Critic(nn.Module):
    """V(s) from the last hidden state of a trunk: the policy's, without training it, or a second one.

    A head costs almost nothing but reads features trained for the policy; a separate critic is trained as a whole and
    costs as much memory and time as the policy.

    Args:
        model: the policy's model; a separate critic starts as a copy of its trunk, and shares weights that are not
            trained: with an adapter, it has a separate adapter on the same base.
        separate: whether the critic has its own trunk.
    """

    def __init__(self, model: PreTrainedModel, separate: bool) -> None:
        super().__init__()
        self.trunk = share_frozen(model.base_model) if separate else None
        width = model.config.get_text_config().hidden_size
        self.dtype = torch.promote_types(model.dtype, torch.float32)
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).to(self.dtype)

    def forward(self, model: PreTrainedModel, reading: Reading, recompute: bool = False) -> torch.Tensor:
        """Return V in the context of each edge of the reading [E]; `recompute` as in `Reading.outputs`."""
        if self.trunk is None:
            with torch.no_grad():
                hidden = reading.outputs(model.base_model, "last_hidden_state")
        else:
            hidden = reading.outputs(self.trunk, "last_hidden_state", recompute)
        return self.head(hidden.to(self.dtype))[:, 0]

    def save(self, folder: Path) -> None:
        """Write critic.safetensors into a folder."""
        shared, state = self._shared(), self.state_dict()
        save_file({name: state[name].contiguous() for name in state if name not in shared}, folder / WEIGHTS)

    def load(self, folder: Path) -> None:
        """Read the weights that `save` wrote."""
        load_weights(self, folder / WEIGHTS, self._shared())

    @torch.no_grad()
    def renew(self, policy: Any) -> None:
        """Copy the policy's trunk as it is now into a separate one."""
        if self.trunk is not None:
            for own, actors in zip(self.trunk.parameters(), policy.model.base_model.parameters(), strict=True):
                if own is not actors:
                    own.copy_(actors)

    def _shared(self) -> dict[str, torch.Tensor]:
        """Return the weights of the base under the trunk's adapter, which are the policy's."""
        if self.trunk is None or not adapted_layers(self.trunk):
            return {}
        state = self.state_dict()
        return {name: state[name] for name in state if name.startswith("trunk.") and not is_adapters(name)}
