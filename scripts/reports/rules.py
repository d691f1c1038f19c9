"""The rules of the doctor: each a pure function of a run's figures, which says whether they show its failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rlenv.agents.training.health import FIRST, HARD

from .history import SOLVED, History
from .statistics import worse

ALL, MOST_CUT = 0.95, 0.5  # of the episodes or groups; of the answers: no update of a healthy run has more than 0.07
SOME_UPDATES, FEW_UPDATES, MANY_UPDATES = 10, 20, 100  # before: chance; noise; healthy runs have clearly improved
ENOUGH = 1 / 3  # of a run: before, the first updates may undo a part of the warm start, and the rate is still high
LEARNED = 10 * HARD  # a run that reaches this has overcome its hard start
FEW_FAILURES = 0.01  # of the episodes; their absence shifts no average by more
MANY_CUT, GROWN = 0.25, 0.15  # a share of answers and its rise that are reported if no more answers are right
MENDED = 0.75  # of the share of special tokens at the beginning: they get fewer
UNSEEN = 0.01  # of the tokens; the policy is exported with the habit
NO_ENTROPY, LOST_ENTROPY = 0.02, 0.1  # nats per step; of the entropy at the beginning
GOOD = 0.8  # success: a policy may be sure of what is right
CLEAR = 0.05  # a gain of success that is not noise
FAR_KL = 1.0  # nats per step from the start: each token is then, on average, e times as likely as it was
SEEN, LOST = 0.1, 0.3  # a peak that is more than noise; the share of it that a policy keeps that has not collapsed
FALL = 0.05  # of held-out success that cannot be chance with 2,000 episodes, whose standard error is 0.011
EVAL_EPISODES = 2000  # by default
CURVE_EPISODES = 64  # at least, in each evaluation of the curve that a run makes without --eval-every

Severity = Literal["warning", "error"]
Failed = Callable[[History], bool | str]
REWARD, SUCCESS, HELD_OUT = "rollout/ep_rew_mean", "rollout/success_rate", "eval/success_rate"
EQUAL, ENTROPY = "rollout/frac_reward_zero_std", "train/entropy_loss"
SOMETIMES_SOLVED = (
    "problems that are sometimes solved (other rows of --problems, or --verifier-arg; --curriculum 0.8 or "
    "--prompt-choice thompson chooses among them)"
)
NEAR_START = "hold the policy near its start (a larger --kl-coef, such as 0.05)"
SLOWER = (
    f"lower --learning-rate to a third or less, or leave it out: the default suits the model; or {NEAR_START}. "
    "--eval-every keeps RUN/best; of text, RUN/checkpoint-000000 is a --model with what the warm start learned"
)
FOR_CONTROL = "for control, another agent or --env-arg"
LINT = "rlenv verifiers lint NAME attacks it"


@dataclass(frozen=True)
class Finding:
    """One thing that a run's figures show.

    Attributes:
        title: the failure, in one line.
        evidence: the figures that show it.
        fix: which option to change.
        severity: "warning" for a run that learns less than it could, "error" for one whose result is worthless.
        rule: its name, such as "nothing-learned".
    """

    title: str
    evidence: str
    fix: str
    severity: Severity
    rule: str


RULES: dict[str, Callable[[History], Finding | None]] = {}  # by name, in the order of this file


def rule(metrics: tuple[str, ...], fix: str, severity: Severity = "warning") -> Callable[[Failed], Failed]:
    """Return a decorator that adds a rule to `RULES`: a function that tells whether a run shows a failure.

    The function's docstring is the title of the finding; if it returns a text, that is further evidence.

    Args:
        metrics: of the evidence.
        fix: of the finding.
        severity: of the finding.
    """

    def add(failed: Failed) -> Failed:
        name = failed.__name__.replace("_", "-")
        title = " ".join((failed.__doc__ or "").split()).removesuffix(".")

        def found(run: History) -> Finding | None:
            if not (more := failed(run)):
                return None
            figures = [*_figures(run, metrics), *([more] if isinstance(more, str) else [])]
            return Finding(title, f"{'; '.join(figures)}; up to update {run.updates}", fix, severity, name)

        RULES[name] = found
        return failed

    return add


# Why a policy does not learn: the first one that is found explains those after it.


@rule(
    metrics=(REWARD, "rollout/reward_std", EQUAL, SUCCESS, ENTROPY),
    fix="judge two different answers to one prompt (rlenv verifiers show NAME): if they earn the same, the reward does "
    f"not read the answer; mend it ({LINT}). If not, each problem is always or never solved: {SOMETIMES_SOLVED}, a "
    f"longer warm start (--sft-steps), more tries per prompt (--group-size), or a reward with parts; {FOR_CONTROL}",
    severity="error",
)
def no_signal(run: History) -> bool:
    """No two rewards that are compared have ever differed, so nothing can be learned."""
    text, updates = run.is_text, run.updates
    enough = updates >= SOME_UPDATES or (text and (bool(run.result) or run["time/episodes"].last >= FIRST))
    solved = run.success.start >= SOLVED and not run.answers_differ if text else run.reward.last > 0
    return run.no_signal and enough and not solved and not run.has_teacher and run["rollout/failed_frac"].end != 1


@rule(
    metrics=(HELD_OUT, SUCCESS, REWARD),
    fix=f"see what is rewarded (rlenv report RUN). If wrong answers are, mend the verifier ({LINT}) or remove the "
    f"part of the reward that is gamed, or {NEAR_START}. If right ones are, the policy memorizes the training "
    "problems: train on more of them, or stop earlier and use RUN/best (--eval-every 50 keeps the best checkpoint)",
    severity="error",
)
def held_out_falls_behind(run: History) -> bool:
    """Success falls while the reward rises: the policy games the reward, or memorizes the training problems."""
    for success, margin in ((run[HELD_OUT], _margin(run)), (run.success, FALL)):
        smooth = success.smooth()
        if len(smooth) >= 2 and smooth.values.max() - smooth.last > margin:
            gain, error = run.reward.since(smooth.updates[smooth.values.argmax()]).trend()
            return gain > 3 * error
    return False


@rule(
    metrics=(ENTROPY, REWARD),
    fix=f"lower --learning-rate, add an entropy bonus (--ent-coef 0.01), or {NEAR_START}",
    severity="error",
)
def entropy_collapse(run: History) -> bool:
    """The entropy has collapsed: one action is taken every time, and it is not a good one."""
    loss, reward = run[ENTROPY], run.reward.smooth()
    if run.updates < FEW_UPDATES or not 0 <= -loss.end < min(NO_ENTROPY, -LOST_ENTROPY * loss.start) or not len(reward):
        return False
    fell = reward.values.max() - reward.last > 0.5 * (reward.values.max() - reward.first)  # half of what was gained
    rose = run.improved or reward.last - reward.first > 0.5 * abs(reward.first)  # of which few entries give no trend
    return not (run.success.end >= GOOD if len(run.success) else rose and not fell)


@rule(metrics=(SUCCESS, REWARD), fix=SLOWER, severity="error")
def reward_collapse(run: History) -> bool:
    """The policy has lost what it could do."""
    measured = run.success if len(run.success) else run.reward
    able = measured.smooth()
    if run.updates < FEW_UPDATES or len(able) < 3 or (run.is_text and not len(run.success)):
        return False
    peak, least = able.values.max(), 0.0 if len(run.success) else able.values.min()
    chance = 3 * measured.noise * math.sqrt(2 * len(able) / len(measured))  # in the difference of two points
    return peak - least > SEEN and able.last - least < LOST * (peak - least) and peak - able.last > chance


@rule(metrics=(HELD_OUT, SUCCESS, REWARD), fix=SLOWER)
def worse_than_before(run: History) -> str:
    """Training has made the model worse than it was."""
    return worse(run.result.get("initial_eval"), run.result.get("eval")) or ""


@rule(
    metrics=(REWARD, SUCCESS),
    fix="read the answers (rlenv report RUN). If those that are paid are wrong, lower the part that they collect, or "
    f"pay it only in the place of the answer ({LINT}). If they are right, its success_reward is too high. If they are "
    "on the way to right ones, go on",
)
def reward_without_success(run: History) -> bool:
    """The reward rises, success does not: something else is paid for."""
    (more, error), (right, chance) = run.reward.trend(), run.success.trend()
    clear = more > 3 * error and more * chance >= 3 * right * error and right <= 2 * chance
    return run.is_text and run.updates >= SOME_UPDATES and clear and run.success.end < GOOD


@rule(
    metrics=(HELD_OUT,),
    fix=f"use a longer warm start (--sft-steps, --sft-examples), {SOMETIMES_SOLVED}, or more tries per prompt "
    "(--group-size); docs/why-is-my-reward.md says what helped elsewhere",
)
def hard_start(run: History) -> bool:
    """Hardly any answer is right before training, and wrong answers alone teach nothing."""
    first, paid = run[HELD_OUT], run["eval/mean_reward"]
    from_parts = paid.first - first.first >= HARD  # wrong answers earn a part, which teaches, too
    hard = len(first) > 0 and first.updates[0] == 0 and first.first < HARD and not from_parts
    return run.is_text and hard and not run.success.end >= LEARNED  # control has no warm start, and often begins so


@rule(
    metrics=(EQUAL, "rollout/reward_std", REWARD, SUCCESS),
    fix=f"pose {SOMETIMES_SOLVED}: harder ones if all are solved, else easier ones; or use more tries per prompt "
    "(--group-size), a reward with parts, or sample more widely (--temperature 1, a shorter warm start); "
    f"{FOR_CONTROL}",
)
def equal_groups(run: History) -> bool:
    """Rewards that are compared are equal, so nearly nothing is learned."""
    grouped = run["rollout/group_size_min"].end > 1
    share = run[EQUAL].end if grouped else float(run["rollout/reward_std"].end == 0)
    always = run.solved and run.success.start >= SOLVED
    learns = run.has_teacher or (not always and (run.solved or run.improved))
    return run.updates >= SOME_UPDATES and share >= ALL and not learns


@rule(
    metrics=(REWARD, "train/learning_rate"),
    fix="a third or three times the --learning-rate, more --episodes-per-update, or a longer run (--timesteps)",
)
def nothing_learned(run: History) -> bool | str:
    """The reward is no better after many updates than at the beginning."""
    rise, error = run.reward.trend()
    too_early = run.done < 1 and (run.done < ENOUGH or rise > -2 * error)
    if run.updates < MANY_UPDATES or len(run.reward) < 2 or run.solved or rise > error or too_early:
        return False
    return f"it rises by {rise:.2g} ± {error:.2g}"


EXPLAINING = tuple(RULES)

# What else may be wrong with a run.


@rule(
    metrics=("rollout/truncated_frac", REWARD, SUCCESS),
    fix=f"read the answers (rlenv report RUN): if wrong ones earn a reward, mend the verifier first ({LINT}), for "
    "longer ones may earn more. Else give them more room (--max-new-tokens; dialogues: --max-turns, "
    "--max-context-tokens, --max-reply-tokens), or warm-start longer (--sft-steps) so that the model learns to end",
)
def cut_off(run: History) -> bool:
    """Most answers are cut off, or ever more of them; or nearly all dialogues run out of turns or context."""
    cut, talks = run["rollout/truncated_frac"], len(run["rollout/turns"]) > 0
    if not run.is_text or run.solved or reward_without_success(run):  # control may run to its limit; more room is worse
        return False
    rise, error = cut.trend()
    mends = run.improved and (talks or rise < -3 * error)
    gained = run.success.end - run.success.start > CLEAR
    grows = cut.end >= MANY_CUT and rise > max(GROWN, 3 * error) and not gained and not talks
    return grows or (not mends and cut.end >= (ALL if talks else MOST_CUT))


@rule(
    metrics=("rollout/failed_frac", "rollout/timeout_frac", "rollout/error_frac", "rollout/not_applicable_frac"),
    fix="read the reason (rlenv verifiers lint NAME --problems FILE): mend the rows without a reference that can be "
    "read, or the verifier. Of timeouts: raise --verifier-timeout, use more --verifier-workers. For control, mend the "
    "environment: it pays what is not finite",
)
def verdicts_fail(run: History) -> bool:
    """The verifier fails, and the episodes on which it fails teach nothing."""
    share = run["rollout/failed_frac"]
    return share.values.sum() / max(len(run["train/learning_rate"]), len(share), 1) > FEW_FAILURES  # once any failed


@rule(
    metrics=("train/skipped_updates", "train/learning_rate"),
    fix="lower --learning-rate; if it is small, see whether observations and rewards are finite",
)
def skipped_updates(run: History) -> bool:
    """Updates were skipped, since a loss, a log-probability or a gradient was not finite."""
    return run["train/skipped_updates"].last > FEW_FAILURES * run.updates


@rule(
    metrics=("rollout/special_tokens",),
    fix="warm-start the policy on answers without them (--sft-steps), or pay less for them: a reward function that "
    "takes completion_ids (--verifier NAME,my_file.py:f=0.1)",
)
def special_tokens(run: History) -> bool:
    """Answers have special tokens, which no verifier and no reader sees, and they do not get fewer."""
    share = run["rollout/special_tokens"]
    mends = run.updates < MANY_UPDATES and share.end < MENDED * share.start
    return share.end > UNSEEN and run.updates >= SOME_UPDATES and not mends


@rule(
    metrics=("train/kl_ref",),
    fix="raise --kl-coef tenfold, or lower --learning-rate",
)
def kl_runaway(run: History) -> bool:
    """The policy runs away from the one it started from, and forgets abilities besides the task."""
    return run["train/kl_ref"].end > FAR_KL


def findings_of(run: History) -> list[Finding]:
    """Return the findings of the rules in a run, errors first; empty for a healthy one."""
    found = {name: finding for name, look in RULES.items() if (finding := look(run)) is not None}
    explained = {*[name for name in EXPLAINING if name in found][1:]}
    if len(found.keys() - explained) > 1:
        explained.add("nothing-learned")  # a reward that does not rise has a cause
    return sorted((each for name, each in found.items() if name not in explained), key=lambda each: each.severity)


def _figures(run: History, metrics: tuple[str, ...]) -> Iterator[str]:
    """Yield the beginning and the end of each metric that was logged, see `Series`, and its largest value between."""
    for name in metrics:
        if len(series := run[name]):
            start, end, most = (f"{value:.3g}" for value in (series.start, series.end, series.values.max()))
            change = start if start == end else f"from {start} to {end}"
            yield f"{name} {change}" if most in (start, end) else f"{name} {change}, at most {most}"


def _margin(run: History) -> float:
    """Return the fall of held-out success that is not chance: three standard errors of a difference."""
    episodes = run.config.get("eval_episodes") or EVAL_EPISODES
    if run.config.get("eval_every") is None:  # job.py: evaluations in between are as small as an update
        per_update = run["time/episodes"].last / run.updates if len(run["time/episodes"]) and run.updates else 0.0
        episodes = min(episodes, max(per_update, CURVE_EPISODES))
    return max(FALL, 3 * math.sqrt(2 * 0.25 / episodes))
