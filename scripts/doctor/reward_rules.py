"""Rules about the reward: is there one, does it tell episodes apart, does it rise."""

from __future__ import annotations

from .findings import Finding
from .history import History

ALL = 0.95  # of the episodes or groups: the few others cannot carry the learning


def every_episode_truncated(run: History) -> Finding | None:
    """Text that is always cut at max_new_tokens: the verdict is on a cut answer. Control may run to its time limit."""
    cut = run["rollout/truncated_frac"]
    if "verifier" not in run.config or not cut or cut.end < ALL:
        return None
    return Finding(
        "every-episode-truncated",
        "warning",
        "every episode is cut off at max_new_tokens",
        f"rollout/truncated_frac is {cut.end:.0%} at update {cut.updates[-1]}",
        "raise --max-new-tokens, or warm-start longer (--sft-steps) so that the model learns to end its answer",
        cut.updates[-1],
    )
