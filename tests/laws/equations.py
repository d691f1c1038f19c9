"""The equations in the agents' docstrings in plain PyTorch, with none of the agents' code in them: classes by name.

A rollout is G groups of K episodes of at most T steps; V actions. Tables hold 0 where an episode has ended.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from rlenv.agents.rollouts.envs import step_limit

Table = torch.Tensor  # [G, K, T]


@dataclass
class Played:
    """What is known of a rollout."""

    mask: Table  # which steps there are, bool
    actions: Table
    rewards: Table
    law: torch.Tensor  # log π of all actions, of the policy that is trained, differentiable [G, K, T, V]
    old: torch.Tensor  # of the policy before the update
    acting: torch.Tensor  # of the policy that sampled
    reference: torch.Tensor | None = None  # of the anchor, or of the teacher
    taught: torch.Tensor | None = None  # episodes in which the teacher has a hint, if not all, bool [G, K]
    values: Table | None = None  # of the critic as it is, differentiable
    old_values: Table | None = None  # of the critic before the update
    final_values: torch.Tensor | None = None  # of what an episode that was cut off saw last [G, K]
    parts: dict[str, torch.Tensor] = field(default_factory=dict)  # of the verdicts, by name [G, K]
    truncated: torch.Tensor | None = None  # episodes that were cut off, bool [G, K]

    def of(self, law: torch.Tensor) -> Table:
        """Return the log-probabilities of the actions."""
        return law.gather(-1, self.actions[..., None])[..., 0].where(self.mask, 0)

    @property
    def lengths(self) -> torch.Tensor:
        """The number of steps of each episode [G, K, 1]."""
        return self.mask.sum(-1, keepdim=True)

    @property
    def episodes(self) -> int:
        """G K."""
        return self.mask.shape[0] * self.mask.shape[1]


# Returns and baselines.


def to_go(rewards: Table, gamma: float | torch.Tensor = 1.0) -> Table:
    """Return Σ_k γ^k r_{t+k}."""
    out, later = torch.zeros_like(rewards), torch.zeros_like(rewards[..., 0])
    for t in reversed(range(rewards.shape[-1])):
        later = rewards[..., t] + gamma * later
        out[..., t] = later
    return out


def held(values: Table, it: Played) -> Table:
    """Return the table in which an ended episode keeps its last entry."""
    return values.gather(-1, torch.minimum(torch.arange(values.shape[-1]), it.lengths - 1))


def gains(agent: Any, it: Played) -> torch.Tensor:
    """Return R_i, less the anchor's share if it is paid in the reward [G, K, 1]."""
    return to_go(paid(agent, it), agent.gamma)[..., :1]


def paid(agent: Any, it: Played) -> Table:
    """Return r - β KL."""
    anchor = agent.anchor.settings
    charged = anchor.kl_coef and anchor.kl_in == "reward"
    return it.rewards - anchor.kl_coef * kl(anchor.kl_estimator, it.old, it) if charged else it.rewards


def kl(estimator: str, law: torch.Tensor, it: Played) -> Table:
    assert it.reference is not None
    if estimator == "exact":
        return (law.exp() * (law - it.reference)).sum(-1).where(it.mask, 0)
    gap = it.of(law) - it.of(it.reference)
    return {"k1": gap, "k2": gap.square() / 2, "k3": (-gap).exp() - 1 + gap}[estimator]


def divergence(agent: Any, it: Played) -> Table:
    """Return the anchor's term of the loss at each step; SDPO's may be another divergence than the KL."""
    name = getattr(agent, "divergence", "kl")
    if name == "kl":
        return kl(agent.anchor.settings.kl_estimator, it.law, it)
    pi, ref = it.law.exp(), it.reference.exp()
    if name == "forward-kl":
        return (ref * (ref / pi).log()).sum(-1).where(it.mask, 0)
    mixed = (pi + ref) / 2
    return ((pi * (pi / mixed).log() + ref * (ref / mixed).log()).sum(-1) / 2).where(it.mask, 0)


def with_hint(values: Table, it: Played) -> Table:
    """Return the values of the episodes for which the teacher has a hint, 0 in others."""
    return values if it.taught is None else values.where(it.taught[..., None], 0)


