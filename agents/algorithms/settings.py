"""The settings of the algorithms, and what each changes in those of every agent; see `agents/training/settings.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checks import Scheduled
from ..settings import ANY, setting
from ..training.settings import TRAIN, AgentSettings, PassesSettings, ProximalSettings


class ReinforceSettings(AgentSettings):
    """The settings of REINFORCE."""

    gamma = setting(by_kind={"control": 1.0})
    learning_rate = setting(
        by_kind={"control": 3e-3},
        shown="3e-4 for tiny, less for larger models, 10 times as much for adapters; control 3e-3",
    )


class ReinforceBaselineSettings(AgentSettings):
    """The settings of REINFORCE with a baseline."""

    baseline: str = setting(
        "leave-one-out",
        "What is subtracted from the return.",
        one_of=(
            "none",
            "running-mean",
            "batch-mean",
            "group-mean",
            "leave-one-out",
            "length-weighted",
            "optimal-token",
            "value",
        ),
        commands=TRAIN,
        more="The table in `estimators/baselines.py` says what each is and whether it biases the gradient.",
    )
    returns: str = setting(
        "return-to-go",
        "Which return a step gets.",
        one_of=("return-to-go", "episode"),
        commands=TRAIN,
        more="G_t = Σ_{k≥t} γ^{k-t} r_k, or R at every step. With γ < 1 the former leaves out the factor γ^t of the "
        "exact gradient, as the field does.",
    )


class ReinforcePlusPlusSettings(ProximalSettings):
    """The settings of REINFORCE++."""

    baseline: str = setting(
        "none",
        "What is subtracted from the return.",
        one_of=("none", "group-mean"),
        commands=TRAIN,
        more='In the formulas: b. "group-mean" is the paper\'s REINFORCE++-baseline, in groups of at least 2.',
    )


class ActorCriticSettings(AgentSettings):
    """The settings of agents with a learned critic."""

    gae_lambda: float = setting(
        help="λ, from 0 (one-step error) to 1 (return minus value).", by_kind={ANY: 1.0}, low=0, high=1
    )


class PPOSettings(ProximalSettings, ActorCriticSettings):
    """The settings of PPO."""

    num_epochs = setting(by_kind={"control": 4, "language-model": 2})
    num_minibatches = setting(by_kind={"control": 4, "language-model": 2})
    gae_lambda = setting(by_kind={"control": 0.95})
    normalize_advantage: bool = setting(
        True,
        "Whether Â is whitened over the rollout, once, before the rollout is split.",
        more="This is common, and biases the gradient by a common factor and offset.",
    )
    clip_range_vf: Scheduled | None = setting(
        None,
        "How far the critic's value may move from the old one before its error has no gradient.",
        above=0,
        more="A number or a function of the remaining progress; None for no limit. Not in the paper, but in its first "
        "implementation.",
    )


class VAPOSettings(PPOSettings):
    """The settings of VAPO."""

    clip_range_high = setting(0.28, "ε_high; above ε_low, unlikely actions become likely sooner.")
    gae_lambda = setting(help="λ of the critic's targets.", by_kind={"control": 1.0})
    length_alpha: float = setting(
        0.05,
        "α: λ of the actor is 1 - 1/(α T_i), and 0 up to 1/α steps.",
        above=0,
        more="Short answers need a larger one than the paper's.",
    )
    value_warmup: int = setting(0, "First updates that train the critic alone; the paper takes 50.", low=0)


class GroupRelativeSettings(AgentSettings):
    """The settings of agents that standardize the returns of a group."""

    scale: str = setting(
        "group",
        "Which standard deviation the advantages are divided by.",
        one_of=("group", "batch"),
        more='With "batch", that of all rewards of the rollout ("Lite PPO", arXiv:2508.08221; "ScaleRL", '
        "arXiv:2510.13786): then easy and hard prompts do not gain weight, but for a common factor.",
    )


class GRPOSettings(ProximalSettings, GroupRelativeSettings):
    """The settings of GRPO."""


class DrGRPOSettings(ProximalSettings):
    """The settings of Dr. GRPO."""

    max_steps: int | None = setting(None, "L_max, which the loss is divided by.", shown="what the environment allows")


class DAPOSettings(ProximalSettings):
    """The settings of DAPO."""

    clip_range_high = setting(0.28, "ε_high; above ε_low, unlikely actions become likely sooner.")
    max_rounds: int = setting(4, "Most collections per update; 1 for no resampling.")
    overlong_buffer: int = setting(
        0,
        "Last steps of the longest episode possible that cost up to 1 (eq. 13), 0 for none.",
        low=0,
        more="The paper takes a fifth. Off by default, since the correct answer of a short task may be as long as "
        "allowed.",
    )
    mask_truncated: bool = setting(
        False,
        'Leave episodes that were cut off out of the loss ("overlong filtering", section 3.4).',
        more="Their rewards still count in their group. Not for control, where the best episodes are cut off.",
    )
    max_steps: int | None = setting(
        None, "The longest episode possible, for `overlong_buffer`.", shown="what the environment allows"
    )


class GSPOSettings(GRPOSettings):
    """The settings of GSPO."""

    clip_range = setting(
        3e-4,
        "ε_low, the paper's: 1/T_i in the exponent keeps s_i near 1 in long episodes.",
        more="Short ones and learning rates far above 1e-6 need a wider range.",
    )
    clip_range_high = setting(4e-4, "ε_high.")


class CISPOSettings(PassesSettings, GroupRelativeSettings):
    """The settings of CISPO."""

    max_ratio: float = setting(
        5.0,
        "ρ_max, the paper's 1 + ε_high.",
        low=1,
        more="The paper gives no figure; 5 is that of Khatri et al. 2025 (arXiv:2510.13786).",
    )


class DPPOSettings(CISPOSettings):
    """The settings of DPPO."""

    max_ratio = setting(
        20.0, "ρ_max, the largest weight.", more="The default of verl's implementation; it should seldom be reached."
    )
    max_moved: float = setting(
        0.2,
        "δ: how far the probability of an action may move in an update.",
        above=0,
        more="The default of verl's implementation.",
    )


class SAPOSettings(PassesSettings, GroupRelativeSettings):
    """The settings of SAPO."""

    gate_temperature: float = setting(
        1.0, "τ_pos, of actions with a positive advantage; the larger, the narrower.", above=0
    )
    gate_temperature_negative: float = setting(1.05, "τ_neg, of the other actions; the paper's, as τ_pos is.", above=0)


class TOPRSettings(PassesSettings):
    """The settings of TOPR."""

    threshold: float = setting(
        0.5,
        "c, subtracted from the return: episodes below it are bad.",
        more="0.5 makes rewards of 1 and 0 half of the paper's 1 and -1. It decides what share of the data is good.",
    )


class CovarianceSettings(PassesSettings, GroupRelativeSettings):
    """The settings of agents that choose steps by a covariance."""

    share: float = setting(2e-4, "How many steps are chosen, of all of the rollout; at least one.", above=0, high=1)
    min_covariance: float = setting(0.0, "Steps are chosen above this (log π - mean)(A - mean).")
    max_covariance: float | None = setting(None, "Steps are chosen below this one.", more="None for no bound.")


class ClipCovSettings(CovarianceSettings):
    """The settings of Clip-Cov."""

    min_covariance = setting(1.0, "cov_low: steps are chosen above it.")
    max_covariance = setting(5.0, "cov_high: steps are chosen below it.")


class KLCovSettings(CovarianceSettings):
    """The settings of KL-Cov."""

    penalty: float = setting(1.0, "β, the weight of the KL of the chosen steps.", low=0)


class KLInLossSettings(AgentSettings):
    """Settings of an agent that takes no KL penalty in the reward.

    What it does to the rewards of a group (division by their mean, their best, the standard deviation of each part) it
    would do to the penalty, too. In the loss, k2 has the gradient of KL(π ‖ ref) state by state; for actions of another
    policy, in later passes and with `mismatch`, it needs `kl_ratio` (`estimators/kl.py`).
    """

    kl_in = setting(
        "loss", one_of=("loss",), more="In the reward, it would change what rewards are divided by or compared with."
    )
    kl_estimator = setting("k2", more="k1 has no gradient in the loss.")


class MaxRLSettings(KLInLossSettings, ProximalSettings):
    """The settings of MaxRL."""


class PKPOSettings(KLInLossSettings):
    """The settings of PKPO."""

    k: int | None = setting(
        None,
        "Of how many samples the best counts, at most the size of a group.",
        shown="4, or the size of a smaller group",
    )
    baseline: str = setting(
        "loo-1",
        "What is subtracted from the return.",
        one_of=("none", "loo", "loo-1"),
        commands=TRAIN,
        more="b_i is the mean best of k - 1 others (loo-1, which the paper recommends), of k others (loo), or nothing.",
    )


class GDPOSettings(KLInLossSettings, ProximalSettings):
    """The settings of GDPO."""

    part_weights: Mapping[str, float] | None = setting(
        None,
        "Parts of the verdict to train on, and the weight of each standardized part.",
        shown="the verifier's, if it is a weighted sum",
    )


class TaughtSettings(PassesSettings):
    """The settings of agents with a teacher."""

    teacher: Any = setting(
        None,
        "What is distilled: a run folder, a checkpoint, or the folder or id of a model, with the same tokens.",
        saved=False,
        commands=TRAIN,
        shown="none",
        more="Or a policy. Checkpoints keep its weights, not its name.",
    )
    teacher_temperature: float | None = setting(
        None,
        "Temperature at which the teacher is evaluated.",
        above=0,
        saved=False,
        commands=TRAIN,
        shown="the policy's",
    )


class DistillationSettings(TaughtSettings):
    """The settings of on-policy distillation."""

    estimator: str = setting(
        "sampled",
        "How the gradient of the KL is estimated.",
        one_of=("sampled", "centred", "exact"),
        more='"sampled": from the actions taken. "centred": A plus KL(π || π_T) at s_t, a baseline (arXiv:2605.07865): '
        'the same expectation, less variance. "exact": the KL over all actions is differentiated.',
    )
    reward_coef: float = setting(
        0.0,
        "Weight of the advantages of RLOO, which are added to the teacher's.",
        low=0,
        more="Needs groups of at least 2.",
    )
    max_ratio: float = setting(5.0, "ρ_max.", low=1)
