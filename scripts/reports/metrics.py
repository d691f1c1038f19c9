"""Which metrics a report shows, in this order, and how to read each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """The content of a chart.

    Attributes:
        column: of progress.csv.
        title: of the chart.
        note: what it is and how to read it, in one sentence.
        held_out: column of the evaluations, drawn as dots.
        spread: column with the standard deviation over an update's episodes.
        sign: -1 for columns that are kept negative.
        of_groups: whether it says nothing about groups of one episode.
    """

    column: str
    title: str
    note: str
    held_out: str = ""
    spread: str = ""
    sign: int = 1
    of_groups: bool = False


METRICS = (
    Metric("rollout/success_rate", "Success", "Share of the sampled episodes that were right. Dots: held-out problems, "
           "greedy.", held_out="eval/success_rate"),
    Metric("rollout/ep_rew_mean", "Reward", "Mean over the episodes of an update. Dots: evaluations.",
           held_out="eval/mean_reward", spread="rollout/reward_std"),
    Metric("rollout/ep_len_mean", "Length", "Steps per episode; for text, tokens. Dots: evaluations.",
           held_out="eval/mean_ep_length"),
    Metric("train/entropy_loss", "Entropy", "Nats per step. It falls as the policy becomes certain; at 0 it explores "
           "nothing.", sign=-1),
    Metric("train/kl_ref", "KL to the reference", "Nats per step: how far the policy has moved."),
    Metric("train/kl_teacher", "KL to the teacher", "Nats per step: what distillation brings down."),
    Metric("train/taught_frac", "Taught", "Share of steps in episodes for which the teacher has a hint."),
    Metric("train/reply_loss", "Loss on replies", "Nats per token of the environment's replies."),
    Metric("rollout/frac_reward_zero_std", "Groups without a signal", "Share of groups whose rewards are all equal.",
           of_groups=True),
    Metric("rollout/truncated_frac", "Cut off", "Share of episodes that ran out of steps."),
    Metric("rollout/failed_frac", "Without a verdict", "Share of episodes on which the verifier failed."),
)  # fmt: skip