def of_others(values: Table, weights: Table) -> Table:
    """Return Σ_{j≠i} w_j v_j / Σ_{j≠i} w_j over the episodes of each group."""
    others = ~torch.eye(values.shape[1], dtype=torch.bool)
    pairs = others[..., None] * weights[:, None]  # [G, K, K, T]
    return (pairs * values[:, None]).sum(2) / pairs.sum(2)


def drawn_together(values: Table) -> Table:
    """Return the mean of the others of the prompt, and of the other prompts, by how much these and those are spread."""
    rows = []
    for own, others in ((values[g], torch.cat([values[:g], values[g + 1 :]])) for g in range(len(values))):
        error = (others.var(1, correction=1) / others.shape[1]).mean(0)  # of the other prompts' means [T]
        spread = others.mean(1).var(0, correction=0)
        share = len(others) / len(values) * error / (error + spread).where(error > 0, 1)
        left_out = torch.stack([torch.cat([own[:k], own[k + 1 :]]).mean(0) for k in range(len(own))])
        rows.append((1 - share) * left_out + share * others.mean((0, 1)))
    return torch.stack(rows)


def baseline(agent: Any, it: Played, values: Table) -> Table:
    name = agent.baseline
    ones = torch.ones_like(values)
    pi = it.old.exp()
    norms = (1 - 2 * it.of(it.old).exp() + pi.square().sum(-1)).where(it.mask, 0)  # of the gradient of log π in logits
    equations = {
        "none": lambda: 0 * values,
        "running-mean": lambda: agent.subtracted.state_dict()["mean"].expand_as(values),
        "batch-mean": lambda: values.mean((0, 1), keepdim=True).expand_as(values),
        "group-mean": lambda: values.mean(1, keepdim=True).expand_as(values),
        "leave-one-out": lambda: of_others(values, ones),
        "length-weighted": lambda: of_others(values, it.lengths * ones),
        "optimal-token": lambda: of_others(values, norms.cumsum(-1)),
        "james-stein": lambda: drawn_together(values),
        "greedy": lambda: it.parts["greedy_return"][..., None].expand_as(values),
        "value": lambda: it.old_values,
    }
    assert name in equations, f"no equation of the baseline {name!r}: add it to baseline of {__file__}"
    return equations[name]()


# Advantages.


def of_returns(agent: Any, it: Played) -> Table:
    """Return the advantages of `ReinforceBaseline` and, before they are whitened, of `ReinforcePlusPlus`."""
    rewards = to_go(paid(agent, it), agent.gamma)
    by_step = getattr(agent, "returns", "return-to-go") == "return-to-go"
    values = held(rewards, it) if by_step else rewards[..., :1].expand_as(rewards)
    return values - baseline(agent, it, values)


def standardized(values: torch.Tensor, batch: bool = False) -> torch.Tensor:
    """Return (v - mean) / (std + 1e-4): of each group, or with the standard deviation of the rollout [G, K, 1]."""
    spread = values.std((0, 1) if batch else 1, correction=1, keepdim=True)
    return (values - values.mean(1, keepdim=True)) / (spread + 1e-4)


def whitened(values: Table, counts: torch.Tensor) -> Table:
    """Return (v - mean) / (std + 1e-8) over all entries that count; 0 where all are equal."""
    each = values[counts]
    if each.max() == each.min():
        return 0 * values
    return (values - each.mean()) / (each.std(correction=0) + 1e-8)


def generalized(agent: Any, it: Played, lam: float | torch.Tensor) -> Table:
    """Return Σ_k (γλ)^k (r_{t+k} + γ V_{t+k+1} - V_{t+k}); nothing follows an episode that was not cut off."""
    assert it.old_values is not None
    following = torch.nn.functional.pad(it.old_values[..., 1:], (0, 1))
    if it.final_values is not None:
        last = torch.arange(it.mask.shape[-1]) == it.lengths - 1
        following = torch.where(last, it.final_values[..., None], following)
    return to_go(paid(agent, it) + agent.gamma * following - it.old_values, agent.gamma * lam)


