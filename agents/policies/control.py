"""Classic control: stable-baselines3's ActorCriticPolicy as a `Policy`."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import save_file
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    Distribution,
    StateDependentNoiseDistribution,
    kl_divergence,
)
from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    BasePolicy,
    MultiInputActorCriticPolicy,
)
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first, preprocess_obs
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import distributions as td
from torch import nn
from typing_extensions import override

from rlenv._checks import check_choice, check_count, check_flag
from rlenv._json import read_table

from ..errors import checking
from ..rollout import Obs, Rollout, map_obs
from .actor import Actor
from .base import Policy, State, episodes_of, load_weights
from .choosing import LOG_PROBS, Evaluated, Want, choose, evaluate_choices, sample_categorical
from .numpy_actor import NumpyActor

CLASSES: dict[str, type[ActorCriticPolicy]] = {
    "MlpPolicy": ActorCriticPolicy,
    "CnnPolicy": ActorCriticCnnPolicy,
    "MultiInputPolicy": MultiInputActorCriticPolicy,
}
BASIC = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_OWN = ("normalize_observations", "sde_sample_freq", "act_in_numpy")  # arguments that are not stable-baselines3's
# What stable-baselines3's distributions keep of their last use.
_LAST = ("distribution", "_latent_sde", "weights_dist", "exploration_mat", "exploration_matrices")
_CONFIG, _WEIGHTS = "policy.json", "policy.safetensors"
SMALLEST = 36  # the side of an image that stable-baselines3's NatureCNN takes
CLIP, EPS = 10.0, 1e-8  # of normalized observations, as stable-baselines3's VecNormalize has them


class ControlPolicy(Policy):
    """An actor-critic network of stable-baselines3, with all the spaces it supports.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        name: "MlpPolicy", "CnnPolicy" or "MultiInputPolicy".
        normalize_observations: whether the network sees observations less their mean, divided by their standard
            deviation; see `NormalizedObservations`. For MlpPolicy.
        sde_sample_freq: with `use_sde`, steps for which gSDE keeps a matrix of noise; see `_held_sample`.
        act_in_numpy: whether a small MLP on the CPU acts without torch, with the same actions; see `numpy_actor.py`.
        network: keyword arguments of stable-baselines3's policy, such as `net_arch`. Checkpoints store them as JSON;
            `activation_fn` is one of torch.nn's classes, such as `nn.ReLU`, or its name.

    Raises:
        ValueError: for spaces that such a policy does not support, or a network that cannot be saved.
    """

    kind = "control"
    defaults = {"total_timesteps": 1_000_000}

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        name: str = "MlpPolicy",
        normalize_observations: bool = False,
        sde_sample_freq: int = 1,
        act_in_numpy: bool = True,
        **network: Any,
    ) -> None:
        super().__init__()
        _check_spaces(name, observation_space, action_space)
        self.normalize_observations = check_flag("normalize_observations", normalize_observations)
        if normalize_observations and name != "MlpPolicy":
            raise ValueError(f"normalize_observations is for MlpPolicy, got {name}")
        self.sde_sample_freq = check_count("sde_sample_freq", sde_sample_freq)
        self.act_in_numpy = check_flag("act_in_numpy", act_in_numpy)
        if sde_sample_freq > 1 and not network.get("use_sde"):
            raise ValueError(f"sde_sample_freq={sde_sample_freq} needs use_sde=True: it is gSDE's")
        if unused := network.keys() & {"optimizer_class", "optimizer_kwargs"}:
            its = "adam_beta1, adam_beta2, adam_eps or weight_decay"
            raise ValueError(f"policy argument {min(unused)}: the agent has the optimizer, Adam; set its {its}")
        if network.get("use_sde") and not isinstance(action_space, spaces.Box):
            raise ValueError(f"use_sde needs actions in a Box, got {action_space}")
        squashes = bool(network.get("squash_output"))
        if squashes and not network.get("use_sde"):
            raise ValueError("squash_output needs use_sde=True: only stable-baselines3's gSDE squashes its actions")
        if squashes and not (isinstance(action_space, spaces.Box) and action_space.is_bounded()):
            raise ValueError(f"squash_output needs actions in a Box with finite bounds, got {action_space}")
        self.action_space, self.squashes = action_space, squashes
        self.name, self.network = name, _savable(network)
        if "activation_fn" in network:
            network["activation_fn"] = getattr(nn, self.network["activation_fn"])
        if normalize_observations:
            network["features_extractor_class"] = NormalizedObservations
        if isinstance(observation_space, spaces.Dict):  # its weights do not depend on the order in which keys are named
            observation_space = spaces.Dict(OrderedDict(sorted(observation_space.items())))
        self.net = CLASSES[name](observation_space, action_space, lambda _: 0.0, **network)
        self.net.set_training_mode(False)
        self.is_categorical = type(self.net.action_dist) is CategoricalDistribution
        del self.net.optimizer  # the agent owns the optimizer

    @override
    def act(
        self,
        obs: Obs,
        state: State,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        playing: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        if self.is_categorical:
            return *choose(self._logits(obs).log_softmax(-1), deterministic, generator), None
        distribution: Any = self.net.get_distribution(obs)
        held = None
        if deterministic:
            actions = distribution.mode()
        elif self.sde_sample_freq > 1:
            actions, held = self._held_sample(distribution, state, episode_start, generator)
        else:
            actions = _sample(distribution, generator)
        return actions, distribution.log_prob(actions), held

    @override
    def make_actor(
        self,
        obs: Any,
        action_space: spaces.Space,
        device: torch.device,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> Actor:
        plain = type(self) is ControlPolicy and self.act_in_numpy  # a subclass may act otherwise
        if plain and isinstance(obs, np.ndarray) and NumpyActor.reads(self.net):
            return NumpyActor(self.net, action_space, deterministic, generator)
        return super().make_actor(obs, action_space, device, deterministic, generator)

    @override
    @torch.no_grad()
    def distribution(self, obs: Obs, state: State, episode_start: torch.Tensor) -> tuple[torch.Tensor, State]:
        if not self.is_categorical:
            raise ValueError(f"actions in {self.action_space} cannot be listed; supported: Discrete")
        return self._logits(obs).log_softmax(-1), None

    @override
    def evaluate(self, rollout: Rollout, want: Want = LOG_PROBS, reference: Self | None = None) -> Evaluated:
        """Return the wanted quantities [N, T].

        Raises:
            ValueError: for the entropy of squashed actions, which is not known.
        """
        obs, actions = map_obs(rollout.existing, rollout.observations), rollout.existing(rollout.actions)  # [M, ...]
        if self.is_categorical:
            theirs = reference._logits(obs).log_softmax(-1) if reference is not None and "kl" in want else None
            found = evaluate_choices(self._logits(obs).log_softmax(-1), actions, want, theirs)
        else:
            found = self._evaluated(obs, actions, want, reference)
        return {name: rollout.in_cells(values) for name, values in found.items()}

    def _evaluated(self, obs: Obs, actions: torch.Tensor, want: Want, reference: Self | None) -> Evaluated:
        """Return the wanted quantities [M] of actions that are not one choice out of A."""
        distribution, found = self.net.get_distribution(obs), {}
        if "log_probs" in want:
            found["log_probs"] = distribution.log_prob(actions)
        if "entropy" in want:
            if (entropies := distribution.entropy()) is None:
                raise ValueError(
                    "ent_coef has no effect on squashed actions, whose entropy has no closed form; use ent_coef=0, or "
                    "policy_kwargs without squash_output"
                )
            found["entropy"] = entropies
        if "kl" in want and reference is not None:
            divergence = kl_divergence(distribution, reference.net.get_distribution(obs))
            found["kl"] = divergence.reshape(len(actions), -1).sum(1)
        return found

    @override
    def values(self, rollout: Rollout | Obs) -> torch.Tensor:
        net, rollout = self.net, episodes_of(self, rollout)
        obs = map_obs(rollout.existing, rollout.observations)
        features = BasePolicy.extract_features(net, obs, net.vf_features_extractor)
        if net.share_features_extractor:
            features = features.detach()  # they are the actor's
        return rollout.in_cells(net.value_net(net.mlp_extractor.forward_critic(features))[:, 0])

    @property
    def critic(self) -> nn.ModuleList:
        """The layers that only the critic has."""
        own = [self.net.mlp_extractor.value_net, self.net.value_net]
        return nn.ModuleList(own if self.net.share_features_extractor else [*own, self.net.vf_features_extractor])

    @override
    def frozen_copy(self) -> Self:
        last = [vars(self.net.action_dist).get(name) for name in _LAST]  # of a graph: cannot be copied
        return copy.deepcopy(self, {id(each): None for each in last}).requires_grad_(False)

    @torch.no_grad()
    def observe(self, rollout: Rollout) -> None:
        """Add the steps of a rollout, after the update on it, to the statistics of observations, if they are kept."""
        if self.normalize_observations:
            raw: Any = rollout.observations[rollout.learnable]  # type: ignore[index]
            seen: Any = preprocess_obs(raw, self.net.observation_space, self.net.normalize_images)
            for module in self.net.modules():  # actor and critic may have one each
                if isinstance(module, NormalizedObservations):
                    module.observe(seen)

    @override
    def save(self, folder: Path) -> None:
        own = {name: getattr(self, name) for name in _OWN}
        text = json.dumps({"name": self.name, **own, "network": self.network}, indent=2)
        (folder / _CONFIG).write_text(text + "\n", encoding="utf-8")
        weights = {
            key: value.clone(memory_format=torch.contiguous_format) for key, value in self.net.state_dict().items()
        }
        save_file(weights, folder / _WEIGHTS)  # copies: an extractor that actor and critic share has several names

    @classmethod
    @override
    def load(cls, folder: Path, observation_space: Any, action_space: Any) -> Self:
        config = read_table(folder / _CONFIG)
        with checking(folder / _CONFIG):
            check_choice("name", config["name"], CLASSES)
            check_flag("normalize_observations", config["normalize_observations"])
            check_count("sde_sample_freq", config["sde_sample_freq"])
            check_flag("act_in_numpy", config["act_in_numpy"])
            if not isinstance(config["network"], dict):
                raise ValueError(f"network must be an object, got {config['network']!r:.100}")
        own = {name: config[name] for name in _OWN}
        policy = cls(observation_space, action_space, config["name"], **own, **config["network"])
        load_weights(policy.net, folder / _WEIGHTS)
        return policy

    def _held_sample(
        self,
        distribution: StateDependentNoiseDistribution,
        held: State,
        episode_start: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, State]:
        """Return actions [B, A] with noise that is linear in the features of the observation, and what is held of it.

            a_t = μ(s_t) + θ^T φ(s_t)    θ ~ N(0, σ²), drawn every `sde_sample_freq` steps   (Raffin et al. 2021, eq. 4)

        Given the observation alone, the actions have the distribution that is passed in: their log-probabilities are of
        that, as in stable-baselines3. Each slot holds a matrix θ [B, F, A], at most to the end of its episode, and its
        age in steps [B].
        """
        features, std = distribution._latent_sde, distribution.get_std(self.net.log_std)  # [B, F], [F, A]
        drawn = torch.empty(len(features), *std.shape, dtype=std.dtype, device=std.device)
        drawn = drawn.normal_(generator=generator) * std
        matrices, ages = drawn, torch.zeros(len(features), dtype=torch.int64, device=std.device)
        if held is not None:
            before, since = held
            keeps = ~episode_start.to(std.device) & (since < self.sde_sample_freq)
            matrices, ages = torch.where(keeps[:, None, None], before, drawn), since.where(keeps, 0)
        noisy = distribution.distribution.mean + torch.einsum("bf,bfa->ba", features, matrices)
        squash = distribution.bijector
        return noisy if squash is None else squash.forward(noisy), (matrices, ages + 1)

    def _logits(self, obs: Obs) -> torch.Tensor:
        """Return logits [B, A] of discrete actions, without the checks of a distribution object."""
        features = BasePolicy.extract_features(self.net, obs, self.net.pi_features_extractor)
        return self.net.action_net(self.net.mlp_extractor.forward_actor(features))


def _savable(network: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a network in a form that JSON can store."""
    saved = dict(network)
    if "activation_fn" in saved:
        given = saved["activation_fn"]
        name = next((name for name in nn.modules.activation.__all__ if getattr(nn, name) is given), given)
        saved["activation_fn"] = check_choice("activation_fn", name, nn.modules.activation.__all__)
    for name, value in saved.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise ValueError(
                f"policy argument {name}={value!r} cannot be saved; allowed: what JSON can hold (or subclass "
                "Policy for another network)"
            ) from error
    return saved


