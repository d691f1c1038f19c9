"""The rules of the doctor: each a pure function of a run's figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from rlenv._status import STATUSES
from rlenv.agents.training.start import FIRST, HARD

from .advice import MOST_CUT, easier, harder, paid_without_success
from .history import SOLVED, History, Series
from .statistics import worse

ALL = 0.95  # of the episodes or groups: the few others cannot carry the learning
SOME_GROUPS = 32  # that are all equal: not by chance, if answers differ
SOME_UPDATES, FEW_UPDATES, MANY_UPDATES = 10, 20, 100  # before: chance; noise; healthy runs have clearly improved
ENOUGH = 1 / 3  # of a run: before, the first updates may undo a part of the warm start, and the rate is still high
LEARNED = 10 * HARD  # a run that reaches this has overcome its hard start
FEW_FAILURES = 0.01  # of the episodes; their absence shifts no average by more
MANY_CUT, GROWN = 0.25, 0.15  # a share of answers and its rise that are reported if no more answers are right
MENDED = 0.75  # of the share of special tokens at the beginning: they get fewer
UNSEEN = 0.01  # of the tokens; the policy is exported with the habit
SHORTER = 0.5  # of the length in the first update; healthy runs on sums keep theirs to 5 %
NO_ENTROPY, LOST_ENTROPY = 0.02, 0.1  # nats per step; of the entropy at the beginning
GOOD = 0.8  # success: a policy may be sure of what is right
CLEAR = 0.05  # a gain of success that is not noise
FAR_KL = 1.0  # nats per step from the start: each token is then, on average, e times as likely as it was
SAME_RATIO = 5e-3  # of log-probabilities while acting and training; rounding of 32 bits makes 1e-4 at most
FEW = 0.3  # of the episodes, by their effective number; below, verl's documentation warns, too
HALVES = ("bfloat16", "float16")
SEEN, LOST = 0.1, 0.3  # a peak that is more than noise; the share of it that a policy keeps that has not collapsed
FALL = 0.05  # of held-out success that cannot be chance with 2,000 episodes, whose standard error is 0.011
EVAL_EPISODES = 2000  # by default
CURVE_EPISODES = 64  # at least, in each evaluation of the curve that a run makes without --eval-every
SLOW = 5.0  # seconds of an update; who waits less does not wait for long
TOO_LONG = {  # shares of the time that a part may take, with what it is called and how it takes less
    "environment": (0.5, "the verifier", "use a faster verifier, more --verifier-workers, a lower --verifier-timeout"),
    "acting": (0.95, "acting", "play more episodes at a time (--num-envs), or shorter ones (--max-new-tokens)"),
    "training": (0.95, "training", "take fewer passes (--agent-arg num_epochs=1), or raise --micro-batch-tokens"),
}
NEAR_START = "hold the policy near its start (a larger --kl-coef, such as 0.05)"


@dataclass(frozen=True)
class Finding:
    """One thing that a run's figures show.

    Attributes:
        title: the failure, in one line.
        evidence: the figures that show it.
        fix: which option to change.
        severity: "warning" for a run that learns less than it could, "error" for one whose result is worthless.
        rule: its name, such as "nothing-learned".
        samples: of the run, one line each, that show it.
    """

    title: str
    evidence: str
    fix: str
    severity: Literal["warning", "error"] = "warning"
    rule: str = ""
    samples: tuple[str, ...] = ()


def verdicts_fail(run: History) -> Finding | None:
    """The verifier reached no verdict on some episodes, which are left out."""
    share = run["rollout/failed_frac"]
    mean = share.values.sum() / max(len(run["train/learning_rate"]), len(share), 1)  # logged from the first failure on
    if mean <= FEW_FAILURES:
        return None
    kinds = {kind: run[f"rollout/{kind}_frac"].end for kind in STATUSES[1:]}
    return Finding(
        "the verifier fails, and the episodes on which it fails teach nothing",
        f"{mean:.1%} of the episodes got no verdict; at update {run.updates}: "
        + (", ".join(f"{kind} {part:.1%}" for kind, part in kinds.items() if part > 0) or "none"),
        "raise --verifier-timeout, use more --verifier-workers, or repair the verifier (rlenv verifiers lint NAME)",
        "error" if share.end > 0.5 else "warning",
    )


def nothing_learned(run: History) -> Finding | None:
    """No episode was ever rewarded; or the reward ends where it began, and no other rule says why."""
    reward, perhaps_right = run.reward, run.success.values.any() if len(run.success) else run.reward.last > 0
    never = run.same_reward and not perhaps_right and not run.has_teacher
    if never and run.updates >= SOME_UPDATES and run["rollout/failed_frac"].end != 1:
        return Finding(
            "no episode has ever been rewarded, so nothing can be learned",
            f"all {run['time/episodes'].last:.0f} episodes up to update {run.updates} got the reward {reward.last:g}",
            "start from a policy that sometimes succeeds: a longer warm start (--sft-steps, --sft-examples), "
            f"{easier(run)} or a denser reward; for control, another agent or --env-arg",
            "error",
        )
    rise, error = reward.trend()
    too_early = run.done < 1 and (run.done < ENOUGH or rise > -2 * error)
    if run.updates < MANY_UPDATES or len(reward) < 2 or run.solved or rise > error or too_early:
        return None
    return Finding(
        f"the reward is no better after {run.updates} updates than at the beginning",
        f"rollout/ep_rew_mean went from {reward.start:.3g} to {reward.end:.3g}; it rises by {rise:.2g} ± {error:.2g}",
        f"a third or three times the --learning-rate of {run['train/learning_rate'].first:.2g}, more "
        "--episodes-per-update, or a longer run (--timesteps)",
    )


def same_reward(run: History) -> Finding | None:
    """Every answer earns the same from the first update on, also a success each time, and the answers differ."""
    rewarded = run.is_text and run.same_reward and run.reward.last > 0
    if not (rewarded and run.answers_differ and run.updates >= SOME_UPDATES):
        return None
    return Finding(
        f"different answers all earn {run.reward.last:g}, so nothing is learned",
        f"all {run['time/episodes'].last:.0f} answers up to update {run.updates} earned it, though the entropy was "
        f"{-run['train/entropy_loss'].first:.2g} nats per token at first",
        "read samples.md: if wrong answers earn it, too, the reward is wrong (rlenv verifiers lint NAME attacks it); "
        f"if all are right, {harder(run)}",
    )


def reward_by_prompt(run: History) -> Finding | None:
    """Different answers to a prompt always earn the same, and prompts do not: the reward may not read the answer."""
    groups, spread = run["time/episodes"].last / run.group_size, run["rollout/reward_std"].values
    by_prompt = run.is_text and run.no_signal and not run.same_reward and (spread > 0).mean() > 0.5
    if not (by_prompt and run.answers_differ and groups >= SOME_GROUPS):
        return None
    return Finding(
        "the reward depends on the prompt alone: different answers to one prompt always earn the same",
        f"so in all {groups:.0f} groups of {run.group_size:.0f} answers up to update {run.updates}, though rewards of "
        f"different prompts are spread by {run['rollout/reward_std'].end:.3g} and the entropy was "
        f"{-run['train/entropy_loss'].first:.2g} nats per token at first; success {run.success.end:.3g}",
        "compare two answers to one prompt in samples.jsonl, and judge two with `rlenv verifiers show NAME`: a reward "
        "function has to read the completion. If it does, each problem is always or never solved: "
        f"{easier(run)}, or more tries per prompt (--group-size {4 * run.group_size:.0f})",
        "error",
    )


def no_signal(run: History) -> Finding | None:
    """No two rewards that are compared have ever differed, also in a run of few updates, and not since all is right."""
    episodes = run["time/episodes"].last
    enough = bool(run.result) or run.updates >= SOME_UPDATES or episodes >= FIRST
    if not (run.is_text and run.no_signal and enough) or run.has_teacher or run.success.start >= SOLVED:
        return None
    what = f"{episodes / run.group_size:.0f} groups" if run.group_size > 1 else f"{run.updates} updates"
    return Finding(
        f"no {'group' if run.group_size > 1 else 'rollout'} has ever had two different rewards, so nothing was learned",
        f"in all {what} up to update {run.updates} the answers earned the same; the mean reward of all {episodes:.0f} "
        f"is {run.reward.values.mean():.3g}",
        f"start from a model that is sometimes right: a longer warm start (--sft-steps), {easier(run)}; or more tries "
        f"per prompt (--group-size {4 * run.group_size:.0f}), or a reward with parts",
        "error",
    )


def reward_without_success(run: History) -> Finding | None:
    """The reward has risen and success has not, and most answers are not right: something else is paid for."""
    (more, error), (right, chance) = run.reward.rise(), run.success.rise()
    clear = more > 3 * error and more * chance >= 3 * right * error and right <= 2 * chance
    if not run.is_text or run.updates < SOME_UPDATES or not clear or not run.success.end < GOOD:
        return None
    before, after = (f"{series.values[:3].mean():.3g} to {series.end:.3g}" for series in (run.reward, run.success))
    return Finding(
        "the reward rises, success does not: read the samples",
        f"rollout/ep_rew_mean from {before} up to update {run.updates}, rollout/success_rate from {after}",
        "if such answers are wrong, the policy collects a part of the reward: lower that part, or pay it only in the "
        "place of the answer (rlenv verifiers lint NAME attacks the verifier). If they are right, its success_reward "
        "is too high. If they are on the way to right ones, go on",
        samples=paid_without_success(run),
    )


def equal_groups(run: History) -> Finding | None:
    """Groups are always or never solved, or will be: the rewards that are compared are equal, the advantages 0."""
    first, paid, size = run["eval/success_rate"], run["eval/mean_reward"], run["rollout/group_size_min"].end
    from_parts = paid.first - first.first >= HARD  # wrong answers earn a part, which teaches, too
    hard = len(first) > 0 and first.updates[0] == 0 and first.first < HARD and not from_parts
    if hard and not run.success.end >= LEARNED:
        return Finding(
            f"only {first.first:.1%} of the answers are right before training, and wrong answers alone teach nothing",
            f"eval/success_rate is {first.first:.4f} at update 0",
            f"use a longer warm start (--sft-steps, --sft-examples), {easier(run)}, or more tries per prompt "
            f"(--group-size {4 * size if size > 0 else 16:.0f}); docs/why-is-my-reward.md says what helped elsewhere",
        )
    share = run["rollout/frac_reward_zero_std"].end if size > 1 else float(run["rollout/reward_std"].end == 0)
    always = run.solved and run.success.start >= SOLVED
    learns = run.has_teacher or (not always and (run.solved or run.improved))
    if run.updates < SOME_UPDATES or not share >= ALL or learns:
        return None
    others = "other rows, --prompt-choice thompson" if run.has_file else "--curriculum 0.8, --verifier-arg"
    return Finding(
        "the problems are solved" if always else "rewards that are compared are equal, so nearly nothing is learned",
        f"{f'in {share:.0%} of the groups' if size > 1 else 'in whole rollouts'} all episodes got the same reward at "
        f"update {run.updates} (rollout/frac_reward_zero_std); the mean reward is {run.reward.end:.3g}",
        harder(run)
        if always
        else f"use more tries per prompt (--group-size), problems that are neither too easy nor too hard ({others}), a "
        "reward with parts, or sample more widely (--temperature 1, a shorter warm start)",
    )


def cut_off(run: History) -> Finding | None:
    """Most texts, or ever more of them, are cut at max_new_tokens, or nearly all dialogues run out of turns or context.

    Episodes of control may run to their time limit, and right texts may be cut off, too.
    """
    cut, talks = run["rollout/truncated_frac"], len(run["rollout/turns"]) > 0
    if not run.is_text or run.solved:
        return None
    rise, error = cut.trend()
    mends = run.improved and (talks or rise < -3 * error)
    grows = cut.end >= MANY_CUT and rise > max(GROWN, 3 * error) and not _gained(run.success) and not talks
    if not grows and (mends or not cut.end >= (ALL if talks else MOST_CUT)):
        return None
    what = "dialogues run out of turns or context" if talks else "answers are cut off at max_new_tokens"
    room = "--max-turns, --max-context-tokens, --max-reply-tokens" if talks else "--max-new-tokens"
    fix = f"give them more room ({room}), or warm-start longer (--sft-steps) so that the model learns to end"
    if run.success.end < HARD < run.reward.end:  # the room is used to say everything
        fix = (
            f"read samples.jsonl before you give them more room: answers that are not right earn {run.reward.end:.2g} "
            "on average, and longer ones may earn more (rlenv verifiers lint NAME attacks the verifier)"
        )
    return Finding(
        f"{'ever more' if grows else 'all' if cut.end >= ALL else 'most'} {what}",
        f"rollout/truncated_frac is {cut.end:.0%} at update {run.updates}, {cut.start:.0%} at the beginning",
        fix,
    )


def special_tokens(run: History) -> Finding | None:
    """Answers hold tokens which are in no text, and they do not get fewer, in a run that is rewarded."""
    share = run["rollout/special_tokens"]
    mends = run.updates < MANY_UPDATES and share.end < MENDED * share.start
    if not share.end > UNSEEN or run.updates < SOME_UPDATES or mends:
        return None
    return Finding(
        "answers have special tokens, which no verifier and no reader sees, and they are rewarded all the same",
        f"rollout/special_tokens is {share.end:.1%} at update {run.updates}, {share.start:.1%} at the beginning",
        "warm-start the policy on answers without them (--sft-steps), or pay less for them: a reward function that "
        "takes completion_ids (--verifier NAME,my_file.py:f=0.1)",
    )


def length_collapse(run: History) -> Finding | None:
    """Texts shrink, and success does not grow with that."""
    length = run["rollout/ep_len_mean"]
    if not run.is_text or run.updates < FEW_UPDATES or not length.end < SHORTER * length.first or _gained(run.success):
        return None
    return Finding(
        "answers have become much shorter, and no better",
        f"rollout/ep_len_mean from {length.first:.3g} to {length.end:.3g} tokens at update {run.updates}",
        f"see in samples.md what the short answers earn and repair the verifier, or {NEAR_START}",
    )


def entropy_collapse(run: History) -> Finding | None:
    """The policy has become sure of actions that are not good, so that it tries no others."""
    loss, reward = run["train/entropy_loss"], run.reward.smooth()
    start, end = -loss.start, -loss.end or 0.0
    if run.updates < FEW_UPDATES or not 0 <= end < NO_ENTROPY or end >= LOST_ENTROPY * start or not len(reward):
        return None
    fell = reward.values.max() - reward.last > 0.5 * (reward.values.max() - reward.first)  # half of what was gained
    rose = run.improved or reward.last - reward.first > 0.5 * abs(reward.first)  # of which few entries give no trend
    if run.success.end >= GOOD if len(run.success) else rose and not fell:
        return None
    return Finding(
        "the entropy has collapsed: one action is taken every time, and it is not a good one",
        f"entropy from {start:.3g} to {end:.3g} nats per step at update {run.updates}, reward from "
        f"{run.reward.start:.3g} to {run.reward.end:.3g}",
        f"lower --learning-rate, add an entropy bonus (--ent-coef 0.01), or {NEAR_START}",
        "error",
    )


def kl_runaway(run: History) -> Finding | None:
    """The policy is far from the one it started from, and forgets abilities besides the task."""
    for name in ("train/kl_ref", "rollout/kl_start"):
        if (kl := run[name]).end > FAR_KL:
            return Finding(
                "the policy runs away from the one it started from",
                f"{name} rose from {kl.start:.3g} to {kl.end:.3g} nats per step at update {run.updates}",
                "raise --kl-coef tenfold, or lower --learning-rate",
            )
    return None


def acting_differs(run: History) -> Finding | None:
    """On the first pass over a rollout, the log-probabilities differ from the ones recorded while sampling."""
    gap, config = run["train/logp_gap_max"], run.config
    if not len(gap) or config.get("dtype") in HALVES or config.get("staleness") or gap.values.max() <= SAME_RATIO:
        return None
    return Finding(
        "acting and training compute different probabilities: the ratio is not 1 on the first pass",
        f"train/logp_gap_max is {gap.values.max():.3g} nats at update {gap.updates[gap.values.argmax()]:.0f}; rounding "
        f"makes at most {SAME_RATIO}",
        "evaluate as you act: the same temperature and precision, no dropout, no other weights in a copy that acts; if "
        "it grows over the run, lower --learning-rate",
    )


def few_carry(run: History) -> Finding | None:
    """The importance weights are so unequal that a few episodes make the gradient."""
    if not (share := run["train/ess"]).end < FEW:
        return None
    return Finding(
        "few episodes carry the updates: their importance weights outweigh those of the others",
        f"train/ess is {share.end:.2g} at update {run.updates}, {share.start:.2g} at the beginning",
        "train on fresher episodes (--staleness 0, --agent-arg num_epochs=1), lower --learning-rate, bound the weights "
        "(--mismatch sequence-truncate), or shorten such steps (--scale-by-ess)",
    )


def held_out_falls_behind(run: History) -> Finding | None:
    """Success falls on held-out problems while it rises in training; or it falls while the reward rises."""
    held_out = _fall(run["eval/success_rate"], _margin(run))
    fall = held_out or _fall(run.success, FALL)
    if fall is None:
        return None
    before, after, peak = fall
    what = "held-out success" if held_out else "success in training"
    evidence = f"{what} fell from {before:.1%} at update {peak:.0f} to {after:.1%} at update {run.updates}"
    rise, (gain, error) = run.success.end - run.success.around(peak), run.reward.since(peak).trend()
    if held_out and rise > FALL:
        return Finding(
            "success rises in training and falls on held-out problems: the policy memorizes the training problems",
            f"{evidence}; success in training rose by {rise:.3g}",
            "train on more problems, or stop earlier and use RUN/best (--eval-every 50 keeps the best checkpoint)",
        )
    if not gain > 3 * error:
        return None
    return Finding(
        f"the reward rises while {what} falls: the policy games the reward",
        f"{evidence}; the reward rose by {gain:.3g}",
        "read samples.md for what is rewarded; attack the verifier with wrong answers (rlenv verifiers lint), remove "
        f"or lower the part of the reward that is gamed, or {NEAR_START}",
        "error",
    )


def worse_than_before(run: History) -> Finding | None:
    """A policy loses its ability: success, or else the reward, fell to a fraction of its best or of its start."""
    by_success = len(run.success) > 0
    measured = run.success if by_success else run.reward
    able, evidence = measured.smooth(), []
    if run.updates >= FEW_UPDATES and len(able) >= 3 and (by_success or not run.is_text):
        peak, least = able.values.max(), 0.0 if by_success else able.values.min()
        chance = 3 * measured.noise * math.sqrt(2 * len(able) / len(measured))  # in the difference of two points
        if peak - least > SEEN and able.last - least < LOST * (peak - least) and peak - able.last > chance:
            name, best = "success in training" if by_success else "the reward", able.updates[able.values.argmax()]
            evidence = [f"{name} fell from {peak:.3g} at update {best:.0f} to {able.last:.3g} at update {run.updates}"]
    lost, compared = bool(evidence), worse(run.result.get("initial_eval"), run.result.get("eval"))
    evidence += [f"worse than before: {compared}"] if compared else []
    if not evidence:
        return None
    return Finding(
        "the policy has lost what it could do" if lost else "training has made the model worse",
        "; ".join(evidence),
        f"lower --learning-rate to a third or less, or leave it out: the default suits the model; or {NEAR_START}. "
        "RUN/checkpoint-000000 is a --model with what the warm start learned; --eval-every keeps RUN/best",
        "error" if lost else "warning",
    )


def too_slow(run: History) -> Finding | None:
    """Updates take long, and one part of them takes nearly all the time: the verifier, acting or training."""
    seconds = run["time/total_timesteps"].last / max(run["time/fps"].last, 1.0) / max(run.updates, 1)
    if not run.is_text or run.updates < SOME_UPDATES or not seconds > SLOW:
        return None
    for part, (most, name, fix) in TOO_LONG.items():
        if (share := run[f"time/{part}_frac"].last) > most:
            evidence = f"of {seconds:.3g} seconds per update up to update {run.updates} (time/{part}_frac {share:.2f})"
            return Finding(f"{name} takes {share:.0%} of the time", evidence, fix)
    return None


RULES: dict[str, Callable[[History], Finding | None]] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        verdicts_fail, nothing_learned, same_reward, reward_by_prompt, no_signal, held_out_falls_behind,
        worse_than_before, entropy_collapse, reward_without_success, equal_groups, cut_off, length_collapse,
        special_tokens, kl_runaway, acting_differs, few_carry, too_slow,
    )
}  # fmt: skip
EXPLAINS = {  # what a finding explains is not said as well
    "nothing-learned": {"equal-groups", "special-tokens", "no-signal"},
    "same-reward": {"equal-groups", "no-signal"},
    "reward-by-prompt": {"equal-groups", "no-signal"},
    "no-signal": {"equal-groups"},
    "held-out-falls-behind": {"worse-than-before", "cut-off", "reward-without-success"},
    "reward-without-success": {"equal-groups", "cut-off", "length-collapse"},
    "worse-than-before": {"equal-groups", "cut-off", "length-collapse"},
    "entropy-collapse": {"equal-groups"},
}


def findings_of(run: History) -> list[Finding]:
    """Return the findings of the rules in a run, errors first; empty for a healthy one."""
    findings = [replace(finding, rule=name) for name, rule in RULES.items() if (finding := rule(run)) is not None]
    if len(findings) > 1:  # a reward that does not rise has a cause
        findings = [
            finding for finding in findings if (finding.rule, finding.severity) != ("nothing-learned", "warning")
        ]
    explained = set().union(*(EXPLAINS.get(finding.rule, set()) for finding in findings))
    return sorted((each for each in findings if each.rule not in explained), key=lambda each: each.severity)


def _gained(success: Series) -> bool:
    """Tell whether success has risen by more than noise."""
    return success.end - success.start > CLEAR


def _fall(success: Series, margin: float) -> tuple[float, float, float] | None:
    """Return the peak of a rate, its end and the update of the peak, if it has fallen by more than the margin."""
    smooth = success.smooth()
    if len(smooth) < 2 or smooth.values.max() - smooth.last <= margin:
        return None
    return float(smooth.values.max()), smooth.last, float(smooth.updates[smooth.values.argmax()])


def _margin(run: History) -> float:
    """Return the fall of held-out success that is not chance: three standard errors of a difference."""
    episodes = run.config.get("eval_episodes") or EVAL_EPISODES
    if run.config.get("eval_every") is None:  # job.py: evaluations in between are as small as an update
        per_update = run["time/episodes"].last / run.updates if len(run["time/episodes"]) and run.updates else 0.0
        episodes = min(episodes, max(per_update, CURVE_EPISODES))
    return max(FALL, 3 * math.sqrt(2 * 0.25 / episodes))