def of_critics(agent: Any, it: Played) -> Table:
    lam: Any = agent.gae_lambda
    if is_a(agent, "VAPO"):
        lam = (1 - 1 / (agent.length_alpha * it.lengths[..., 0].double())).clamp(min=0)
    credit = generalized(agent, it, lam)
    return whitened(credit, it.mask) if getattr(agent, "normalize_advantage", False) else credit


def of_dapo(agent: Any, it: Played) -> torch.Tensor:
    price = 0.0
    if agent.overlong_buffer:
        start = step_limit(agent.env, agent.max_steps) - agent.overlong_buffer
        price = ((it.lengths - start).double() / agent.overlong_buffer).clamp(min=0)
    return standardized(gains(agent, it) - price).where(useful(agent, it), 0)


def useful(agent: Any, it: Played) -> torch.Tensor:
    """Return the episodes that DAPO trains on: of groups with unequal rewards, not cut off if it masks those."""
    earned = it.rewards.sum(-1, keepdim=True)
    kept = (earned.amax(1, keepdim=True) > earned.amin(1, keepdim=True)).expand_as(earned)
    return kept & ~it.truncated[..., None] if agent.mask_truncated else kept


def over_mean(values: torch.Tensor) -> torch.Tensor:
    """Return (R - mean) / mean of each group; 0 where the mean is not above 0."""
    mean = values.mean(1, keepdim=True)
    return ((values - mean) / mean).where(mean > 0, 0)


def best_of_subsets(gains: list[float], k: int, baseline: str) -> list[float]:
    """Return k times the mean best of the subsets of k with each episode, less its baseline, by visiting every subset.

    Args:
        gains: of a group [n].
        k: size of the subsets whose best counts.
        baseline: "none"; "loo", the best of k of the others; "loo-1", the best of the others in the same subset.
    """
    n = len(gains)
    out = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        rests = list(itertools.combinations(others, k - 1))
        best = sum(max(gains[j] for j in (i, *rest)) for rest in rests) / len(rests)
        sizes = {"loo": min(k, n - 1), "loo-1": max(k - 1, 1)}
        compared = list(itertools.combinations(others, sizes[baseline])) if baseline in sizes else []
        without = sum(max(gains[j] for j in rest) for rest in compared) / max(len(compared), 1)
        out.append(k * (best - without))
    return out


def of_best(agent: Any, it: Played) -> torch.Tensor:
    rows = [best_of_subsets(group, agent.best_of, agent.baseline) for group in gains(agent, it)[..., 0].tolist()]
    return torch.tensor(rows, dtype=torch.float64)[..., None]


def of_parts(agent: Any, it: Played) -> torch.Tensor:
    parts = {name: part[..., None] for name, part in it.parts.items()}
    if not agent.weight_of:
        total = standardized(gains(agent, it))
    else:
        total = sum((weight * standardized(parts[name]) for name, weight in agent.weight_of.items()), torch.zeros(()))
    return whitened(total, torch.ones_like(total, dtype=torch.bool))


def of_teacher(agent: Any, it: Played) -> Table:
    """Return log π_T - log π of the policy as it is; centred, plus the KL in the state; and RLOO's, if asked for."""
    credit = it.of(it.reference) - it.of(it.law)
    if agent.estimator == "exact":
        credit = 0 * credit
    elif agent.estimator == "centred":
        credit = credit + kl("exact", it.old, it)
    credit = with_hint(credit, it)
    values = gains(agent, it)
    return credit + agent.reward_coef * (values - of_others(values, torch.ones_like(values))) * bool(agent.reward_coef)


ADVANTAGES: dict[str, Callable[[Any, Played], torch.Tensor]] = {
    "Reinforce": gains,
    "ReinforceBaseline": of_returns,
    "RLOO": lambda agent, it: (values := gains(agent, it)) - of_others(values, torch.ones_like(values)),
    "DrGRPO": lambda agent, it: (values := gains(agent, it)) - values.mean(1, keepdim=True),
    "DAPO": of_dapo,
    "ReinforcePlusPlus": lambda agent, it: whitened(of_returns(agent, it), it.mask),
    "TOPR": lambda agent, it: gains(agent, it) - agent.threshold,
    "MaxRL": lambda agent, it: over_mean(gains(agent, it)),
    "PKPO": of_best,
    "GDPO": of_parts,
    "Distillation": of_teacher,
    **dict.fromkeys(("A2C", "PPO"), of_critics),
    **dict.fromkeys(
        ("GRPO", "SAPO", "VESPO", "CISPO", "ClipCov", "KLCov"),
        lambda agent, it: standardized(gains(agent, it), agent.scale == "batch"),
    ),
}

