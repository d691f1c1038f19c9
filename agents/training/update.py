"""The update of an agent's policy, the same for every algorithm: functions of an agent and a batch.

The loss is `Algorithm.loss`; here are its gradient in micro-batches, the optimizer steps, and the metrics of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from .. import processes
from ..devices import to_floats
from ..errors import DivergedError
from ..estimators.sample_size import episode_weights
from ..fsdp import full
from ..policies import ControlPolicy, Policy
from ..rollout import ENV_RETURN, Batch, Rollout
from .extras import own_passes
from .metrics import WEIGHTS, Reduce, combined, critic_metrics, mismatch_metrics, sampled_metrics
from .optimizer import half_precision

Figures = dict[str, torch.Tensor]
LOG_PROB_TOLERANCE = 0.05  # nats; rounding is a thousand times smaller, the mildest known bug several times larger
# Weights of 16 bits round the log-probability of an unlikely action by up to 0.7 nats, but few actions are unlikely:
# their limit is for train/approx_kl. Rounding makes 0.0003 there in the default run, and never more than 0.0025.
HALF_KL_TOLERANCE = 0.02


def take_steps(agent: Any, rollout: Rollout) -> tuple[dict[str, float], int]:
    """Take the optimizer steps of a rollout; return its metrics, averaged over them, and how many steps it had."""
    if agent.watchers:
        rollout = rollout.with_extras(**{ENV_RETURN: rollout.returns})
    prepared = agent.prepare(agent.reward_scale(rollout, agent.gamma) if agent.normalize_rewards else rollout)
    if not isinstance(prepared, Batch) or not len(prepared):
        name = f"{type(agent).__name__}.prepare"
        raise ValueError(
            f"{name} returns {prepared!r}; return that of super().prepare(rollout), of one episode or more"
        )
    for watch in agent.watchers:
        watch(prepared)
    optimizer = agent.policy_optimizer
    steps: list[dict[str, float]] = []
    learned = False
    for batch in agent.batches(prepared):
        metrics = backward(agent, batch)
        if agent.target_kl is not None and steps and metrics["train/approx_kl"] > agent.target_kl:
            break
        fault = fault_of(agent.policy, metrics)
        # Later steps train another policy than the one that sampled, and so does the first one of a rollout written
        # ahead, whose engine the guard has checked.
        if not fault and not steps and not agent.staleness:
            check_log_probs(agent.policy, metrics)
        norm = optimizer.step(
            agent.rate * (metrics["train/ess"] ** 0.5 if agent.scale_by_ess else 1.0),
            agent.max_grad_norm,
            weight_decay=agent.weight_decay,
            betas=(agent.adam_beta1, agent.adam_beta2),
            eps=agent.adam_eps,
            fault=fault,
            new_update=not steps,
        )
        steps.append(metrics | {"train/grad_norm": norm})
        learned |= optimizer.stepped
    if not steps:
        raise ValueError(f"{type(agent).__name__}.batches yields no batch; yield one or more")
    if isinstance(agent.policy, ControlPolicy):
        agent.policy.observe(prepared)
    means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    skipped = float(optimizer.total_skipped)
    first = {"train/logp_gap_max": steps[0]["train/logp_gap_max"], "train/skipped_updates": skipped}
    if agent.target_kl is not None:
        means["train/optimizer_steps"] = float(len(steps))
    figures = sampled_metrics(prepared) | critic_metrics(prepared) | means | first | mismatch_metrics(prepared)
    return figures, int(prepared.learnable.sum()) if learned else 0


def backward(agent: Any, batch: Batch) -> dict[str, float]:
    """Make the gradient of one optimizer step, in micro-batches; return its metrics."""
    optimizer = agent.policy_optimizer
    optimizer.zero_grad()
    moving = with_gradient(agent, batch)
    trained = batch.select(rows_to_train(agent, moving))
    figures: list[Figures] = []
    for rows, is_own in own_passes(agent, trained):
        loss, metrics = checked_loss(agent, agent.loss(rows))
        loss = loss if is_own else 0 * loss  # a pass that only others need, who gather weights in it
        loss.backward()
        optimizer.weights.add_gradients()
        figures.append(metrics | {"train/loss": loss.detach()} if is_own else {})
    processes.sum_gradients(optimizer.weights.masters)
    counts = {Reduce.MEAN.name: batch.learnable.sum(), Reduce.MEAN_OF_TRAINED.name: moving.sum()}
    *found, counted = to_floats([*figures, counts])
    return combined(agent.reductions, [each for several in processes.gather(found) for each in several], counted)


def check_log_probs(policy: Policy, metrics: Mapping[str, float]) -> None:
    """Stop if acting and training differ by more than rounding explains.

    Raises:
        DivergedError: if they do.
    """
    gap, limit, said = metrics["train/logp_gap_max"], LOG_PROB_TOLERANCE, "differ by {:.3g} nats"
    if half_precision(policy):
        gap, limit, said = metrics["train/approx_kl"], HALF_KL_TOLERANCE, "differ by a KL of {:.3g} nats"
    if not gap <= limit:
        raise DivergedError(
            f"log-probabilities while acting and training {said.format(gap)} "
            f"(at most {limit} is rounding): the policy that sampled is not the one being trained (with "
            "dropout or batch normalization, call its eval(); if it is meant to be an older one, set mismatch), or its "
            "actions have become so unlikely that rounding counts; then lower learning_rate"
        )


def fault_of(policy: Policy, metrics: Mapping[str, float]) -> str:
    """Return the figure that is not finite though all weights are; empty if there is none."""
    names = {"train/logp_gap_max": "log-probabilities", "train/loss": "loss"}
    fault = next((said for name, said in names.items() if not math.isfinite(metrics[name])), "")
    broken = sum(int((~full(p).isfinite()).sum()) for p in policy.parameters()) if fault else 0
    if broken:
        raise DivergedError(
            f"the policy has {broken} weights that are NaN or infinite: load others, or lower learning_rate"
        )
    return fault


def checked_loss(agent: Any, returned: Any) -> tuple[torch.Tensor, Figures]:
    """Return the loss and the metrics that an agent's `loss` returned, checked.

    Raises:
        TypeError: unless it is a loss with a gradient, and its metrics with those of an update, each one number.
    """
    name = f"{type(agent).__name__}.loss"
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        kind = type(returned).__name__
        raise TypeError(f"{name} returns a {kind}; return the loss and a dictionary of metrics, as super().loss(batch)")
    loss, metrics = returned
    for what, value in {"the loss": loss, **metrics}.items():
        if not isinstance(value, float | int) and getattr(value, "numel", lambda: 0)() != 1:
            shown = f"of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(
                f"{name} returns {what} {shown}; return one number, and log others with agent.logger.record"
            )
    if not getattr(loss, "requires_grad", False):
        raise TypeError(f"{name} returns a loss that has no gradient; make it, or the surrogate, of log_probs")
    if "train/logp_gap_max" not in metrics:
        raise TypeError(f"{name} returns no train/logp_gap_max; add its metrics to those of super().loss(batch)")
    return loss, metrics


def check_per_step(agent: Any, method: str, returned: Any, steps: torch.Tensor) -> None:
    """Check that the result of a method of an agent, or of its policy, has the shape of the steps [N, T].

    Raises:
        ValueError: naming the method, if it has not.
    """
    wanted = tuple(steps.shape)
    shape = tuple(returned.shape) if isinstance(returned, torch.Tensor) else type(returned).__name__
    if shape != wanted:
        name = f"{type(agent).__name__}.{method}"
        raise ValueError(f"{name} returns {shape}; return one number per step, [N, T] = {wanted}")


def correction(agent: Any, log_probs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the factor of the surrogate at each step, a constant [N, T], and the steps that are kept; None for 1, all.

    Args:
        agent: has the settings.
        log_probs: of the policy as it is, without gradient [N, T].
        batch: has the importance weights of `mismatch`, if any.
    """
    weights = None if agent.importance_in_surrogate else batch.extras.get("importance")
    if agent.off_policy_mask is None:
        return weights, None
    from ..estimators.mismatch import off_policy_mask  # where another policy acted

    acting, most = batch.sampling_log_probs, agent.off_policy_mask
    kept = off_policy_mask(log_probs, acting, batch.advantages, batch.learnable, most)
    return kept.to(log_probs) if weights is None else weights * kept, kept


