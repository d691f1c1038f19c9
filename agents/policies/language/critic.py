"""The critic of a language model: a value for every step."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from ..base import load_weights
from .training_pass import Reading

CRITICS = ("head", "separate")
_WEIGHTS = "critic.safetensors"


class Critic(nn.Module):
    """V(s) from the last hidden state of a trunk: the policy's, without training it, or a second one.

    A head costs almost nothing but reads features trained for the policy; a separate critic is trained as a whole and
    costs as much memory and time as the policy.

    Args:
        model: the policy's model; a separate critic starts as a copy of its trunk.
        separate: whether the critic has its own trunk.
    """

    def __init__(self, model: PreTrainedModel, separate: bool) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(model.base_model) if separate else None
        width = model.config.get_text_config().hidden_size
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.dtype = torch.promote_types(model.dtype, torch.float32)
        self.head.to(dtype=self.dtype)

    def forward(self, model: PreTrainedModel, reading: Reading) -> torch.Tensor:
        """Return V in the context of each edge of the reading [E]."""
        if self.trunk is None:
            with torch.no_grad():
                hidden = reading.outputs(model, model.base_model, "last_hidden_state")
        else:
            hidden = reading.outputs(model, self.trunk, "last_hidden_state")
        return self.head(hidden.to(self.dtype))[:, 0]

    def save(self, folder: Path) -> None:
        """Write critic.safetensors into a folder."""
        save_file({name: weight.contiguous() for name, weight in self.state_dict().items()}, folder / _WEIGHTS)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        load_weights(self, folder / _WEIGHTS)
