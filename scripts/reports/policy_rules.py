"""Rules about the policy: how sure it is, how far it moves, how long its episodes are."""

from __future__ import annotations

import math

from .findings import Finding, near_start
from .history import History, Series

SAME_KL = 0.01  # nats per step between two policies that are the same; 16-bit weights round to 0.0025 at most
SAME_RATIO = 5e-3  # of log-probabilities while acting and training; rounding of 32 bits makes 1e-4 at most
HALVES = ("bfloat16", "float16")
SHARP, SHARP_GROUPS = 0.15, 0.9  # nats per token (0.2 after the default warm start); groups with equal rewards
NO_ENTROPY, LOST_ENTROPY = 0.02, 0.1  # nats per step; of the entropy at the beginning
FAR_KL = 1.0  # nats per step from the start: each token is then, on average, e times as likely as it was
FAR_UPDATE = 0.1  # nats per step in one update; healthy runs of PPO stay below 0.02
MANY_CLIPPED = 0.5  # of the steps: half of the rollout no longer has a gradient
MOST = 700.0  # nats: the exponential of more overflows
LONGER, CUT = 1.5, 0.25  # times the length in the first update (it may change fast); share of episodes that are cut
SHORTER = 0.5  # of the length in the first update; healthy runs on sums keep theirs to 5 %
GOOD = 0.8  # success: a policy may be sure of what is right
CLEAR = 0.05  # a gain of success that is not noise
SOME_UPDATES = 5  # the first update of an untrained critic may be a large one
FEW_UPDATES = 20  # before which the beginning and the end are the same noise


def warm_start_too_sharp(run: History) -> Finding | None:
    """Before the first update, the samples of a prompt are all alike, so that there is nothing to compare."""
    entropy, equal = run["train/entropy_loss"], run["rollout/frac_reward_zero_std"]
    if not run.is_text or not entropy or entropy.updates[0] > 1 or run.success.first >= GOOD:
        return None
    if -entropy.first >= SHARP or not equal.first >= SHARP_GROUPS or run.improved:
        return None
    return Finding(
        "warm-start-too-sharp",
        "warning",
        "the policy is so sure at the start that it samples the same answer again and again",
        f"at update 1 the entropy is {-entropy.first:.3f} nats per token, and {equal.first:.0%} of the groups have "
        "equal rewards",
        "a warm start on more examples (--sft-examples) or a shorter one (--sft-steps), or a higher --temperature",
        1,
    )


def kl_before_first_update(run: History) -> Finding | None:
    """The reference of the KL anchor is not the policy that training starts from."""
    for name in ("train/kl_ref", "rollout/kl_start"):
        kl = run[name]
        if kl and kl.updates[0] == 1 and abs(kl.first) > SAME_KL:
            return Finding(
                "kl-before-first-update",
                "error",
                "the KL to the reference is not 0 before the first update: the reference is another policy",
                f"{name} is {kl.first:.3g} nats per step at update 1; rounding makes at most {SAME_KL}",
                "freeze the reference after the warm start and with the same temperature; pass the same --model to "
                "both, and do not set agent.anchor.reference to another policy",
                1,
            )
    return None


def ratio_not_one(run: History) -> Finding | None:
    """On the first pass over a rollout, its log-probabilities differ from those with which it was sampled."""
    gap = run["train/logp_gap_max"]
    if not gap or run.config.get("dtype") in HALVES or max(gap.values) <= SAME_RATIO:
        return None
    worst = max(range(len(gap)), key=gap.values.__getitem__)
    ratio = math.exp(min(gap.values[worst], MOST))
    return Finding(
        "ratio-not-one",
        "warning",
        "the ratio is not 1 on the first pass: acting and training compute different probabilities",
        f"train/logp_gap_max is {gap.values[worst]:.3g} nats, a ratio of up to {ratio:.5g}, at update "
        f"{gap.updates[worst]}; rounding makes at most {SAME_RATIO}",
        "evaluate as you act: the same temperature and precision, no dropout, no other weights in a copy that acts; if "
        "it grows over the run, lower --learning-rate",
        gap.updates[worst],
    )


