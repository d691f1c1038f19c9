"""PPO with a critic that is made for long answers."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import OrDefault, setting

from ..checks import Scheduled
from ..estimators.gae import length_adaptive_lambda
from ..rollout import Batch, Rollout
from ..settings import by_settings
from ._actor_critic import advantages_of
from .ppo import PPO


class VAPO(PPO):
    """Value-based augmented PPO (Yue et al. 2025, arXiv:2504.05118, sections 4.1 and 4.2).

        λ_i = max(0, 1 - 1/(α T_i))        Â_{i,t} = Σ_k (γ λ_i)^k δ_{i,t+k}        target_{i,t} = Σ_k γ^k r_{i,t+k}
        L = - 1/Σ_i T_i Σ_i Σ_t (min(ρ_{i,t} Â_{i,t}, clip(ρ_{i,t}, 1 - ε_low, 1 + ε_high) Â_{i,t})
                                 - c_V (V(s_{i,t}) - target_{i,t})²)

    PPO with two λ: that of the actor grows with the episode's length T_i, so that a reward reaches the first steps of
    long episodes too, and that of the critic is 1, so that its targets are returns, which no other value biases. The
    length of an episode is not known at its steps: where T_i is random, λ_i biases the gradient, however good the
    critic is.

    In the first `value_warmup` updates the critic alone is trained, on episodes of the policy as it is.

    Raises:
        ValueError: for a warm-up of a critic whose loss has no weight (`vf_coef=0`).
    """

    name = "vapo"

    clip_range_high: Scheduled | None = setting(
        default=0.28, help="ε_high; above ε_low, unlikely actions become likely sooner."
    )
    gae_lambda: OrDefault[float] = setting(default=None, help="λ of the critic's targets.", by_kind={"control": 1.0})
    length_alpha: float = setting(
        default=0.05,
        help="α: λ of the actor is 1 - 1/(α T_i), and 0 up to 1/α steps.",
        above=0,
        more="Short answers need a larger one than the paper's.",
    )
    value_warmup: int = setting(default=0, help="First updates that train the critic alone; the paper takes 50.", low=0)

    idle_settings = by_settings(lambda self: {} if self.vf_coef else {"with vf_coef=0": ("value_warmup",)})

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        return advantages_of(self, rollout, length_adaptive_lambda(rollout.lengths, self.length_alpha))

    @override
    def prepare(self, rollout: Rollout) -> Batch:
        batch = super().prepare(rollout)
        targets = advantages_of(self, batch, self.gae_lambda) + batch.required("values")
        return batch.with_extras(value_targets=targets.where(batch.learnable, 0))
