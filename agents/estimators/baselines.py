"""Baselines, which are subtracted from a step's return. One function each, all with the same signature.

    b = baseline(returns, rollout)          A = G - b

`returns` [N, T] are the return at every step, where an ended episode keeps its last one (`returns.hold_last`), so a
baseline may depend on the step. Episodes without a verdict (`rollout.ok` False) enter no baseline. `BASELINES` are
the ones that the setting `baseline` names; an agent of your own subtracts any other in `advantages`.

| baseline | b at step t of episode i | bias of the gradient |
|---|---|---|
| none | 0 | none |
| running mean | mean of G_t over earlier rollouts, fading | none: made before this rollout |
| batch mean | mean of G_t over the rollout's N episodes | scales by (N-1)/N |
| group mean | mean of G_t over the K episodes of the prompt | scales by (K-1)/K |
| leave-one-out | mean of G_t over the other K-1 episodes of the prompt | none |
| length-weighted | mean of G_t over the others, each weighted with its length | none |
| optimal-token | mean of G_t over the others, each weighted with its squared score norms up to t | none |
| james-stein | leave-one-out, drawn towards the mean of the other prompts | none |
| greedy | return of the greedy answer to the prompt | none |
| value | V(s_t) of a critic | none: the critic was fitted before this rollout |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..devices import widest
from ..rollout import GREEDY_RETURN, Rollout
from .groups import centred_on_first, counted, first_rows, group_mean, group_sum, mean_of_rows, sum_before

Baseline = Callable[[torch.Tensor, Rollout], torch.Tensor]


def none(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b = 0 (plain REINFORCE, Williams 1992)."""
    return torch.zeros_like(returns)


