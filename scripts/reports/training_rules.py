"""Rules about the machinery: the critic, the verifier, the gradient, and why a run stopped."""

from __future__ import annotations

from statistics import median

from verifiers.base import STATUSES

from .findings import Finding
from .history import History

NO_BETTER = 0.05  # of the variance of the returns; the default critic on sums explains 0 to 0.05, and PPO learns
WORSE = -0.1  # below that, no baseline at all would be better
MANY_UPDATES = 50  # that a critic may take to learn anything
FEW_FAILURES = 0.01  # of the episodes; their absence shifts no average by more
ALWAYS = 0.95  # of the updates; a rollout with equal rewards has a gradient of 0
CLIPPED_HARD = 1000.0  # times the largest norm; healthy runs have 3 (text) to 220 (CartPole)
NEAR_ZERO = 0.05  # of a loss; the advantages of a group sum to 0, so this says nothing about learning


def critic_explains_nothing(run: History) -> Finding | None:
    """The critic predicts the return no better than a constant, or worse."""
    explained = run["train/explained_variance"]
    if run.updates < MANY_UPDATES or not explained or explained.end >= NO_BETTER or run.solved:
        return None
    worse = explained.end < WORSE
    return Finding(
        "critic-explains-nothing",
        "warning" if worse else "note",
        "the critic is worse than a constant: it adds noise to the advantages"
        if worse
        else "the critic explains nothing of the returns: it could as well be a constant",
        f"train/explained_variance is {explained.end:.2f} at update {explained.updates[-1]}; 1 is perfect",
        "raise --vf-coef, use --policy-arg critic=separate (text), scale the rewards to about 1, or use an agent "
        "without a critic (--agent rloo)",
        explained.updates[-1],
    )


def verifier_failures(run: History) -> Finding | None:
    """The verifier reached no verdict on some episodes, which are left out."""
    share, counts = run["rollout/failed_frac"], run.result.get("failures", {})
    mean = sum(share.values) / max(len(run["train/learning_rate"]), len(share), 1)  # the log may begin at the first
    if mean <= FEW_FAILURES:
        return None
    kinds = {kind: run[f"rollout/{kind}_frac"].mean for kind in STATUSES[1:]}
    named = [f"{counts[kind]} {kind}" for kind in kinds if counts.get(kind)]
    named = named or [f"{kind} {mean:.1%}" for kind, mean in kinds.items() if mean > 0]
    return Finding(
        "verifier-failures",
        "error" if share.end > 0.5 else "warning",
        "the verifier fails, and the episodes on which it fails teach nothing",
        f"{mean:.1%} of the episodes got no verdict" + (f" ({', '.join(named)})" if named else ""),
        "raise --verifier-timeout, use more --verifier-workers, or repair the verifier: rlenv verifiers lint NAME "
        "shows where it fails",
        share.updates[-1],
    )


def gradient_always_clipped(run: History) -> Finding | None:
    """Adam undoes a constant factor, but not one so large that the clipped gradient falls below its eps."""
    norm, most = run["train/grad_norm"], run.config.get("max_grad_norm")
    if not norm or not most or sum(value > most for value in norm.values) < ALWAYS * len(norm):
        return None
    times = median(norm.values) / most
    hard = times > CLIPPED_HARD
    return Finding(
        "gradient-always-clipped",
        "warning" if hard else "note",
        "every gradient is clipped" + (" to a small part of itself" if hard else ""),
        f"train/grad_norm is nearly always above --max-grad-norm {most:g}; its median is {times:.3g} times that",
        f"raise --max-grad-norm to about {median(norm.values):.2g}"
        if hard
        else "nothing, as a rule: Adam divides by the gradient's own scale, so that a constant factor has no effect",
        norm.updates[-1],
    )


def updates_skipped(run: History) -> Finding | None:
    """Updates were left out because something was not finite."""
    skipped = run["train/skipped_updates"]
    if not skipped or skipped.last == 0:
        return None
    return Finding(
        "updates-skipped",
        "warning",
        "updates with numbers that are not finite were skipped",
        f"{skipped.last:.0f} of {skipped.updates[-1]} updates (train/skipped_updates)",
        "lower --learning-rate, and see whether observations and rewards are finite; with float16 weights use --dtype "
        "bfloat16",
        skipped.updates[-1],
    )


def stopped(run: History) -> Finding | None:
    """The run ended itself."""
    why = run.result.get("stopped")
    if not why:
        return None
    return Finding(
        "stopped",
        "error",
        "the run stopped itself before its end",
        str(why),
        "mend what the message names, then rlenv train --resume RUN goes on from the last checkpoint; if numbers "
        "became too large, with a lower --learning-rate",
        run.updates,
    )


def loss_near_zero(run: History) -> Finding | None:
    """Beginners take a loss near 0 for a run that does not learn."""
    loss, norm = run["train/policy_loss"], run["train/grad_norm"]
    if not loss or not norm or abs(loss.mean) >= NEAR_ZERO or norm.end == 0:
        return None
    return Finding(
        "loss-near-zero",
        "note",
        "the loss is near 0, which is normal",
        f"train/policy_loss is {loss.mean:.3g} on average, train/grad_norm {norm.mean:.3g}",
        "nothing: advantages are differences from a baseline and cancel in the loss, but not in its gradient. Watch "
        "the reward and held-out success instead",
        loss.updates[-1],
    )