# Surrogates.


def log_ratio(agent: Any, it: Played) -> Table:
    """Return log ρ, of the whole episode if that has one ratio."""
    each = it.of(it.law) - it.of(it.old)
    return (each.sum(-1, keepdim=True) / it.lengths).expand_as(each) if is_a(agent, "GSPO") else each


def high(agent: Any) -> float:
    return agent.clip_range if agent.clip_range_high is None else agent.clip_range_high


def clipped(agent: Any, it: Played, credit: Table) -> Table:
    ratio, low = log_ratio(agent, it).exp(), 1 - agent.clip_range
    most = math.inf if agent.max_ratio is None else agent.max_ratio
    bounded = torch.where(credit < 0, ratio.clamp(max=most), ratio)
    return torch.minimum(bounded * credit, ratio.clamp(low, 1 + high(agent)) * credit)


def is_clipped(agent: Any, it: Played, credit: Table) -> Table:
    ratio, most = log_ratio(agent, it).exp(), math.inf if agent.max_ratio is None else agent.max_ratio
    fell = (ratio < 1 - agent.clip_range) | (ratio > most)
    return torch.where(credit > 0, ratio > 1 + high(agent), (credit < 0) & fell)


def weighted(agent: Any, it: Played, credit: Table) -> Table:
    return (log_ratio(agent, it).exp().clamp(max=agent.max_ratio) * credit).detach() * it.of(it.law)


def has_left(agent: Any, it: Played, credit: Table) -> Table:
    return credit.sign() * (it.of(it.law).exp() - it.of(it.old).exp()) > agent.max_moved


def temperatures(agent: Any, credit: Table) -> Table:
    positive, negative = torch.tensor([agent.gate_temperature, agent.gate_temperature_negative], dtype=torch.float64)
    return torch.where(credit > 0, positive, negative)


def gated(agent: Any, it: Played, credit: Table) -> Table:
    tau = temperatures(agent, credit)
    return 4 / tau / (1 + (-tau * (log_ratio(agent, it).exp() - 1)).exp()) * credit


def is_closing(agent: Any, it: Played, credit: Table) -> Table:
    power = (-temperatures(agent, credit) * (log_ratio(agent, it).exp() - 1)).exp()
    return 4 * power / (1 + power).square() < 0.5


def taper(agent: Any, it: Played, credit: Table) -> Table:
    whole = log_ratio(agent, it).sum(-1, keepdim=True).exp()
    return torch.where(credit >= 0, 1.0, whole.clamp(max=1)).detach()


def geometric(agent: Any, it: Played, credit: Table) -> Table:
    """Return the T_i-th root of the product of the clipped ratios, times the advantage."""
    ratio, good = log_ratio(agent, it).exp(), credit > 0
    most = math.inf if agent.max_ratio is None else agent.max_ratio
    bad_ratio = ratio.clamp(max=most).clamp(min=1 - agent.clip_range)
    each = torch.where(good, ratio.clamp(max=1 + high(agent)), bad_ratio).where(it.mask, 1)
    return each.prod(-1, keepdim=True) ** (1 / it.lengths.double()) * credit


def kernel(agent: Any, it: Played, credit: Table) -> Table:
    """Return W^k exp(λ (1 - W)), W the product of the ratios of the steps, and of their weights."""
    weights, by_step = mismatched(agent, it), str(agent.mismatch).startswith("token")
    of_acting = weights.where(it.mask, 1).prod(-1, keepdim=True) if by_step else weights[..., :1]
    whole = log_ratio(agent, it).sum(-1, keepdim=True).exp().detach() * of_acting
    good, bad = (agent.power, agent.decay), (agent.power_negative, agent.decay_negative)
    shapes = torch.tensor([good, bad], dtype=torch.float64)[(credit < 0).long()]  # [G, K, T, 2]
    k, decay = shapes.unbind(-1)
    return whole**k * (decay * (1 - whole)).exp()