def batch_mean(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b_t = 1/N Σ_j G_{j,t} over the episodes of the rollout, one's own included."""
    return mean_of_rows(returns, torch.zeros_like(rollout.groups), counted(rollout))


def leave_one_out(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b_{i,t} = 1/(K-1) Σ_{j≠i} G_{j,t} over the other episodes of the prompt; 0 if there is none.

    Kool et al. 2019; Ahmadian et al. 2024 (arXiv:2402.14740).
    """
    rows = counted(rollout)
    anchor, centred, counts = centred_on_first(returns, rollout.groups, rows)
    total = group_sum(centred.where(rows[:, None], 0), rollout.groups)
    others = (counts - 1).clamp(min=1)
    return (anchor + (total - centred) / others).where(counts > 1, 0)


def length_weighted(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b_{i,t} = Σ_{j≠i} l_j G_{j,t} / Σ_{j≠i} l_j over the other episodes of the prompt; 0 if there is none.

    The baseline of least variance where the squared norm of an episode's score grows with its length l_j, and does not
    depend on its reward (Hao et al. 2025, "OPO", arXiv:2505.23585). The paper's sums include the episode itself, which
    makes longer episodes, also right ones, count for more in their own baseline: it bends the expected gradient.
    """
    return _weighted_mean_of_others(returns, rollout.lengths[:, None].to(returns.dtype), rollout)


def optimal_token(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return a mean of the prompt's other episodes, with weights W that grow with the step; 0 if there is none.

        b_{i,t} = Σ_{j≠i} W_{j,t} G_{j,t} / Σ_{j≠i} W_{j,t}
        W_{j,t} = Σ_{s≤t} |∇ log π(a_s)|² = Σ_{s≤t} (1 - 2 π(a_s) + Σ_v π(v)²), the gradient in the logits

    "Optimal token baseline" (arXiv:2602.07078), whose sums include the episode itself. An ended episode keeps its last
    W, as it keeps its last return. If all W of the others are zero, as of certain actions, their plain mean is taken.
    """
    norms = rollout.required("score_norms").to(returns.dtype)
    return _weighted_mean_of_others(returns, norms.where(rollout.mask, 0).cumsum(1), rollout)


def james_stein(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return the mean of the prompt's other episodes, drawn towards the other prompts' mean; 0 if there is none.

        b_i = (1 - λ) mean_{j≠i}(G_j) + λ mean_{q≠p}(μ_q)
        λ = (P - 1)/P v / (v + s),  v = mean_{q≠p}(σ_q² / K_q),  s = mean_{q≠p}((μ_q - mean_{q≠p}(μ_q))²)

    Of P prompts with at least two verdicts, p is the episode's own; prompt q has the mean μ_q and the sample's variance
    σ_q² of K_q verdicts, at each step (Zeng et al. 2025, arXiv:2511.03710, section 3.3; their released code has no
    factor (P - 1)/P). The less the prompts differ and the more the answers to one do, the larger is λ. With one such
    prompt, or where the answers to each pay the same, b is leave-one-out.
    """
    rows = counted(rollout)[:, None]
    counts = group_sum(rows.long(), rollout.groups)  # K [N, 1]
    first = first_rows(rollout.groups, rows[:, 0]) == torch.arange(len(rows), device=rows.device)
    share = (first[:, None] & (counts > 1)).to(widest(rows.device))  # 1 in one row of each prompt [N, 1]
    prompts = share.sum()

    def of_others(values: torch.Tensor) -> torch.Tensor:
        """Return the mean over the other prompts, given values that are equal within each prompt."""
        total = (share * values.where(share > 0, 0)).sum(0)
        return (total - values) / (prompts - 1).clamp(min=1)

    mean = group_mean(returns.to(share), rollout)
    squares = group_sum((returns - mean).square().where(rows, 0), rollout.groups)
    noise = of_others(squares / (counts * (counts - 1)).clamp(min=1))
    centre = of_others(mean)
    spread = (of_others(mean.square()) - centre.square()).clamp(min=0)
    drawn = (prompts - 1) / prompts.clamp(min=1) * noise / (noise + spread).where(noise > 0, 1)
    own = leave_one_out(returns, rollout)
    return own + (drawn * (centre - own)).where(counts > 1, 0).to(returns)


def greedy(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b = R of the greedy answer to the prompt, 0 if the verifier failed on it.

    Li et al. 2023 ("ReMax", arXiv:2310.10505): it does not depend on what was sampled. See `Agent.replay`.
    """
    return rollout.extras[GREEDY_RETURN].nan_to_num(0.0)[:, None].to(returns).expand_as(returns)


def value(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b_t = V(s_t), the critic's value before this update (Sutton & Barto 2018, section 13.4)."""
    if rollout.values is None:
        raise ValueError("the baseline 'value' needs a policy with a critic")
    return rollout.values.detach()


class RunningMean:
    """b_t = a fading mean of G_t over earlier rollouts: b ← decay·b + (1 - decay)·mean, the first time b ← mean.

    It is read before it is updated: a baseline that contains the rollout's own returns would bias the gradient.

    Args:
        decay: 0 to 1, how much of the old mean is kept.
    """

    def __init__(self, decay: float = 0.9) -> None:
        self.decay = decay
        self.mean: torch.Tensor | None = None  # [T], its last entry stands for all later steps

    def __call__(self, returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Return the mean so far [N, T], then let this rollout in."""
        steps = returns.shape[1]
        before = None if self.mean is None else _extend(self.mean.to(returns), steps)
        rows = counted(rollout)
        if rows.any():
            now = returns[rows].mean(0)
            if before is not None:
                now = self.decay * before + (1 - self.decay) * _extend(now, len(before))
            if now.isfinite().all():  # it would stay in the mean for ever
                self.mean = now.detach()
        return torch.zeros_like(returns) if before is None else before[:steps].expand_as(returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the checkpoint's part of the baseline."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.mean = state["mean"]


BASELINES: dict[str, Callable[[], Baseline]] = {
    "none": lambda: none,
    "running-mean": RunningMean,
    "batch-mean": lambda: batch_mean,
    "group-mean": lambda: group_mean,
    "leave-one-out": lambda: leave_one_out,
    "length-weighted": lambda: length_weighted,
    "optimal-token": lambda: optimal_token,
    "james-stein": lambda: james_stein,
    "greedy": lambda: greedy,
    "value": lambda: value,
}


def _extend(values: torch.Tensor, steps: int) -> torch.Tensor:
    """Repeat the last entry of [T] until there are at least `steps`."""
    missing = steps - len(values)
    return values if missing <= 0 else torch.cat([values, values[-1:].expand(missing)])


def _weighted_mean_of_others(returns: torch.Tensor, weights: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return the weighted mean of the other episodes of the group [N, T], the plain one if their weights are all zero.

    Args:
        returns: [N, T].
        weights: at least 0 [N, 1] or [N, T].
        rollout: with the groups.
    """
    rows = counted(rollout)
    anchor, centred, _ = centred_on_first(returns, rollout.groups, rows)
    centred, weights, one = (x.where(rows[:, None], 0) for x in (centred, weights, torch.ones_like(returns[:, :1])))
    parts = (weights * centred, centred, one, weights)
    widths = [part.shape[1] for part in parts]
    weighted, plain, count, total = _sum_of_others(torch.cat(parts, 1), rollout.groups).split(widths, 1)
    mean = torch.where(total > 0, weighted / total.where(total > 0, 1), plain / count.clamp(min=1))
    return (anchor + mean).where(count > 0, 0)


def _sum_of_others(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the sum of the other rows of its group [N, M].

    The group's sum less the row itself would leave rounding errors of that row, and with them a trace of the episode in
    its own baseline. So the rows before and those after it are added up, in log2 N sums.
    """
    order = groups.argsort(stable=True)
    values, groups = values[order], groups[order]
    found = sum_before(values, groups) + sum_before(values.flip(0), groups.flip(0)).flip(0)
    return torch.empty_like(found).index_copy(0, order, found)
