"""Estimators: the gradient is not the one that was meant."""

import copy
from dataclasses import replace
from functools import partial

import torch
from identity_checks import padded
from museum import MADE_UP, OURS, Test, planted
from tabular import AT_THE_END

from agents import A2C, DAPO, GRPO, Distillation, DrGRPO, LanguageModelPolicy, ReinforceBaseline, exact
from agents.algorithms import _actor_critic
from agents.core.rollout import join
from agents.estimators import aggregation, baselines, gates, kl, losses, mismatch, returns, scaling
from agents.learner.kl_anchor import Anchor
from agents.learner.learner import Learner
from agents.trainer import proximal

EXACT_KL = Test(
    "agents/algorithms/test_exact_gradients.py::test_k1_in_the_reward_is_exact",
    baseline="leave-one-out",
    factor=1,
    returns="episode",
)


@planted(
    16,
    "huggingface/trl#454, huggingface/trl#2769",
    Test(
        "agents/algorithms/test_family_updates.py::test_away_from_the_sampling_policy_the_loss_is_the_clipped_one",
        settings={"cls": GRPO},
        low=0.2,
        high=0.2,
        seed=0,
    ),
)
def test_old_log_probs_are_those_of_now(patch):
    """The ratio compares the policy with itself, not with the one that sampled: it is 1, and nothing is clipped."""

    def surrogate(self, log_probs, batch):
        now = log_probs.detach()
        return losses.clipped_ratio(log_probs, now, batch.advantages, self.clip_range, self.clip_range_high)

    patch.setattr(proximal.ProximalAgent, "surrogate", surrogate)


@planted(17, "NVIDIA-NeMo/RL#2506, allenai/open-instruct#534", EXACT_KL)
def test_k1_is_differentiated(patch):
    """The KL estimate k1 is put into the loss: its expected gradient is zero, and the reference is ignored."""

    def init(self, coef=0.0, estimator="k1", place="reward", ratio="none", make=Anchor.__init__):
        make(self, coef, estimator, "loss")

    patch.setattr(Anchor, "__init__", init)


DISTILLED = "agents/algorithms/test_distillation.py::test_the_gradient_is_that_of_the_kl_state_by_state"


@planted(28, "meta-pytorch/torchforge#527", Test(DISTILLED, estimator="sampled"))
def test_the_advantage_of_distillation_is_not_detached(patch):
    """The student's log-probability in the advantage log π_T - log π is differentiated, too."""

    def surrogate(self, log_probs, batch):
        return (batch.advantages + batch.log_probs - log_probs) * log_probs

    patch.setattr(Distillation, "surrogate", surrogate)


@planted(17, "radixark/miles#2362", Test(DISTILLED, estimator="sampled"))
def test_the_kl_to_the_teacher_is_the_same_for_every_action(patch):
    """The advantage is the KL over all actions, a constant in each state: its expected gradient is zero."""

    def advantages(self, rollout):
        return -self.policy.kl_divergence(self.anchor.reference, rollout).detach()

    patch.setattr(Distillation, "advantages", advantages)
    patch.setattr(Distillation, "surrogate", lambda self, log_probs, batch: batch.advantages * log_probs)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/algorithms/test_distillation.py::"
        "test_the_teacher_is_evaluated_at_the_students_temperature_unless_another_is_given",
        given=None,
        expected=0.7,
    ),
)
def test_the_teacher_keeps_its_own_temperature(patch):
    """The teacher is evaluated at the temperature it was trained or saved with, not at its student's."""
    patch.setattr(LanguageModelPolicy, "follow_temperature", lambda self, student, temperature: None)


@planted(18, "Unakar/Logic-RL#58, qiancheng0/ToolRL#52", EXACT_KL)
def test_kl_is_rewarded(patch):
    """The KL penalty is added to the reward instead of subtracted."""
    patch.setitem(kl.ESTIMATORS, "k1", lambda log_probs, ref: ref - log_probs)


