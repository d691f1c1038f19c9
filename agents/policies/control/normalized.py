"""Observations that a control policy normalizes by itself, with statistics that are part of its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor

CLIP = 10.0  # standard deviations, as stable-baselines3's VecNormalize has it
EPS = 1e-8


class NormalizedObservations(FlattenExtractor):
    """Observations less their mean, divided by their standard deviation; both of all steps trained on so far.

    A normalizing wrapper changes its statistics with every step, and each evaluation, prediction and checkpoint has to
    get a copy of them. As buffers of the policy they are saved, copied and loaded with its weights, and they stand
    still while a rollout is collected and trained on, so that acting and training see equal observations.

    Args:
        observation_space: of one environment.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.register_buffer("mean", torch.zeros(self.features_dim, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.features_dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return features [B, F] of preprocessed observations [B, ...]."""
        seen = super().forward(observations)
        scaled = (seen - self.mean) / (self.variance + EPS).sqrt()
        return scaled.clamp(-CLIP, CLIP).to(seen.dtype)

    def observe(self, observations: torch.Tensor) -> None:
        """Add preprocessed observations [M, ...] to the statistics, without those that are not finite."""
        moments = RunningMeanStd(shape=tuple(self.mean.shape))
        moments.mean, moments.var = self.mean.cpu().numpy(), self.variance.cpu().numpy()
        moments.count = float(self.count)
        seen = super().forward(observations).double().cpu().numpy()
        finite = seen[np.isfinite(seen).all(1)]  # the update on others is skipped
        if not len(finite):
            return
        moments.update(finite)
        for buffer, value in ((self.mean, moments.mean), (self.variance, moments.var), (self.count, moments.count)):
            buffer.copy_(torch.as_tensor(value))
