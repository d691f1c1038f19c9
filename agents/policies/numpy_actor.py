"""A small MLP that acts in numpy: on the policy's own weights, with the noise that torch would have drawn.

A few slots and a few thousand weights are less work than starting torch's operations one by one.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.distributions import CategoricalDistribution, DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from typing_extensions import override

from .actor import Actor, for_env

ACTIVATIONS: dict[type[nn.Module], Any] = {nn.Tanh: np.tanh, nn.ReLU: lambda x, out: np.maximum(x, 0, out=out)}
MOST_WEIGHTS = 2**15  # of a layer; torch multiplies larger matrices as fast, and uses more threads


class NumpyActor(Actor):
    """Chooses the actions that the network would choose, given numpy observations.

    It holds views of the weights: what changes them in place changes its actions.

    Args:
        net: for which `NumpyActor.reads` is true.
        action_space: of one environment.
        deterministic: whether the likeliest actions are taken.
        generator: for sampling them otherwise.
    """

    def __init__(
        self,
        net: ActorCriticPolicy,
        action_space: gym.Space,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.action_space, self.deterministic = action_space, deterministic
        self.generator = generator
        modules = [*net.mlp_extractor.policy_net, net.action_net]
        self.layers = [
            (one.weight.detach().numpy().T, one.bias.detach().numpy()) if isinstance(one, nn.Linear)
            else ACTIVATIONS[type(one)]
            for one in modules
        ]  # fmt: skip
        self.dtype = net.action_net.weight.detach().numpy().dtype
        self.log_std = net.log_std.detach().numpy() if isinstance(net.action_dist, DiagGaussianDistribution) else None
        self._noise = np.empty(0)

    @staticmethod
    def reads(net: ActorCriticPolicy) -> bool:
        """Tell whether this is a small MLP on the CPU, of plain layers, with one choice per step or Gaussians."""
        modules = [*getattr(net.mlp_extractor, "policy_net", ()), net.action_net]
        small = all(
            type(one) in ACTIVATIONS
            or (type(one) is nn.Linear and one.bias is not None and one.weight.numel() <= MOST_WEIGHTS)
            for one in modules
        )
        space, extractor = net.observation_space, net.pi_features_extractor
        as_it_is = isinstance(space, (gym.spaces.Box, gym.spaces.MultiBinary))  # others are made one-hot
        flat = type(extractor) is FlattenExtractor and as_it_is and space.shape == (extractor.features_dim,)
        known = type(net.action_dist) in (CategoricalDistribution, DiagGaussianDistribution)
        return small and flat and known and net.action_net.weight.device.type == "cpu"

    @override
    @np.errstate(all="ignore")  # as in torch, what comes of weights that are not finite is found by the update
    def act(
        self, obs: np.ndarray, starts: np.ndarray | None = None, playing: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        outputs = obs if obs.dtype == self.dtype else obs.astype(self.dtype)
        for layer in self.layers:
            if isinstance(layer, tuple):
                outputs = outputs @ layer[0]
                outputs += layer[1]
            else:
                outputs = layer(outputs, out=outputs)
        actions, log_probs = self._choice(outputs) if self.log_std is None else self._gaussian(outputs)
        return for_env(actions, self.action_space), actions, log_probs

    def _choice(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return actions and their log-probabilities [B], given logits [B, V], as `choose`."""
        shifted = logits - logits.max(-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        noisy = log_probs
        if not self.deterministic:
            noisy = log_probs - np.log(self._draw(torch.Tensor.exponential_, logits))
        actions = noisy.argmax(-1)
        return actions, log_probs[np.arange(actions.size), actions]

    def _gaussian(self, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_std: Any = self.log_std
        std, actions = np.exp(log_std), mean
        if not self.deterministic:
            actions = mean + std * self._draw(torch.Tensor.normal_, mean)
        log_probs = -0.5 * ((actions - mean) / std) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        return actions, log_probs.sum(-1)

    def _draw(self, law: Any, like: np.ndarray) -> np.ndarray:
        """Fill an array of this shape with the noise that torch draws; the next call overwrites it."""
        if self._noise.shape != like.shape:
            self._noise = np.empty_like(like)
        law(torch.from_numpy(self._noise), generator=self.generator)
        return self._noise
