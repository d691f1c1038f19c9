"""Group reward-decoupled normalization policy optimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from typing_extensions import override

from rlenv._checks import is_number
from rlenv._settings import setting

from ..estimators import aggregation, returns, scaling
from ..rollout import PARTS, Rollout
from ..settings import by_settings
from ..training.metrics import column_name
from ..training.proximal import ProximalAgent
from ._kl_in_loss import KL_ESTIMATOR, KL_IN


class GDPO(ProximalAgent):
    """Group reward-decoupled normalization policy optimization (Liu et al. 2026, arXiv:2601.05242).

        A_i = whitened Σ_c w_c (r_{i,c} - mean(r_c)) / (std(r_c) + 1e-4)
        L = - 1/N Σ_i 1/T_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    Each part r_c of the reward is standardized in its group before the sum, which is then whitened over the episodes of
    the rollout: a part that varies little counts as much as one that varies much, and answers that earn the same sum in
    different ways are told apart. With one part, it is `GRPO` but for the whitening.

    The parts are those of a verifier that is a weighted sum, as in `--verifier a.py:f,a.py:g=0.5`, with its weights.
    For other verifiers whose verdicts have named parts, name them in `part_weights`; what else is paid is then not
    trained on. Where neither is the case, as in control, the return is the only part. A part that a verdict lacks, as
    one that is not applicable, adds 0 and does not enter the part's mean. `gamma` discounts the return, not parts.

    `group_size` is at least 2. Without groups, the rollout is one group.

    Raises:
        ValueError: for weights that are not numbers, or `normalize_rewards`; in the first update, for a part that the
            verdicts do not have.
    """

    name = "gdpo"
    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_mean)

    kl_in: Literal["loss"] = KL_IN
    kl_estimator: Literal["k1", "k2", "k3", "exact"] = KL_ESTIMATOR

    idle_settings = {"in GDPO, which standardizes every part of the reward": ("normalize_rewards",)}

    part_weights: Mapping[str, float] | None = setting(
        default=None,
        help="Parts of the verdict to train on, and the weight of each standardized part.",
        shown="the verifier's, if it is a weighted sum",
        checked_by=lambda value: _part_weights(value),
    )

    @property
    def weight_of(self) -> Mapping[str, float]:
        """The parts that count, with their weights."""
        declared: Mapping[str, float] = self.env.metadata.get("part_weights", {})
        return declared if self.part_weights is None else self.part_weights

    figures = by_settings(
        lambda self: {f"train/part_weight/{column_name(name)}": float(w) for name, w in self.weight_of.items()}
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        if self.num_updates == 0 and self.part_weights is not None and bool(rollout.ok.any()):
            self._check_parts(rollout)
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        lacking = torch.full_like(gains[:, 0], torch.nan)
        parts = [(rollout.extras.get(PARTS + name, lacking).to(gains), w) for name, w in self.weight_of.items()]
        return scaling.standardize_parts(parts or [(gains[:, 0], 1.0)], rollout)[:, None].expand_as(gains)

    def _check_parts(self, rollout: Rollout) -> None:
        known = [name.removeprefix(PARTS) for name in rollout.extras if name.startswith(PARTS)]
        if unknown := [name for name in self.weight_of if name not in known]:
            have = f"the parts {', '.join(known)}" if known else "no named parts"
            raise ValueError(f"part_weights names {unknown[0]!r}, but the verdicts of this environment have {have}")


def _part_weights(given: Any) -> dict[str, float]:
    """Return the weights of parts as a dict; an error unless they are some numbers by name."""
    if not isinstance(given, Mapping) or not given or not all(map(is_number, given.values())):
        raise ValueError(f'part_weights must map parts to numbers, as in {{"right": 1, "short": 0.5}}; got {given!r}')
    return {name: float(weight) for name, weight in given.items()}
