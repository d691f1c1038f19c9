"""Metrics of a rollout, as collected and as prepared; `Algorithm.loss` makes the metrics of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

import torch

from rlenv._status import FAILURES, OK, STATUSES

from ..devices import to_device, to_floats, to_host
from ..estimators.sample_size import effective_share
from ..rollout import COUNTS, GREEDY_RETURN, PARTS, Batch, Rollout

ENTRIES = 10_000  # of the log, before it is thinned
WEIGHTS = ("ess/weights", "ess/squares", "ess/episodes")  # sums over episodes, of which `train/ess` is made
_NO_COLUMN = re.compile(r'[,"\x00-\x1f\x7f]')  # what would split the heading of progress.csv


class Reduce(Enum):
    """How a metric of a training step is put together from micro-batches."""

    SUM = "the sum, as for the terms of the loss"
    MEAN = "a sum over steps, divided by the number of all steps"
    MEAN_OF_TRAINED = "the same, without the steps of rows that have no gradient, whether they are skipped or not"
    MAX = "the largest, or NaN if there is one"

    def add(self, a: float, b: float) -> float:
        """Return the metric of two micro-batches together, before a mean is divided."""
        if self is Reduce.MAX:
            return a if a >= b or a != a else b
        return a + b


def combined(
    reductions: Mapping[str, Reduce], parts: list[dict[str, float]], counted: Mapping[str, float]
) -> dict[str, float]:
    """Return the metrics of an optimizer step, given the metrics of all micro-batches and the numbers of steps."""
    totals: dict[str, float] = {}
    for name, value in (item for part in parts for item in part.items()):
        add = reductions.get(name, Reduce.SUM).add
        totals[name] = add(totals[name], value) if name in totals else value
    totals["train/ess"] = effective_share(*(totals.pop(name, 0.0) for name in WEIGHTS))
    for name, reduction in reductions.items():
        if name in totals and reduction.name in counted:
            totals[name] /= max(counted[reduction.name], 1)
    return totals


def thinned(interval: int, updates: int) -> int:
    """Return the updates between two log entries after so many updates.

    It doubles after `ENTRIES`, and again each time the number of updates has doubled, so that the log of a run
    grows with the logarithm of its length.
    """
    while updates > ENTRIES * interval:
        interval *= 2
    return interval


def is_logged(interval: int, update: int) -> bool:
    """Tell whether an update gets an entry of the log: the first, which shows where training starts, and each n-th."""
    return update == 1 or update % thinned(interval, update) == 0


def rollout_metrics(rollout: Rollout, hidden: Sequence[int] = ()) -> dict[str, float]:
    """Return the metrics of one rollout; episodes without a verdict count only in `failed_frac`.

    Episodes of which it is not known whether they succeeded are left out of the rates of success.

    Args:
        rollout: the episodes.
        hidden: tokens that are not in texts; of them there is a share, if there are any.
    """
    columns = (rollout.status, rollout.truncated, rollout.returns, rollout.lengths, rollout.groups, rollout.success)
    counted = {name: values for name, values in rollout.extras.items() if getattr(values, "ndim", 0) == 1}
    if hidden:
        is_hidden = torch.isin(rollout.actions, to_device(hidden, rollout.actions.device))
        counted["special_tokens"] = (is_hidden & rollout.mask).sum(1)
    status, truncated, returns, lengths, groups, success, *more = to_host(*columns, *counted.values())
    extras, ok = dict(zip(counted, more, strict=True)), status == OK
    metrics = {
        "rollout/truncated_frac": mean_of(truncated[ok].float()),
        "rollout/failed_frac": mean_of((~ok).float()),
        **{f"rollout/{kind}_frac": mean_of((status == STATUSES.index(kind)).float()) for kind in FAILURES},
    }
    if not bool(ok.any()):
        return metrics
    returns, groups = returns[ok], groups[ok]
    metrics |= {
        "rollout/ep_rew_mean": mean_of(returns),
        "rollout/reward_std": float(returns.std(correction=0)),
        "rollout/ep_len_mean": mean_of(lengths[ok].float()),
        "rollout/frac_reward_zero_std": _equal_groups(returns, groups),
        "rollout/group_size_min": float(groups.unique(return_counts=True)[1].min()),
    }
    metrics["rollout/success_known_frac"] = mean_of((known := ~success.isnan())[ok].float())
    if bool((known & ok).any()):
        metrics["rollout/success_rate"] = mean_of(success[ok & known])
        by_level = mean_by_level(extras["level"], success, ok) if "level" in extras else {}
        metrics |= {f"rollout/success_rate/level_{level}": rate for level, rate in by_level.items()}
    if hidden:
        metrics["rollout/special_tokens"] = mean_of(extras["special_tokens"][ok]) / mean_of(lengths[ok])
    if rollout.positions is not None:
        from ..language.replies import most_frequent_reply  # of dialogues alone

        metrics["rollout/reply_max_frac"] = most_frequent_reply(rollout)
    for name, figures in extras.items():
        if (name.startswith(PARTS) or name in (*COUNTS, GREEDY_RETURN)) and bool((has := ~figures[ok].isnan()).any()):
            metrics[f"rollout/{column_name(name)}"] = mean_of(figures[ok][has])
    return metrics


def column_name(name: str) -> str:
    """Return the name of a part of a verdict without characters that would split the heading of progress.csv."""
    return _NO_COLUMN.sub("_", name)


def mean_by_level(levels: torch.Tensor, success: torch.Tensor, ok: torch.Tensor) -> dict[int, float]:
    """Return the mean of [N] by level of the episodes that are ok; NaN stands for an unknown level or success."""
    counted = ok & ~levels.isnan() & ~success.isnan()
    levels, success = levels[counted], success[counted]
    return {int(level): mean_of(success[levels == level]) for level in levels.unique()}


def _equal_groups(returns: torch.Tensor, groups: torch.Tensor) -> float:
    """Return the share of groups whose episodes all have the same return: nothing is learned from comparing them."""
    _, member = groups.unique(return_inverse=True)
    empty = returns.new_zeros(int(member.max()) + 1)
    low = empty.scatter_reduce(0, member, returns, "amin", include_self=False)
    high = empty.scatter_reduce(0, member, returns, "amax", include_self=False)
    return mean_of((low == high).float())


def mean_of(values: torch.Tensor) -> float:
    """Return the mean, in double precision on the host; 0 of nothing."""
    return float(to_host(values)[0].double().mean()) if values.numel() else 0.0


def sampled_metrics(rollout: Rollout) -> dict[str, float]:
    """Return unbiased estimates from the sampled actions, per step: minus the entropy, the KL to reference or teacher.

    Empty if no step counts.
    """
    steps = rollout.learnable.sum()
    figures = {"train/entropy_loss": rollout.total(rollout.log_probs) / steps}
    for who in ("ref", "teacher"):
        if (theirs := rollout.extras.get(f"{who}_log_probs")) is not None:
            figures[f"train/kl_{who}"] = rollout.total(rollout.log_probs - theirs) / steps
    found, counted = to_floats([figures, {"steps": steps}])
    return found if counted["steps"] else {}


def mismatch_metrics(batch: Batch) -> dict[str, float]:
    """Return how far acting was from a training pass, and the mean weight of a step that makes up for it.

    The KL is that from the policy that acted to the one trained (estimator k3). Empty if nothing makes up for it, and
    if no step counts.
    """
    acting, weights, steps = batch.extras.get("acting_log_probs"), batch.extras.get("importance"), batch.learnable
    if acting is None or weights is None:
        return {}
    gap = (batch.log_probs - acting).where(steps, 0)
    figures = {"gap": gap.abs().max(), "kl": (gap.expm1() - gap).sum(), "weight": batch.total(weights)}
    (found,) = to_floats([figures | {"steps": steps.sum()}])
    if not found["steps"]:
        return {}
    return {
        "train/logp_gap_max": found["gap"],
        "train/mismatch_kl": found["kl"] / found["steps"],
        "train/mismatch_weight": found["weight"] / found["steps"],
    }


def critic_metrics(batch: Batch) -> dict[str, float]:
    """Return the critic's explained variance before it is fitted to the targets: 1 - Var(target - value) / Var(target).

    1 is perfect, 0 no better than a constant, negative worse. Empty without a critic, and if all targets are equal.
    """
    targets = batch.extras.get("value_targets")
    if batch.values is None or targets is None:
        return {}
    targets, values, steps = to_host(targets, batch.values, batch.learnable)
    targets, values = targets[steps].double(), values[steps].double()
    if len(targets) < 2:
        return {}
    spread, largest = float(targets.var(correction=0)), float(torch.cat((targets, values)).abs().max())
    if not spread > (1e-5 * largest) ** 2:  # rounding: advantages have the values subtracted, targets have them added
        return {}
    return {"train/explained_variance": 1 - float((targets - values).var(correction=0)) / spread}
