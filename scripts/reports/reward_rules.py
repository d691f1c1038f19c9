"""Rules about the reward: is there one, does it tell episodes apart, does it rise, and does success rise with it."""

from __future__ import annotations

import math

from .findings import Finding, near_start
from .history import History, Series
from .policy_rules import gained, warm_start_too_sharp
from .statistics import worse

ALL = 0.95  # of the episodes or groups: the few others cannot carry the learning
MOST_CUT = 0.5  # of the answers; no update of a healthy run has more than 0.07
MENDED = 0.75  # of the share that was cut at the beginning: the policy learns to end its answers
MANY_CUT, GROWN = 0.25, 0.15  # a share of answers and its rise that are reported if no more answers are right
UNSEEN = 0.01  # of the tokens; the policy is exported with the habit
SOME_UPDATES = 10  # before which a reward that is never seen may only be rare
MANY_UPDATES = 100  # in which the healthy runs of the tests have clearly improved
ENOUGH = 1 / 3  # of a run: before, the first updates may undo a part of the warm start, and the rate is still high
DIFFERENT = 1.0  # nats per answer: a policy that knows the one answer to each problem has hardly any
HARD = 0.02  # of greedy answers right: in most groups of a few rollouts, all get the same reward
LEARNED = 10 * HARD  # a run that reaches this has overcome its hard start
SEEN, LOST = 0.1, 0.3  # a peak that is more than noise; the share of it that a policy keeps that has not collapsed
FALL = 0.05  # of held-out success that cannot be chance with 2,000 episodes, whose standard error is 0.011
EVAL_EPISODES = 2000  # by default
CURVE_EPISODES = 64  # at least, in each evaluation of the curve that a run makes without --eval-every


def answers_cut_off(run: History) -> Finding | None:
    """Most texts, or ever more of them, are cut at max_new_tokens: the verdict is on a part of the answer.

    Episodes of control may run to their time limit, dialogues run out of turns (`turns_run_out`), and right texts may
    be cut off, too.
    """
    cut = run["rollout/truncated_frac"]
    if not run.is_text or run["rollout/turns"] or not cut or run.solved:
        return None
    rise, error = cut.trend()
    mends = run.improved and cut.end < MENDED * cut.start
    grows = rise > GROWN and rise > 3 * error and not gained(run.success)
    if not (cut.end >= MOST_CUT and not mends) and not (cut.end >= MANY_CUT and grows):
        return None
    return Finding(
        "answers-cut-off",
        "warning",
        f"{'ever more' if grows else 'all' if cut.end >= ALL else 'most'} answers are cut off at max_new_tokens",
        f"rollout/truncated_frac is {cut.end:.0%} at update {cut.updates[-1]}, {cut.start:.0%} at the beginning",
        "raise --max-new-tokens, or warm-start longer (--sft-steps) so that the model learns to end its answer",
        cut.updates[-1],
    )


def special_tokens(run: History) -> Finding | None:
    """Answers hold tokens which are in no text, and they do not get fewer, in a run that is rewarded."""
    share = run["rollout/special_tokens"]
    mends = run.updates < MANY_UPDATES and share.end < MENDED * share.start
    if not share.end > UNSEEN or run.updates < SOME_UPDATES or mends or reward_never_seen(run):
        return None
    return Finding(
        "special-tokens",
        "warning",
        "answers have special tokens, which no verifier and no reader sees, and they are rewarded all the same",
        f"rollout/special_tokens is {share.end:.1%} of the sampled tokens at update {share.updates[-1]}, "
        f"{share.start:.1%} at the beginning",
        "warm-start the policy on answers without them (--sft-steps), or pay less for them: a reward function that "
        "takes completion_ids (--verifier NAME,my_file.py:f=0.1)",
        share.updates[-1],
    )


def reward_never_seen(run: History) -> Finding | None:
    """All episodes of the whole run got one and the same reward, and none succeeded."""
    reward, spread = run.reward, run["rollout/reward_std"]
    if len(reward) == 0 or not len(spread) or run.updates < SOME_UPDATES or run["rollout/failed_frac"].end == 1:
        return None
    if max(spread.values) > 0 or max(reward.values) > min(reward.values) or max(run.success.values, default=0) > 0:
        return None
    if not run.success and reward.last > 0:
        return None  # it may be a success every time
    return Finding(
        "reward-never-seen",
        "error",
        "no episode has ever been rewarded, so nothing can be learned",
        f"all {run['time/episodes'].last:.0f} episodes up to update {run.updates} got the reward {reward.last:g}",
        "start from a policy that sometimes succeeds: a longer warm start (--sft-steps, --sft-examples), "
        f"{_easier(run)} or a denser reward; for control, another agent or --env-arg",
        run.updates,
    )


