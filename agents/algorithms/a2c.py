"""Advantage actor-critic."""

from __future__ import annotations

from ..estimators import aggregation
from ._actor_critic import ActorCritic


class A2C(ActorCritic):
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, section 4; synchronous).

        L = - 1/Σ_i T_i Σ_i Σ_t (Â_{i,t} log π(a_{i,t} | s_{i,t}) - c_V (V(s_{i,t}) - target_{i,t})²)

    The paper uses n-step returns, this class generalized advantages over whole episodes; λ = 1 is the paper's with n
    equal to the length of the episode.
    """

    name = "a2c"
    weights = staticmethod(aggregation.token_mean)