@planted(
    19,
    "huggingface/trl#4638, huggingface/trl#2854",
    Test(
        "agents/algorithms/test_exact_gradients.py::test_every_kl_estimator_does_what_its_table_says",
        estimator="k3",
        place="loss",
        returns="episode",
    ),
)
def test_the_ratio_of_k3_is_a_constant(patch):
    """The ratio in the KL estimate k3 is taken from the policy that sampled, so it has no gradient."""
    patch.setitem(kl.ESTIMATORS, "k3", lambda log_probs, ref: torch.expm1(ref - log_probs.detach()) - (ref - log_probs))


@planted(
    19,
    "huggingface/trl#3025",
    Test(
        "agents/algorithms/test_exact_off_policy.py::test_every_ratio_of_the_kl_does_what_its_table_says",
        estimator="k2",
        ratio="constant",
    ),
)
def test_the_ratio_of_the_kl_is_forgotten(patch):
    """The KL in the loss of later passes is of actions of the sampling policy, without their ratio."""
    patch.setitem(kl.RATIOS, "constant", kl.no_ratio)


@planted(
    16,
    "verl-project/verl#4105",
    Test("agents/algorithms/test_exact_off_policy.py::test_dppo_away_from_the_sampling_policy", most=0.05, bound=20.0),
)
def test_the_truncated_weight_has_a_gradient(patch):
    """The importance weight of log π is not a constant, so that the loss has a gradient through it, too."""

    def weighted(log_probs, old_log_probs, advantages, most):
        return (log_probs - old_log_probs).exp().clamp(max=most) * advantages * log_probs

    patch.setattr(losses, "weighted_log_prob", weighted)


@planted(
    None,
    MADE_UP,
    Test("agents/algorithms/test_exact_off_policy.py::test_topr_away_from_the_sampling_policy", baseline=0.5),
)
def test_the_taper_has_a_gradient(patch):
    """The ratio of a bad episode is differentiated, as it is in PPO, where its weight is a constant."""

    def taper(log_probs, old_log_probs, advantages, mask):
        log_ratio = (log_probs - old_log_probs).where(mask, 0).sum(1, keepdim=True)
        return log_ratio.clamp(max=0).exp().where(advantages < 0, 1)

    patch.setattr(gates, "taper", taper)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/algorithms/test_exact_off_policy.py::test_weights_are_truncated_or_masked_by_step_or_by_episode",
        mode=mismatch.MODES["token-truncate"],
        bounds=(0.0, 3.0),
        cls=GRPO,
    ),
)
def test_the_mismatch_counts_twice(patch):
    """Steps are weighed with the ratio to the policy that acted, and the clipped ratio starts from that one, too."""
    prepare = Learner.prepare

    def from_acting(self, rollout):
        batch = prepare(self, rollout)
        batch.log_probs = batch.acting_log_probs.where(batch.learnable, 0)
        return batch

    patch.setattr(Learner, "prepare", from_acting)


@planted(20, "OpenRLHF/OpenRLHF#515, verl-project/verl#882", EXACT_KL)
def test_kl_after_the_baseline(patch):
    """The KL penalty of a step is subtracted from its advantage, after the baseline, and not from the reward."""
    add_kl_penalty, advantages = Anchor.add_kl_penalty, ReinforceBaseline.advantages

    def rewards_left_alone(self, policy, rollout, *args):
        made = add_kl_penalty(self, policy, rollout, *args)
        made.rewards = rollout.rewards
        return made

    def charged(self, rollout):
        penalty = rollout.log_probs - rollout.ref_log_probs
        return advantages(self, rollout) - self.anchor.coef * penalty

    patch.setattr(Anchor, "add_kl_penalty", rewards_left_alone)
    patch.setattr(ReinforceBaseline, "advantages", charged)