def _easier(run: History) -> str:
    """Return how to ask for easier problems, by what the run does not do yet."""
    first = "" if run.config.get("curriculum") else "; of several levels, the easiest first: --curriculum 0.8"
    return f"easier problems (--verifier-arg: `rlenv verifiers show NAME` lists the arguments{first})"


def all_rewards_equal(run: History) -> Finding | None:
    """The episodes that are compared with each other get the same reward: their advantages are exactly 0."""
    grouped = run["rollout/group_size_min"].end > 1
    equal, spread = run["rollout/frac_reward_zero_std"], run["rollout/reward_std"]
    share = equal.end if grouped else float(bool(spread) and spread.end == 0)
    if not equal or share < ALL or reward_never_seen(run):
        return None
    entropy, length = -run["train/entropy_loss"].first, run["rollout/ep_len_mean"].first
    if run.is_text and max(spread.values, default=1) == 0 and run.reward.last > 0 and entropy * length >= DIFFERENT:
        return Finding(
            "all-rewards-equal",
            "warning",
            f"different answers all earn {run.reward.last:g}, so nothing is learned",
            f"all {run['time/episodes'].last:.0f} answers up to update {run.updates} earned it, though they differ: at "
            f"the first update the entropy was {entropy:.2g} nats per token",
            "read samples.md: if wrong answers earn it, too, the reward is wrong (rlenv verifiers lint NAME attacks "
            "it); if all are right, pose harder problems (--verifier-arg)",
            run.updates,
        )
    if run.solved or run.improved:
        return None
    what = f"in {share:.0%} of the groups" if grouped else "in whole rollouts"
    return Finding(
        "all-rewards-equal",
        "warning",
        "all rewards that are compared are equal, so nearly nothing is learned",
        f"{what} all episodes got the same reward (rollout/frac_reward_zero_std) at update {equal.updates[-1]}; "
        f"the mean reward is {run.reward.end:.3g}",
        "use more tries per prompt (--group-size), problems that are neither too easy nor too hard (--curriculum 0.8, "
        "--verifier-arg), a reward with parts, or sample more widely (--temperature 1, a shorter warm start)",
        equal.updates[-1],
    )


def warm_start_too_flat(run: History) -> Finding | None:
    """Hardly any answer is right before reinforcement learning."""
    first = run["eval/success_rate"]
    if not first or first.updates[0] > 0 or first.first >= HARD or run.success.end >= LEARNED:
        return None
    if warm_start_too_sharp(run):
        return None  # it was long enough, on too few examples
    if (reward := run["eval/mean_reward"]) and reward.first - first.first >= HARD:
        return None  # wrong answers earn a part, which teaches, too
    size = run["rollout/group_size_min"].last
    tries = f"--group-size {4 * size:.0f}" if math.isfinite(size) else "--group-size 16"
    return Finding(
        "warm-start-too-flat",
        "warning",
        f"only {first.first:.1%} of the answers are right before training, and wrong answers alone teach nothing",
        f"eval/success_rate is {first.first:.4f} at update 0",
        f"use a longer warm start (--sft-steps, --sft-examples), {_easier(run)}, or more tries per prompt ({tries}); "
        "docs/recipes.md says what helped elsewhere",
        0,
    )


def reward_hacking(run: History) -> Finding | None:
    """The reward rises while fewer problems are solved: the policy found another way to be rewarded."""
    fall = _fall(run["eval/success_rate"], _margin(run)) or _fall(run.success, FALL)
    held_out = _fall(run["eval/success_rate"], _margin(run)) is not None
    if fall is None or (held_out and _rise(run.success, fall) > FALL):
        return None
    gain, error = run.reward.since(fall[3]).trend()
    if not gain > 3 * error:
        return None
    return Finding(
        "reward-hacking",
        "error",
        f"the reward rises while {'held-out ' if held_out else ''}success falls: the policy games the reward",
        f"{_said(fall, 'held-out success' if held_out else 'success in training')}; the reward rose by {gain:.3g}",
        "read samples.md for what is rewarded; attack the verifier with wrong answers (rlenv verifiers lint), remove "
        f"or lower the part of the reward that is gamed, or {near_start(run)}",
        fall[2],
    )


