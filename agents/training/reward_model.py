"""A reward model trained on preferences: which of two completions of a prompt is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from rlenv._checks import check_count, check_number

from ..language.adapters import adapted_layers
from ..language.sizes import rates_of
from .optimizer import PolicyOptimizer

Tokens = list[list[int]]


@dataclass(frozen=True)
class Preferences:
    """Pairs of texts as tokens, prompts included.

    Args:
        chosen: the preferred texts [N].
        rejected: the others [N].
        pad: the token that fills rows; no text contains it at its end.
    """

    chosen: Tokens
    rejected: Tokens
    pad: int

    def __len__(self) -> int:
        return len(self.chosen)

    def select(self, rows: torch.Tensor) -> Preferences:
        """Return some of the pairs."""
        index = rows.tolist()
        return Preferences([self.chosen[i] for i in index], [self.rejected[i] for i in index], self.pad)


def default_rate(model: Any) -> float:
    """Return the learning rate of supervised training for a model of its size; see `sizes.RATES`."""
    return rates_of(model.num_parameters(), bool(adapted_layers(model)))[1]


def rewards_of(model: Any, texts: Tokens, pad: int) -> torch.Tensor:
    """Return the model's output for each text [N], differentiable."""
    width = max(map(len, texts))
    tokens = torch.tensor([row + [pad] * (width - len(row)) for row in texts], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in texts], device=model.device)
    return model(input_ids=tokens, attention_mask=mask).logits[:, 0].float()


def bradley_terry(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of preferences [N], given the rewards of both completions.

        -log σ(r_chosen - r_rejected)

    (Bradley & Terry 1952; as the loss of a reward model, Ouyang et al. 2022, eq. 1.) It does not change if a constant
    is added to both rewards.

    Args:
        chosen: rewards of the preferred completions, differentiable [N].
        rejected: of the others, differentiable [N].
    """
    return -torch.nn.functional.logsigmoid(chosen - rejected)


@torch.no_grad()
def preference_figures(model: Any, pairs: Preferences, batch_size: int = 64) -> dict[str, float]:
    """Return how well a model predicts preferences: `loss`, `accuracy`, and the means of its rewards.

    A pair counts as predicted if the chosen text has the higher reward, and as half if both have the same.
    """
    rows = torch.arange(len(pairs)).split(batch_size)
    parts = [_both(model, pairs.select(some)) for some in rows]
    chosen, rejected = (torch.cat([part[side] for part in parts]) for side in (0, 1))  # [N]
    return {
        "loss": bradley_terry(chosen, rejected).mean().item(),
        "accuracy": ((chosen > rejected).double() + 0.5 * (chosen == rejected)).mean().item(),
        "mean_chosen": chosen.mean().item(),
        "mean_rejected": rejected.mean().item(),
    }


def train_reward_model(
    model: Any,
    pairs: Preferences,
    steps: int,
    batch_size: int,
    learning_rate: float,
    generator: torch.Generator,
    center_coef: float = 0.01,
    max_grad_norm: float = 1.0,
    on_step: Callable[[int, float], bool] | None = None,
) -> list[float]:
    """Fit a reward model, or its adapter and head, to preferences, in place; dropout stays off.

        L = mean( -log σ(r_c - r_r) + c (r_c + r_r)² )

    The first term (Bradley & Terry 1952; Ouyang et al. 2022) leaves the level of rewards open; the second one
    (Eisenstein et al. 2023, arXiv:2312.09244) keeps it near 0.

    Args:
        model: one output per text.
        pairs: to learn from.
        steps: optimizer steps.
        batch_size: pairs per step; a pass over all pairs ends before the next one begins, each in a new order.
        learning_rate: of Adam; it rises over the first tenth and falls linearly to 0.
        generator: of the order.
        center_coef: c, at least 0.
        max_grad_norm: gradients are clipped to this norm.
        on_step: called after every step with its number and loss; returning False ends the training.

    Returns:
        The loss of every step.

    Raises:
        ValueError: for hyper-parameters out of range.
    """
    check_count("batch_size", batch_size)
    check_number("learning_rate", learning_rate, low=0.0, above=True)
    check_number("center_coef", center_coef, low=0.0)
    warm = max(math.ceil(check_count("steps", steps, low=0) / 10), 1)
    optimizer = PolicyOptimizer(model)
    losses: list[float] = []
    for step, rows in enumerate(islice(_batches(len(pairs), batch_size, generator), steps)):
        chosen, rejected = _both(model, pairs.select(rows))
        loss = (bradley_terry(chosen, rejected) + center_coef * (chosen + rejected).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        falling = learning_rate * min((1.0 - step / steps) * steps / max(steps - warm, 1), 1.0)
        optimizer.step(falling * min((step + 1) / warm, 1.0), max_grad_norm)
        losses.append(loss.item())
        if on_step is not None and not on_step(step, losses[-1]):
            break
    return losses


def _batches(number: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield indices of batches without end; a pass over all ends before the next one begins, in a new order."""
    while True:
        yield from torch.randperm(number, generator=generator).split(size)


def _both(model: Any, pairs: Preferences) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rewards of the chosen and of the rejected texts [N], [N], in one pass."""
    both = rewards_of(model, pairs.chosen + pairs.rejected, pairs.pad)
    return both[: len(pairs)], both[len(pairs) :]