def entropy_collapse(run: History) -> Finding | None:
    """The policy has become sure of actions that are not good."""
    loss = run["train/entropy_loss"]
    start, end = -loss.start, -loss.end or 0.0
    if run.updates < FEW_UPDATES or not 0 <= end < NO_ENTROPY or end >= LOST_ENTROPY * start:
        return None
    if run.success.end >= GOOD if run.success else run.improved and not _fell(run.reward):
        return None
    return Finding(
        "entropy-collapse",
        "error",
        "the entropy has collapsed: one action is taken every time, and it is not a good one",
        f"entropy from {start:.3g} to {end:.3g} nats per step at update {loss.updates[-1]}; "
        + (
            f"success {run.success.end:.1%}"
            if run.success
            else f"reward {run.reward.start:.3g} to {run.reward.end:.3g}"
        ),
        f"lower --learning-rate, add an entropy bonus (--ent-coef 0.01), or {near_start(run)}",
        loss.updates[-1],
    )


def kl_runaway(run: History) -> Finding | None:
    """The policy has left the one it started from far behind."""
    for name in ("train/kl_ref", "rollout/kl_start"):
        kl = run[name]
        if kl and kl.end > FAR_KL:
            return Finding(
                "kl-runaway",
                "warning",
                "the policy runs away from the one it started from",
                f"{name} rose from {kl.start:.3g} to {kl.end:.3g} nats per step at update {kl.updates[-1]}",
                "raise --kl-coef tenfold, or lower --learning-rate",
                kl.updates[-1],
            )
    return None


def update_too_far(run: History) -> Finding | None:
    """Within one update, the policy moves so far that the ratios of its later passes mean little."""
    kl, clipped = run["train/approx_kl"], run["train/clip_fraction"]
    if not kl or kl.updates[-1] < SOME_UPDATES or (kl.end <= FAR_UPDATE and not clipped.end > MANY_CLIPPED):
        return None
    return Finding(
        "update-too-far",
        "warning",
        "single updates move the policy too far",
        f"train/approx_kl is {kl.end:.3g} nats per step"
        + (f", {clipped.end:.0%} of the ratios are clipped" if clipped else "")
        + f" at update {kl.updates[-1]}",
        "lower --learning-rate, or take fewer passes (--agent-arg num_epochs=2, --agent-arg num_minibatches=1)",
        kl.updates[-1],
    )


def length_explosion(run: History) -> Finding | None:
    """Texts grow until they are cut, and success does not grow with them."""
    length, cut = run["rollout/ep_len_mean"], run["rollout/truncated_frac"]
    if not run.is_text or run.updates < FEW_UPDATES or gained(run.success):
        return None
    if not (length.end > LONGER * length.first and cut.end > CUT and cut.end > cut.start):
        return None
    return Finding(
        "length-explosion",
        "warning",
        "answers grow longer and longer until they are cut",
        f"rollout/ep_len_mean from {length.first:.3g} to {length.end:.3g} tokens, rollout/truncated_frac from "
        f"{cut.start:.0%} to {cut.end:.0%} at update {length.updates[-1]}",
        "see whether the reward pays for length; use an agent that does not favour long answers (--agent dr-grpo), "
        f"--agent dapo with its penalty for long answers, or {near_start(run)}",
        length.updates[-1],
    )


def length_collapse(run: History) -> Finding | None:
    """Texts shrink, and success does not grow with that."""
    length = run["rollout/ep_len_mean"]
    if not run.is_text or run.updates < FEW_UPDATES or not length.end < SHORTER * length.first or gained(run.success):
        return None
    return Finding(
        "length-collapse",
        "warning",
        "answers have become much shorter, and no better",
        f"rollout/ep_len_mean from {length.first:.3g} to {length.end:.3g} tokens at update {length.updates[-1]}",
        f"see in samples.md what the short answers earn and repair the verifier, or {near_start(run)}",
        length.updates[-1],
    )


def gained(success: Series) -> bool:
    """Tell whether success has risen by more than noise."""
    return success.end - success.start > CLEAR


def _fell(reward: Series) -> bool:
    """Tell whether the reward has lost half of what it had gained."""
    smooth = reward.smooth()
    peak = max(smooth.values)
    return peak - smooth.last > 0.5 * (peak - smooth.first)