def reward_collapse(run: History) -> Finding | None:
    """What the policy could do is lost: the reward, and with it success, fell to a fraction of their best."""
    able = run.success if run.success else run.reward
    smooth = able.smooth()
    if len(smooth) < 3 or (run.is_text and not run.success):
        return None
    peak = max(smooth.values)
    least = 0.0 if run.success else min(smooth.values)
    if (
        peak - least <= SEEN
        or smooth.last - least >= LOST * (peak - least)
        or run.reward.last >= max(run.reward.values, default=math.inf)
    ):
        return None
    best = smooth.updates[smooth.values.index(peak)]
    what = "rollout/success_rate" if run.success else "rollout/ep_rew_mean"
    return Finding(
        "reward-collapse",
        "error",
        "the policy has lost what it could do",
        f"{what} fell from {peak:.3g} at update {best} to {smooth.last:.3g} at update {smooth.updates[-1]}"
        + (f"; {said}" if (said := _compared(run)) else ""),
        _gentler(run),
        smooth.updates[-1],
    )


def _gentler(run: History) -> str:
    """Return how to keep what the policy could do before training."""
    rate = run.config.get("learning_rate")
    lower = "lower --learning-rate to a third or less"
    if rate is not None:
        lower = f"leave --learning-rate {rate} out: the default suits the model"
    return (
        f"{lower}; or {near_start(run)}. RUN/checkpoint-000000 has what the warm start learned, and is a --model; "
        "--eval-every keeps RUN/best"
    )


def _compared(run: History) -> str:
    """Return by how much the run ends worse than it began; empty if that may be chance."""
    said = worse(run.result.get("initial_eval"), run.result.get("eval"))
    return f"worse than before: {said}" if said else ""


def worse_than_before(run: History) -> Finding | None:
    """The run ends worse than it began, or success on held-out problems falls while it rises in training."""
    fall = _fall(run["eval/success_rate"], _margin(run))
    memorized = fall is not None and _rise(run.success, fall) > FALL
    said = _compared(run)
    if fall is None or not memorized:
        title = "training has made the model worse"
        return Finding("worse-than-before", "warning", title, said, _gentler(run), run.updates) if said else None
    return Finding(
        "worse-than-before",
        "warning",
        "success rises in training and falls on held-out problems: the policy memorizes the training problems",
        f"{_said(fall, 'held-out success')}; success in training rose by {_rise(run.success, fall):.3g}"
        + (f"; {said}" if said else ""),
        "train on more problems, or stop earlier and use RUN/best (--eval-every 50 keeps the best checkpoint)",
        fall[2],
    )


def nothing_improved(run: History) -> Finding | None:
    """The reward at the end is that of the beginning; only said if nothing else explains it."""
    if run.updates < MANY_UPDATES or len(run.reward) < 2 or run.solved:
        return None
    rise, error = run.reward.trend()
    if rise > error or (run.done < 1 and (run.done < ENOUGH or rise > -2 * error)):
        return None
    rate = run["train/learning_rate"].first
    return Finding(
        "nothing-improved",
        "warning",
        f"the reward is no better after {run.updates} updates than at the beginning",
        f"rollout/ep_rew_mean went from {run.reward.start:.3g} to {run.reward.end:.3g}; its trend is {rise:.2g} with a "
        f"standard error of {error:.2g}",
        f"another learning rate (it is {rate:.2g}: try a third and three times that, --learning-rate), more episodes "
        "per update (--episodes-per-update), or a longer run (--timesteps)",
        run.updates,
    )


Fall = tuple[float, float, int, int]  # from, to, the update of the end, the update of the peak


def _fall(success: Series, margin: float) -> Fall | None:
    """Return how far a rate has fallen from its peak, if by more than the margin."""
    smooth = success.smooth()
    if len(smooth) < 2:
        return None
    peak = max(range(len(smooth)), key=smooth.values.__getitem__)
    if smooth.values[peak] - smooth.last <= margin:
        return None
    return smooth.values[peak], smooth.last, smooth.updates[-1], smooth.updates[peak]


def _rise(series: Series, fall: Fall) -> float:
    """Return by how much a series rose while something else fell."""
    return series.end - series.around(fall[3]) if series else math.nan


def _margin(run: History) -> float:
    """Return the fall of held-out success that is not chance: three standard errors of a difference."""
    episodes = run.config.get("eval_episodes") or EVAL_EPISODES
    if run.config.get("eval_every") is None:  # job.py: evaluations in between are as small as an update
        made = run["time/episodes"].last / run.updates if run["time/episodes"] and run.updates else 0.0
        episodes = min(episodes, max(made, CURVE_EPISODES))
    return max(FALL, 3 * math.sqrt(2 * 0.25 / episodes))


def _said(fall: Fall, what: str) -> str:
    before, after, update, peak = fall
    return f"{what} fell from {before:.1%} at update {peak} to {after:.1%} at update {update}"
