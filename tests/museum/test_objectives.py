"""Objectives other than the expected reward: another one is followed than the agent says."""

from dataclasses import replace

import torch
from museum import MADE_UP, Test, planted
from objectives import SOLVED

from agents.algorithms import pkpo
from agents.estimators import baselines, scaling

EXACT = "agents/algorithms/test_exact_objectives.py::"
MAXRL = Test(EXACT + "test_maxrl_is_exact_for_the_log_likelihood_truncated_one_below_the_group", size=3)
BEST = Test(EXACT + "test_pkpo_is_exact_for_the_best_of_k", size=3, k=2, rewards=SOLVED, baseline="loo")
LACKING = Test(EXACT + "test_a_part_that_a_verdict_lacks_adds_nothing_and_enters_no_mean")


def of_the_rollout(rollout):
    return replace(rollout, groups=torch.zeros_like(rollout.groups))


@planted(None, MADE_UP, MAXRL)
def test_the_mean_of_the_rollout_divides(patch):
    """MaxRL divides by the mean reward of all prompts: hard ones gain no weight."""

    def over_mean(gains, rollout):
        mean = baselines.group_mean(gains, of_the_rollout(rollout))
        return (gains - baselines.group_mean(gains, rollout)) / mean

    patch.setattr(scaling, "over_group_mean", over_mean)


@planted(None, MADE_UP, MAXRL)
def test_the_mean_of_the_others_divides(patch):
    """MaxRL leaves the episode itself out of the mean that divides: the only success of a group has no gradient."""

    def over_mean(gains, rollout):
        others = baselines.leave_one_out(gains, rollout)
        return ((gains - others) / others).where(others > 0, 0)

    patch.setattr(scaling, "over_group_mean", over_mean)


@planted(None, MADE_UP, BEST)
def test_the_best_of_k_is_its_own_baseline(patch):
    """The baseline of PKPO is the mean best of k of the whole group, the episode itself included."""

    def credit(gains, rollout, k, baseline, right=pkpo.best_of_k.best_of_k):
        earned = right(gains, rollout, k, "none")
        return earned - baselines.group_mean(earned, rollout)

    patch.setattr(pkpo.best_of_k, "best_of_k", credit)


@planted(None, MADE_UP, BEST)
def test_the_best_of_the_whole_rollout_counts(patch):
    """PKPO looks for the best of k among the answers to all prompts."""

    def credit(gains, rollout, k, baseline, right=pkpo.best_of_k.best_of_k):
        return right(gains, of_the_rollout(rollout), k, baseline)

    patch.setattr(pkpo.best_of_k, "best_of_k", credit)


@planted(None, MADE_UP, LACKING)
def test_parts_are_standardized_over_the_rollout(patch):
    """GDPO takes the mean and the deviation of a part over all prompts."""

    def standardize(gains, rollout, right=scaling.standardize_groups):
        return right(gains, of_the_rollout(rollout))

    patch.setattr(scaling, "standardize_groups", standardize)


@planted(None, MADE_UP, LACKING)
def test_a_part_that_does_not_apply_counts_as_zero(patch):
    """Answers to which a part does not apply count in its mean, with a reward of 0."""

    def with_zeros(parts, rollout, right=scaling.standardize_parts):
        return right([(part.nan_to_num(0), weight) for part, weight in parts], rollout)

    patch.setattr(scaling, "standardize_parts", with_zeros)


@planted(None, MADE_UP, Test(EXACT + "test_gdpo_by_hand"))
def test_the_sum_of_the_parts_is_standardized(patch):
    """GDPO adds the parts up before it standardizes them, which is GRPO."""

    def sum_first(parts, rollout):
        total = sum(weight * part.nan_to_num(0) for part, weight in parts)
        return scaling.standardize_groups(total[:, None], rollout)[:, 0]

    patch.setattr(scaling, "standardize_parts", sum_first)