def gate(agent: Any, it: Played, credit: Table) -> Table:
    chance = it.of(it.law).exp().detach()
    return 1 / (1 + chance ** (credit / agent.gate_width))


def chosen(agent: Any, it: Played, credit: Table) -> Table:
    """Return the steps with the largest (log π - mean)(A - mean) in the range, a share of all steps."""
    old = it.of(it.old)
    values = (old - old[it.mask].mean()) * (credit - credit.expand_as(old)[it.mask].mean())
    high = math.inf if agent.max_covariance is None else agent.max_covariance
    free = it.mask & (credit != 0) & (values > agent.min_covariance) & (values < high)
    ordered = values[free].sort(descending=True).values
    return free & (values >= ordered[max(1, int(agent.share * int(it.mask.sum()))) - 1])


def held_back(agent: Any, it: Played, credit: Table) -> Table:
    log_rho = log_ratio(agent, it)
    price = agent.penalty * (log_rho.exp() - 1 - log_rho)
    return log_rho.exp() * credit - price.where(chosen(agent, it, credit), 0)


SURROGATES: dict[str, Callable[[Any, Played, Table], Table]] = {
    **dict.fromkeys(("GRPO", "DrGRPO", "DAPO", "ReinforcePlusPlus", "PPO", "MaxRL", "GDPO"), clipped),
    **dict.fromkeys(("CISPO", "Distillation"), weighted),
    "DPPO": lambda agent, it, credit: weighted(agent, it, credit).where(~has_left(agent, it, credit), 0),
    "SAPO": gated,
    "GMPO": geometric,
    "VESPO": lambda agent, it, credit: kernel(agent, it, credit) * credit * it.of(it.law),
    "Delightful": lambda agent, it, credit: gate(agent, it, credit) * credit * it.of(it.law),
    "TOPR": lambda agent, it, credit: taper(agent, it, credit) * credit * it.of(it.law),
    "ClipCov": lambda agent, it, credit: (log_ratio(agent, it).exp() * credit).where(~chosen(agent, it, credit), 0),
    "KLCov": held_back,
    **dict.fromkeys(
        ("Reinforce", "ReinforceBaseline", "RLOO", "PKPO", "A2C"), lambda agent, it, credit: credit * it.of(it.law)
    ),
}
HELD_BACK: dict[str, Callable[[Any, Played, Table], Table]] = {  # `train/clip_fraction`; GDPO's 0 has either sign
    **dict.fromkeys(("GRPO", "DrGRPO", "DAPO", "ReinforcePlusPlus", "PPO", "MaxRL"), is_clipped),
    "CISPO": lambda agent, it, credit: log_ratio(agent, it).exp() > agent.max_ratio,
    "Distillation": lambda agent, it, credit: (
        (log_ratio(agent, it).exp() > agent.max_ratio) & (agent.estimator != "exact" or agent.reward_coef > 0)
    ),
    "DPPO": has_left,
    "SAPO": is_closing,
    "VESPO": lambda agent, it, credit: kernel(agent, it, credit) < 0.5,
    "TOPR": lambda agent, it, credit: taper(agent, it, credit) < 0.5,
    **dict.fromkeys(("ClipCov", "KLCov"), chosen),
}

# Weights.


def by_token(agent: Any, it: Played) -> Table:
    counts = it.mask & useful(agent, it) if is_a(agent, "DAPO") else it.mask
    return counts.double() / counts.sum()


def by_length(agent: Any, it: Played) -> Table:
    return it.mask.double() / (it.lengths * it.episodes)


def summed(agent: Any, it: Played) -> Table:
    return it.mask.double() / it.episodes


WEIGHTS: dict[str, Callable[[Any, Played], Table]] = {
    **dict.fromkeys(("A2C", "PPO", "CISPO", "VESPO", "DAPO", "ReinforcePlusPlus", "ClipCov", "KLCov"), by_token),
    **dict.fromkeys(("GRPO", "SAPO", "GDPO"), by_length),
    **dict.fromkeys(("Reinforce", "ReinforceBaseline", "RLOO", "TOPR", "MaxRL", "PKPO", "Distillation"), summed),
    "LUSPO": summed,
    "DrGRPO": lambda agent, it: summed(agent, it) / step_limit(agent.env, agent.max_steps),
}