@planted(
    21,
    "pytorch/rl#574, NVIDIA-NeMo/RL#1533, areal-project/AReaL#1454",
    Test(
        "agents/algorithms/test_exact_gradients.py::test_equal_rewards_in_a_group_give_exactly_no_gradient",
        baseline="group-mean",
        returns="episode",
        reward=-7.3,
    ),
)
def test_rounding_errors_are_blown_up(patch):
    """Equal rewards less their rounded mean are not zero; divided by a standard deviation near zero they are large."""

    def group_mean(gains, rollout):
        return torch.stack([gains[rollout.groups == group].float().mean(0) for group in rollout.groups])

    patch.setitem(baselines.BASELINES, "group-mean", lambda: group_mean)


@planted(
    21,
    "StarsfieldAI/R1-V#151",
    Test(
        "agents/algorithms/test_family_updates.py::test_failed_verdicts_teach_nothing",
        settings={"cls": GRPO},
        reward=0.0,
    ),
)
def test_a_group_of_one_has_no_standard_deviation(patch):
    """The standard deviation of a group of one is NaN, and so are the weights after the update."""

    def group_std(gains, rollout, std=scaling.group_std):
        _, group, sizes = rollout.groups.unique(return_inverse=True, return_counts=True)
        judged = torch.zeros_like(sizes).index_add(0, group, rollout.ok.long())[group]
        return std(gains, rollout) * ((judged - 1) / (judged - 1))[:, None]

    patch.setitem(scaling.SCALES, "group", group_std)


@planted(
    22,
    "XU-YIJIE/grpo-flat#2, THUDM/slime#1414, THUDM/slime#1918",
    Test(
        "agents/algorithms/test_exact_gradients.py::test_group_mean_scales_the_gradient_by_one_less_than_k_over_k",
        size=2,
        returns="episode",
        rewards=AT_THE_END,
    ),
)
def test_the_mean_of_the_batch_for_that_of_the_group(patch):
    """A prompt's episodes are compared with those of other prompts."""
    patch.setitem(baselines.BASELINES, "group-mean", lambda: baselines.batch_mean)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/algorithms/test_exact_gradients.py::test_an_unbiased_baseline_leaves_the_gradient_exact",
        baseline="leave-one-out",
        size=4,
        returns="episode",
        rewards=AT_THE_END,
    ),
)
def test_an_episode_is_its_own_baseline(patch):
    """The leave-one-out mean includes the episode itself."""

    def leave_one_out(gains, rollout):
        size = 4
        groups = gains.reshape(-1, size, gains.shape[1])
        return (groups.sum(1, keepdim=True) / (size - 1)).expand_as(groups).reshape(gains.shape)

    patch.setitem(baselines.BASELINES, "leave-one-out", lambda: leave_one_out)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/algorithms/test_exact_gradients.py::test_an_unbiased_baseline_leaves_the_gradient_exact",
        baseline="length-weighted",
        size=2,
        returns="episode",
        rewards=AT_THE_END,
    ),
)
def test_an_episode_weighs_in_its_own_baseline(patch):
    """The mean weighted with lengths includes the episode itself, and the expected gradient has another direction."""

    def length_weighted(gains, rollout):
        lengths = rollout.lengths[:, None]
        whole = baselines.group_sum(lengths * gains, rollout.groups)
        return whole / baselines.group_sum(lengths, rollout.groups)

    patch.setitem(baselines.BASELINES, "length-weighted", lambda: length_weighted)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/algorithms/test_exact_gradients.py::test_an_unbiased_baseline_leaves_the_gradient_exact",
        baseline="optimal-token",
        size=4,
        returns="episode",
        rewards=AT_THE_END,
    ),
)
def test_norms_are_added_up_over_the_group(patch):
    """The norms of the scores are added up over the episodes of the rollout instead of over the steps of each."""

    def optimal_token(gains, rollout):
        weights = rollout.score_norms.where(rollout.mask, 0).cumsum(0)
        return baselines._weighted_mean_of_others(gains, weights, rollout)

    patch.setitem(baselines.BASELINES, "optimal-token", lambda: optimal_token)


