"""Several passes over a rollout, each step kept near the policy before them, shared by the agents with a ratio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from typing_extensions import override

from rlenv._checks import check_number
from rlenv._setting import ANY
from rlenv._settings import OrDefault, setting

from ..checks import Scheduled
from ..estimators import clipping
from ..rollout import Batch
from .agent import Agent


class PassesAgent(Agent):
    """An agent that takes several optimizer steps on a rollout.

    A pass visits every episode once, in `num_minibatches` random parts of whole episodes; PPO's may be parts of steps.
    Weights are multiplied by the number of parts, so that each part's gradient estimates that of the whole rollout.
    With one pass and one part the ratio is 1, and the gradient is the policy gradient. `train/clip_fraction` is the
    share of steps with an advantage whose ratio is clipped, as the agent means it, or that `off_policy_mask` leaves
    out; of all steps.
    """

    num_epochs: OrDefault[int] = setting(default=None, help="Passes over a rollout.", by_kind={ANY: 1})
    num_minibatches: OrDefault[int] = setting(
        default=None, help="Optimizer steps per pass, at most the number of episodes (or steps).", by_kind={ANY: 1}
    )
    target_kl: float | None = setting(
        default=None,
        help="End the passes of an update where the KL from the policy before it is above this, in nats per step.",
        above=0,
        more="A gradient with `train/approx_kl` above it, of all processes together, is not applied, but for the first "
        "one of an update. None for no limit.",
    )
    off_policy_mask: float | None = setting(
        default=None,
        help="Leave bad episodes out of the loss whose log-probability per step has fallen by more than this.",
        above=0,
        more="Steps with a negative advantage, of an episode with a mean of log π_old - log π above δ (DeepSeek-V3.2, "
        "arXiv:2512.02556); π_old is the policy that acted. None for no mask.",
    )

    @override
    def batches(self, batch: Batch) -> Iterator[Batch]:
        parts = min(self.num_minibatches, len(batch))
        for _ in range(self.num_epochs):
            if parts == 1:
                yield batch
                continue
            order = torch.randperm(len(batch), generator=self.shuffle_generator, device=batch.mask.device)
            for rows in order.tensor_split(parts):
                part = batch.select(rows)
                replies = {name: part.extras[name] * parts for name in ("reply_weights",) if name in part.extras}
                yield replace(part, weights=part.weights * parts).with_extras(**replies)


class ProximalAgent(PassesAgent):
    """An agent that takes several optimizer steps on a rollout, with the clipped ratio as surrogate.

    A clipped step has no gradient.
    """

    advantages_stay = True

    clip_range: Scheduled = setting(
        default=0.2,
        help="ε: the ratio may fall to 1 - clip_range.",
        above=0,
        below=1,
        more="A number, or a function of the remaining progress (1 to 0); so may be clip_range_high.",
    )
    clip_range_high: Scheduled | None = setting(
        default=None, help="The ratio may rise to 1 + clip_range_high.", above=0, below=1, shown="clip_range"
    )
    max_ratio: float | None = setting(
        default=None,
        help="δ, above 1 + clip_range_high: the ratio of an action with a negative advantage counts as δ at most.",
        above=1,
        more='It has no gradient beyond ("dual clip", Ye et al. 2020, arXiv:1912.09729, who take 3; "two-sided '
        'clipping", INTELLECT-2, arXiv:2505.07291, who take 4). None for no bound.',
    )

    @override
    def _check_together(self) -> None:
        super()._check_together()
        _, high, most = self.bounds
        if most is not None and most <= 1 + high:
            raise ValueError(
                f"max_ratio={most:g} has to be above 1 + clip_range_high = {1 + high:g} (clip_range, if that is None); "
                "raise it, or lower these; None for no bound"
            )

    def present(self, name: str) -> Any:
        """Return the present value of a setting that may be a function of the remaining progress (1 to 0)."""
        value = getattr(self, name)
        if callable(value):
            return check_number(name, value(self.remaining), low=0.0, above=True)
        return value

    @property
    def bounds(self) -> tuple[float, float, float | None]:
        """The present ε of both sides, and δ."""
        low = self.present("clip_range")
        return low, self.present("clip_range_high") or low, self.max_ratio

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.clipped(log_probs, batch.log_probs, batch)

    def clipped(self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the clipped surrogate of the ratio of two policies' log-probabilities [N, T]."""
        compared = log_probs, old_log_probs, batch.advantages, *self.bounds
        batch.note_clipped(clipping.is_clipped(*compared))
        return clipping.clipped_ratio(*compared)
