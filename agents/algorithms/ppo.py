"""Proximal policy optimization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from typing_extensions import override

from rlenv._settings import OrDefault, setting

from ..checks import Scheduled
from ..estimators import aggregation, clipping, scaling
from ..rollout import Batch, Rollout, map_obs
from ..training.proximal import ProximalAgent
from ._actor_critic import ActorCritic


class PPO(ProximalAgent, ActorCritic):
    """Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347, eqs. 7 and 9).

        L = - 1/Σ_i T_i Σ_i Σ_t (min(ρ_{i,t} Â_{i,t}, clip(ρ_{i,t}, 1 ± ε) Â_{i,t}) - c_V (V(s_{i,t}) - target_{i,t})²)

    Its mini-batches are random steps of the rollout; for a language model, whose steps are evaluated in one pass per
    episode, for a policy with a memory (`initial_state`), and with `off_policy_mask`, which looks at episodes, whole
    ones. So `surrogate` may get steps as episodes of length 1.
    """

    name = "ppo"
    weights = staticmethod(aggregation.token_mean)

    num_epochs: OrDefault[int] = setting(default=None, by_kind={"control": 4, "language-model": 2})
    num_minibatches: OrDefault[int] = setting(default=None, by_kind={"control": 4, "language-model": 2})
    gae_lambda: OrDefault[float] = setting(default=None, by_kind={"control": 0.95})
    normalize_advantage: bool = setting(
        default=True,
        help="Whether Â is whitened over the rollout, once, before the rollout is split.",
        more="This is common, and biases the gradient by a common factor and offset.",
    )
    clip_range_vf: Scheduled | None = setting(
        default=None,
        help="How far the critic's value may move from the old one before its error has no gradient.",
        above=0,
        more="A number or a function of the remaining progress; None for no limit. Not in the paper, but in its first "
        "implementation.",
    )

    @override
    def prepare(self, rollout: Rollout) -> Batch:
        batch = super().prepare(rollout)
        if not self.normalize_advantage:
            return batch
        return replace(batch, advantages=scaling.whiten(batch.advantages, batch.learnable))

    @override
    def batches(self, batch: Batch) -> Iterator[Batch]:
        reads_back = self.policy.obs_from_actions or self.policy.initial_state(1) is not None
        if reads_back or self.num_minibatches == 1 or self.off_policy_mask is not None:
            return super().batches(batch)
        steps = _by_step(batch)
        return super().batches(steps if len(steps) else batch)

    @override
    def critic_loss(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        if self.clip_range_vf is None:
            return super().critic_loss(values, batch)
        old, targets = batch.required("values"), batch.required("value_targets")
        return clipping.clipped_squared_error(values, old, targets, self.present("clip_range_vf"))


def _by_step(batch: Batch) -> Batch:
    """Return each learnable step as a separate episode [M, 1], for policies that observe every step."""
    rows, times = batch.learnable.nonzero(as_tuple=True)
    source = replace(batch, final_observations=None)
    return source.mapped(
        lambda value, stepwise: map_obs(lambda x: x[rows, times][:, None] if stepwise else x[rows], value)
    )