@planted(
    23,
    "sail-sg/understand-r1-zero#10, huggingface/trl#3256, verl-project/verl#2435",
    Test(
        "agents/algorithms/test_exact_family.py::test_dr_grpo_is_exact_up_to_its_two_constants",
        size=2,
        rewards=AT_THE_END,
    ),
)
def test_divided_by_the_own_length(patch):
    """Each episode's loss is divided by its own length, so long wrong answers are punished less."""
    patch.setattr(DrGRPO, "weights", staticmethod(aggregation.sequence_mean))


@planted(
    24,
    "huggingface/trl#6024, modelscope/ms-swift#10116, allenai/open-instruct#1161",
    Test(
        "agents/algorithms/test_family_updates.py::test_micro_batches_leave_the_gradient_alone",
        settings={"cls": A2C, "gae_lambda": 0.9},
        rows=5,
    ),
)
def test_micro_batches_divide_by_their_own_tokens(patch):
    """Each micro-batch takes the mean over its own tokens, so short micro-batches weigh too much."""

    def split(self, rollout, whole=Learner.micro_batches):
        for part in whole(self, rollout):
            if hasattr(part, "weights"):
                part.weights = part.weights * rollout.mask.sum() / part.mask.sum()
            yield part

    patch.setattr(Learner, "micro_batches", split)


@planted(
    25,
    "huggingface/trl#6369, Stable-Baselines-Team/stable-baselines3-contrib#78",
    Test(
        "agents/algorithms/test_exact_gradients.py::test_a_row_that_is_masked_throughout_changes_nothing",
        settings={"baseline": "none"},
        group=99,
    ),
)
def test_rows_without_a_verdict_count_in_the_mean(patch):
    """The loss is divided by the number of all rows, including those that are masked throughout."""
    patch.setattr(ReinforceBaseline, "weights", staticmethod(lambda mask: mask.double() / len(mask)))


@planted(
    26,
    "areal-project/AReaL#1346, radixark/miles#1827",
    Test(
        "agents/algorithms/test_family_updates.py::test_the_layout_leaves_the_gradient_alone",
        settings={"cls": A2C, "gae_lambda": 0.6, "gamma": 0.9},
        layout=partial(padded, junk=1),
    ),
)
def test_advantages_decay_over_padding(patch):
    """The generalized advantage runs on over masked steps, so the value after a cut fades with the padding."""

    def over_padding(rewards, values, mask, gamma, gae_lambda, final_values=None):
        faded = None if final_values is None else final_values * gamma ** (mask.shape[1] - mask.sum(1))
        return returns.generalized_advantage(rewards, values, mask, gamma, gae_lambda, faded)

    patch.setattr(_actor_critic, "generalized_advantage", over_padding)


@planted(
    28,
    "muupan/async-rl#12, thu-ml/tianshou#742",
    Test("agents/algorithms/test_exact_gradients.py::test_the_critic_takes_no_gradient_from_the_policy_loss"),
)
def test_the_baseline_is_not_detached(patch):
    """The policy's loss flows through the advantage into the critic."""
    patch.setattr(Learner, "_in_passes", Learner._in_passes.__wrapped__)
    patch.setitem(baselines.BASELINES, "value", lambda: lambda gains, rollout: rollout.values)
    patch.setattr(losses, "policy_gradient", lambda log_probs, advantages: advantages * log_probs)


@planted(
    29, "tensorforce/tensorforce#105", Test("agents/learner/test_kl.py::test_the_reference_is_frozen_and_held_once")
)
def test_the_reference_is_the_policy(patch):
    """The reference is the trained policy itself, not a copy: the KL is always 0."""

    def freeze(self, policy):
        self.reference = policy

    patch.setattr(Anchor, "freeze_reference", freeze)


@planted(29, "aburkov/theLMbook#8", Test("agents/learner/test_kl.py::test_the_reference_is_frozen_and_held_once"))
def test_the_reference_follows(patch):
    """The reference is copied anew each time training goes on, so the anchor holds nothing."""

    def freeze(self, policy):
        self.reference = copy.deepcopy(policy).requires_grad_(False)

    patch.setattr(Anchor, "freeze_reference", freeze)


