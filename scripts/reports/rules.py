"""All rules of the doctor: pure functions of a run's figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import dialogue_rules, policy_rules, reward_rules, training_rules
from .findings import Finding
from .history import History, read_run

Rule = Callable[[History], Finding | None]
RULES: tuple[Rule, ...] = (
    training_rules.stopped,
    training_rules.verifier_failures,
    reward_rules.reward_never_seen,
    reward_rules.all_rewards_equal,
    reward_rules.reward_collapse,
    reward_rules.answers_cut_off,
    reward_rules.special_tokens,
    dialogue_rules.turns_run_out,
    dialogue_rules.one_reply_dominates,
    dialogue_rules.tool_never_called,
    reward_rules.warm_start_too_flat,
    policy_rules.warm_start_too_sharp,
    policy_rules.kl_before_first_update,
    policy_rules.ratio_not_one,
    policy_rules.entropy_collapse,
    policy_rules.kl_runaway,
    policy_rules.update_too_far,
    policy_rules.length_explosion,
    policy_rules.length_collapse,
    training_rules.critic_explains_nothing,
    reward_rules.reward_hacking,
    reward_rules.worse_than_before,
    training_rules.gradient_always_clipped,
    training_rules.updates_skipped,
    training_rules.loss_near_zero,
)
GRAVITY = ("error", "warning", "note")
CONSEQUENCES = {  # of a finding: what it explains is not said as well
    "reward-collapse": {
        "worse-than-before",
        "all-rewards-equal",
        "answers-cut-off",
        "length-collapse",
        "turns-run-out",
    },
    "one-reply-dominates": {"turns-run-out"},
    "reward-hacking": {"worse-than-before", "reward-collapse", "answers-cut-off"},
    "length-explosion": {"answers-cut-off"},
    "warm-start-too-flat": {"all-rewards-equal"},
    "warm-start-too-sharp": {"all-rewards-equal"},
}


def examine_run(folder: Path, notes: bool = False) -> list[Finding]:
    """Return what the figures of a run show, the gravest first; empty for a healthy one.

    Args:
        folder: a run folder; the run may be over, stopped or still running.
        notes: whether to include what is normal, though it surprises.

    Raises:
        ValueError: if it is not a run folder, or a file in it is damaged.
    """
    return findings_of(read_run(folder), notes)


def findings_of(run: History, notes: bool = False) -> list[Finding]:
    """Return what the rules find in a run, the gravest first, with notes if asked for."""
    found = [finding for rule in RULES if (finding := rule(run)) is not None]
    explained = set().union(*(CONSEQUENCES.get(finding.rule, set()) for finding in found))
    found = [finding for finding in found if finding.rule not in explained]
    if all(finding.severity == "note" for finding in found):
        unexplained = reward_rules.nothing_improved(run)
        found += [unexplained] if unexplained else []
    found = [finding for finding in found if notes or finding.severity != "note"]
    return sorted(found, key=lambda finding: GRAVITY.index(finding.severity))


def name_of(rule: Rule) -> str:
    """Return the name under which a rule's findings are reported."""
    return rule.__name__.replace("_", "-")
