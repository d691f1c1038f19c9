"""What a run says when its figures show that it will hardly learn."""

from __future__ import annotations

HARD = 0.02  # of greedy answers right: in most groups of a few rollouts, all get the same reward


def on_a_hard_start(success_rate: float | None, group_size: int) -> str:
    """Return what to try if hardly any answer is right before reinforcement learning; empty if enough are.

    Args:
        success_rate: of the evaluation before training; None if the environment does not say.
        group_size: episodes that share a prompt.
    """
    if success_rate is None or success_rate >= HARD:
        return ""
    return (
        f"only {success_rate:.1%} of the answers are right before training, and wrong answers alone teach nothing. Try "
        "a longer warm start (--sft-steps, --sft-examples), easier problems first (--verifier-arg, --curriculum 0.8), "
        f"or more tries per prompt (--group-size {4 * group_size}); docs/recipes.md says what helped elsewhere"
    )