def _check_spaces(name: str, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Refuse, in one line, spaces that stable-baselines3's policies fail on later."""
    supported = ", ".join(kind.__name__ for kind in BASIC)
    seen = list(observation_space.values()) if isinstance(observation_space, spaces.Dict) else [observation_space]
    if not all(isinstance(part, BASIC) for part in seen):
        shown = " ".join(str(observation_space).split())
        raise ValueError(f"observation space {shown} is not supported; supported: {supported}, and a Dict of them")
    if not isinstance(action_space, BASIC):
        raise ValueError(f"action space {action_space} is not supported; supported: {supported}")
    if 0 in action_space.shape:
        shape = f"action space {action_space} has shape {action_space.shape}"
        raise ValueError(f"{shape}, so there is nothing to choose; an action needs at least one number")
    flat = [action_space, *(part for part in seen if isinstance(part, spaces.MultiDiscrete))]
    tables = [part for part in flat if not isinstance(part, spaces.Box) and len(part.shape or ()) > 1]
    if tables:
        shown = " ".join(str(tables[0]).split())
        raise ValueError(f"space {shown} has shape {tables[0].shape}; supported: one dimension, so flatten it")
    if isinstance(observation_space, spaces.Dict) != (name == "MultiInputPolicy"):
        other = "MlpPolicy or CnnPolicy" if name == "MultiInputPolicy" else "MultiInputPolicy"
        raise ValueError(f"{name} does not read a {type(observation_space).__name__} of observations; use {other}")
    dotted = [key for key in observation_space if not key or "." in key] if name == "MultiInputPolicy" else []
    if dotted:
        raise ValueError(f"{name} cannot read the observation {dotted[0]!r}; give it a name without a dot")
    if name == "CnnPolicy" and not (
        is_image_space(observation_space) and is_image_space_channels_first(observation_space)
    ):
        raise ValueError(
            f"CnnPolicy needs uint8 images of 0 to 255 with channels first, Box[C, H, W], got {observation_space}; "
            "if channels are last, wrap it in stable-baselines3's VecTransposeImage; for others use MlpPolicy"
        )
    for part in seen:
        if np.any(getattr(part, "start", 0)):
            raise ValueError(f"observation space {part} has start={part.start}; supported: start=0")
        if isinstance(part, spaces.Box) and (not part.shape or 0 in part.shape):
            shape = f"observation space {part} has shape {part.shape}"
            raise ValueError(f"{shape}; an observation needs at least one number in one dimension, such as shape (1,)")
        if name != "MlpPolicy" and is_image_space(part) and min(part.shape[1:]) < SMALLEST:
            least = f"{name} reads images of at least {SMALLEST} x {SMALLEST} pixels with channels first, Box[C, H, W]"
            raise ValueError(f"{least}, got {part}; resize, transpose or flatten it")


def _sample(distribution: Distribution, generator: torch.Generator | None) -> torch.Tensor:
    """Sample with an explicit generator; stable-baselines3's own `sample` uses torch's global one."""
    inner, squash = distribution.distribution, getattr(distribution, "bijector", None)
    if isinstance(inner, list):  # MultiDiscrete: one categorical per dimension
        return torch.stack([sample_categorical(part.logits, generator) for part in inner], dim=1)
    if isinstance(inner, td.Bernoulli):
        return torch.bernoulli(inner.probs, generator=generator)
    drawn = torch.normal(inner.mean, inner.stddev, generator=generator)
    return drawn if squash is None else squash.forward(drawn)


# Observations that the network normalizes by itself, with statistics that are part of its weights.


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
        """Add preprocessed observations [M, ...] to the statistics, except rows that are not finite."""
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
