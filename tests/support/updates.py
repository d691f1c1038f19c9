"""All agents in the tiny world with the settings that matter, a sample of its episodes, and changes of that sample."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from tabular import AT_EVERY_STEP, P, S, T, TabularPolicy, random_episodes

from rlenv import agents
from rlenv.agents import Rollout
from rlenv.agents.algorithms import AGENTS

N = 24  # episodes of a sample: 6 groups of 4
BETA = 0.3
K3 = {"kl_coef": BETA, "kl_estimator": "k3", "kl_in": "loss"}
FAMILY: dict[str, dict[str, Any]] = {
    "RLOO, k1": {"cls": agents.RLOO, "kl_coef": BETA},
    "GRPO, k3": {"cls": agents.GRPO, **K3},
    "DrGRPO": {"cls": agents.DrGRPO, "max_steps": T},
    "DAPO": {"cls": agents.DAPO, "episodes_per_update": N},
    "DAPO, overlong": {"cls": agents.DAPO, "episodes_per_update": N, "overlong_buffer": 2, "max_steps": T},
    "DAPO, masked": {"cls": agents.DAPO, "episodes_per_update": N, "mask_truncated": True},
    "GSPO": {"cls": agents.GSPO, "clip_range": 0.1, "clip_range_high": 0.1},
    "GSPO, batch": {"cls": agents.GSPO, "scale": "batch", "max_ratio": 1.3, "kl_coef": BETA},
    "LUSPO": {"cls": agents.LUSPO, "clip_range": 0.1, "clip_range_high": 0.1},
    "GMPO": {"cls": agents.GMPO, "clip_range": 0.1, "clip_range_high": 0.2},
    "VESPO": {"cls": agents.VESPO, "decay_negative": 4.0},
    "CISPO": {"cls": agents.CISPO, "max_ratio": 1.3},
    "CISPO, batch": {"cls": agents.CISPO, "scale": "batch"},
    "ReinforcePlusPlus": {"cls": agents.ReinforcePlusPlus, "gamma": 0.9, "kl_coef": BETA},
    "SAPO": {"cls": agents.SAPO, "gate_temperature_negative": 3.0},
    "DPPO": {"cls": agents.DPPO, "max_moved": 0.05},
    "ClipCov": {"cls": agents.ClipCov, "share": 0.1, "min_covariance": 0.1},
    "KLCov": {"cls": agents.KLCov, "share": 0.1},
    "RLOO, mismatch": {"cls": agents.RLOO, "mismatch": "sequence-truncate"},
    "PPO, mismatch": {"cls": agents.PPO, "gae_lambda": 0.5, "mismatch": "token-mask", "off_policy_mask": 0.02},
    "GRPO, off-policy": {"cls": agents.GRPO, "off_policy_mask": 0.02},
    "GRPO, k3 ratio": {"cls": agents.GRPO, **K3, "kl_ratio": "differentiated"},
    "REINFORCE++-baseline": {"cls": agents.ReinforcePlusPlus, "baseline": "group-mean"},
    "A2C": {"cls": agents.A2C, "gae_lambda": 0.5, "gamma": 0.9},
    "PPO": {"cls": agents.PPO, "gae_lambda": 0.5, "gamma": 0.9, "ent_coef": 0.1},
    "VAPO": {"cls": agents.VAPO, "length_alpha": 1.0, "gamma": 0.9},
    "VAPO, warming up": {"cls": agents.VAPO, "value_warmup": 1, "ent_coef": 0.1, "kl_coef": BETA, "kl_in": "loss"},
    "Distillation": {"cls": agents.Distillation, "max_ratio": 1.3},
    "Distillation, centred": {"cls": agents.Distillation, "estimator": "centred", "reward_coef": 0.5},
    "Distillation, exact": {"cls": agents.Distillation, "estimator": "exact"},
    "SDPO, live": {"cls": agents.SDPO, "teacher_weights": "live", "divergence": "forward-kl"},
    "SDPO, sampled": {"cls": agents.SDPO, "estimator": "sampled", "reward_coef": 0.5},
    "PPO, clipped values": {"cls": agents.PPO, "normalize_advantage": False, "clip_range_vf": 0.2, "kl_coef": BETA},
}
BASELINES = tuple(name for name in agents.estimators.baselines.BASELINES if name != "value")
FAMILY |= {f"baseline {name}": {"cls": agents.ReinforceBaseline, "baseline": name} for name in (*BASELINES, "value")}
FAMILY |= {
    f"baseline {name} by episode": {"cls": agents.ReinforceBaseline, "baseline": name, "returns": "episode"}
    for name in BASELINES
}
FAMILY |= {
    f"{kl} in the {place}": {"cls": agents.ReinforceBaseline, "kl_coef": BETA, "kl_estimator": kl, "kl_in": place}
    for kl, place in itertools.product(("k1", "k2", "k3", "exact"), ("reward", "loss"))
}
FAMILY = {cls.__name__: {"cls": cls} for cls in AGENTS.values()} | FAMILY


def sample(seed: int = 0) -> Rollout:
    return random_episodes(TabularPolicy(), rewards=AT_EVERY_STEP, seed=seed)


def some_cut_off(rollout: Rollout) -> Rollout:
    """Return the rollout with every third episode cut off while it was looking at one state or another."""
    rows = torch.arange(len(rollout))
    cut = rows % 3 == 0
    return replace(rollout, terminated=~cut, truncated=cut, final_observations=(rows * 5 % (P * S)).where(cut, 0))


def paid_at_the_end(rollout: Rollout, rewards: torch.Tensor) -> Rollout:
    """Return the rollout with these rewards [N], each at the last step."""
    last = torch.arange(T) == rollout.lengths[:, None] - 1
    return replace(rollout, rewards=(rewards[:, None] * last).double())