@planted(
    29,
    "hiyouga/ChatGLM-Efficient-Tuning#380",
    Test(
        "agents/policies/language/test_adapters.py::test_the_reference_of_a_fresh_adapter_is_the_base_bit_for_bit",
        name="llama",
        dtype="float32",
    ),
)
def test_the_reference_has_the_adapter_on(patch):
    """The reference shares its adapter with the policy that is trained: the KL is always 0."""

    def frozen(self):
        return copy.deepcopy(self, {id(weight): weight for weight in self.parameters()})

    patch.setattr(LanguageModelPolicy, "frozen_copy", frozen)


@planted(
    29,
    "huggingface/trl#3194, huggingface/trl#4723",
    Test(
        "agents/policies/language/test_adapters.py::test_the_reference_of_a_trained_adapter_is_a_copy_of_it_on_the_same_base"
    ),
)
def test_the_reference_of_a_trained_adapter_is_the_base(patch):
    """Training goes on from a trained adapter, and the reference is the base model without it."""
    same_base = LanguageModelPolicy.on_the_same_base
    patch.setattr(LanguageModelPolicy, "on_the_same_base", lambda self, with_adapter: same_base(self, False))


@planted(
    30,
    "BytedTsinghua-SIA/DAPO#22, verl-project/verl#953",
    Test("agents/algorithms/test_dapo.py::test_training_on_a_task_that_says_nothing_comes_to_its_end"),
    error=RuntimeError,
)
def test_resampling_ends_the_run(patch):
    """Dynamic sampling ends the run when it does not find enough groups with unequal rewards."""
    collect = DAPO.collect_rollout

    def enough(self, callback):
        rollout = collect(self, callback)
        if int(self._has_gradient(rollout).sum()) < self.episodes_per_update:
            raise RuntimeError("generated too many")
        return rollout

    patch.setattr(DAPO, "collect_rollout", enough)


@planted(
    30,
    "BytedTsinghua-SIA/DAPO#28",
    Test(
        "agents/algorithms/test_dapo.py::test_where_rewards_are_always_equal_resampling_ends_and_nothing_is_changed",
        max_rounds=2,
    ),
)
def test_resampling_goes_on(patch):
    """Dynamic sampling goes on until it has enough groups with unequal rewards, of which there are none."""
    collect = DAPO.collect_rollout

    def without_bound(self, callback):
        self.max_rounds = 9  # a thousand in the wild
        return collect(self, callback)

    patch.setattr(DAPO, "collect_rollout", without_bound)


@planted(
    None,
    MADE_UP,
    Test("agents/algorithms/test_dapo.py::test_groups_that_say_nothing_leave_no_trace_in_the_update"),
)
def test_groups_of_equal_rewards_are_kept(patch):
    """Groups with equal rewards are not left out, and the mean over tokens shrinks the gradient."""
    patch.setattr(DAPO, "_has_gradient", lambda self, rollout: torch.ones(len(rollout), dtype=torch.bool))


@planted(
    None,
    OURS,
    Test(
        "agents/test_exact.py::test_every_rollout_by_itself",
        cls=ReinforceBaseline,
        settings={"baseline": "batch-mean", "group_size": 2},
        error=1 / 2,
        direction=1,
        meaning="right direction, scaled by 0.5",
    ),
)
def test_the_exact_check_prepares_all_rollouts_at_once(patch):
    """The exact check makes one batch of all rollouts, so that a mean of the batch does not contain the own episode."""
    every_rollout = exact.every_rollout

    def all_at_once(agent):
        played, rollouts, chances = zip(*every_rollout(agent), strict=True)
        batch = played[0].prepare(join(rollouts, obs_from_actions=False))
        for part, chance in zip(batch.split(len(rollouts[0])), chances, strict=True):
            prepared = replace(part, weights=part.weights * len(rollouts))
            played[0].prepare = lambda rollout, prepared=prepared: prepared
            yield played[0], part, chance

    patch.setattr(exact, "every_rollout", all_at_once)