# The loss.


def find(table: dict[str, Any], agent: Any) -> Any:
    """Return the entry of the agent's class or of the nearest class above it; None if the table has neither."""
    return next((table[cls.__name__] for cls in type(agent).__mro__ if cls.__name__ in table), None)


def equation(table: dict[str, Any], agent: Any) -> Any:
    """Return what `find` does.

    Raises:
        AssertionError: if the table has no entry.
    """
    found = find(table, agent)
    assert found, f"no equation of {type(agent).__name__}: add it to ADVANTAGES, SURROGATES and WEIGHTS of {__file__}"
    return found


def is_a(agent: Any, name: str) -> bool:
    return name in [cls.__name__ for cls in type(agent).__mro__]


def importance(agent: Any, it: Played) -> Table:
    """Return the weights of steps that another policy sampled, unless they are in the kernel."""
    return torch.ones_like(it.rewards) if is_a(agent, "VESPO") else mismatched(agent, it)


def mismatched(agent: Any, it: Played) -> Table:
    if agent.mismatch is None:
        return torch.ones_like(it.rewards)
    gap = it.of(it.old) - it.of(it.acting)
    by_step = agent.mismatch.startswith("token")
    ratio = (gap if by_step else gap.sum(-1, keepdim=True).expand_as(gap)).exp()
    low, high = agent.mismatch_min, math.inf if agent.mismatch_max is None else agent.mismatch_max
    if agent.mismatch.endswith("truncate"):
        return ratio.clamp(low, high)
    return ratio * ((ratio >= low) & (ratio <= high))


def dropped(agent: Any, it: Played, credit: Table) -> Table:
    """Return the steps that `off_policy_mask` leaves out, bool."""
    if getattr(agent, "off_policy_mask", None) is None:
        return torch.zeros_like(it.mask)
    fall = (it.of(it.acting) - it.of(it.law)).sum(-1, keepdim=True) / it.lengths
    return (credit < 0) & (fall > agent.off_policy_mask)


def objective(agent: Any, it: Played) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return what the actor ascends, differentiable in `law`; the critic's loss; the share of steps held back, if any.

    Of the agent only settings, and the state of a running mean, are read.
    """
    with torch.no_grad():
        credit = equation(ADVANTAGES, agent)(agent, it).expand_as(it.rewards).where(it.mask, 0)
        weights = equation(WEIGHTS, agent)(agent, it)
        left_out = dropped(agent, it, credit)
        held_back = find(HELD_BACK, agent)
        share = ((held_back(agent, it, credit) | left_out) & it.mask & (credit != 0)).sum() if held_back else None
    steps = equation(SURROGATES, agent)(agent, it, credit) * importance(agent, it) * ~left_out
    if agent.ent_coef:
        steps = steps - agent.ent_coef * (it.law.exp() * it.law).sum(-1)
    anchor = agent.anchor.settings
    if anchor.kl_coef and anchor.kl_in == "loss":
        rho = (it.of(it.law) - it.of(it.old)).exp() * importance(agent, it)
        factor = {"none": 1.0, "constant": rho.detach(), "differentiated": rho}[anchor.kl_ratio]
        steps = steps - anchor.kl_coef * factor * with_hint(divergence(agent, it), it)
    return (weights * steps).sum() * (not agent.actor_waits), critic_loss(agent, it, weights), share


def critic_loss(agent: Any, it: Played, weights: Table) -> torch.Tensor:
    if not agent.uses_critic:
        return torch.zeros(())
    with torch.no_grad():
        if is_a(agent, "ReinforceBaseline"):
            targets = to_go(paid(agent, it), agent.gamma)
        else:
            targets = generalized(agent, it, agent.gae_lambda) + it.old_values
    errors = (it.values - targets).square()
    if getattr(agent, "clip_range_vf", None):
        near = it.old_values + (it.values - it.old_values).clamp(-agent.clip_range_vf, agent.clip_range_vf)
        errors = torch.maximum(errors, (near - targets).square())
    return agent.vf_coef * (weights * errors).sum()