@torch.no_grad()
def diagnosed(agent: Any, log_probs: torch.Tensor, batch: Batch) -> Figures:
    """Return metrics of the change of the log-probabilities since before the update, and sums of weights."""
    gap, known = log_probs - batch.log_probs, with_gradient(agent, batch)  # the others are not if `skip_idle_rows`
    moved, rows = gap.where(known, 0), known.any(1)
    weights = episode_weights(log_probs, batch.sampling_log_probs, known).where(rows, 0)
    taught = {"train/taught_frac": batch.total(batch.where_taught(torch.ones_like(gap)))}
    return {
        "train/approx_kl": batch.total(moved.expm1() - moved),
        "train/logp_gap_max": gap.abs().max() if gap.numel() else gap.sum(),
        **dict(zip(WEIGHTS, (weights.sum(), weights.square().sum(), rows.sum()), strict=True)),
        **(taught if "hinted" in batch.extras else {}),
    }


# Rows without a gradient, which need no pass.


def may_be_idle(agent: Any) -> bool:
    """Return whether a row has no gradient if its advantages are all zero: no other term of the loss has one."""
    other_terms = agent.ent_coef or agent.reply_coef or agent.uses_critic or agent.anchor.is_in_loss
    return agent.advantages_stay and not other_terms


def with_gradient(agent: Any, batch: Batch) -> torch.Tensor:
    """Return the learnable steps of the rows that have a gradient, bool [N, T]."""
    return batch.learnable & (batch.advantages != 0).any(1, keepdim=True) if may_be_idle(agent) else batch.learnable


def rows_to_train(agent: Any, moving: torch.Tensor) -> slice | torch.Tensor:
    """Return the rows that have a pass, a slice or an index; at least one.

    Args:
        agent: may skip the others.
        moving: see `with_gradient`.
    """
    if not (agent.skip_idle_rows and may_be_idle(agent)):
        return slice(None)
    rows = moving.any(1).nonzero()[:, 0]
    if len(rows) == len(moving):
        return slice(None)
    return rows if len(rows) else slice(0, 1)
