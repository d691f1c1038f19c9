"""A reward model trained on preferences: which of two completions of a prompt is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from ..core.checks import check_count, check_number, first_line
from ..estimators.losses import bradley_terry
from ..policies.language.models.adapters import has_adapter
from ..policies.language.models.loading import PRESETS, load_model

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


def make_reward_model(spec: str | Path, vocab_size: int, max_length: int, pad: int, seed: int = 0) -> Any:
    """Return a model with one output per text: a new one, or the trunk of a language model under a new head.

    Args:
        spec: a preset, or a folder or id.
        vocab_size: V, of the tokenizer.
        max_length: the longest text, for a preset.
        pad: the token that fills rows.
        seed: of the new weights.

    Raises:
        ValueError: if there is no such model, it cannot rate texts, or its files lack weights of the trunk.
    """
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    if has_adapter(spec):
        raise ValueError(
            f"{str(spec)!r} holds an adapter; merge it before: rlenv export RUN FOLDER, then --model FOLDER"
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if str(spec) in PRESETS:
            config = load_model(spec, vocab_size, max_length, None).config
            config.num_labels, config.pad_token_id = 1, pad
            return AutoModelForSequenceClassification.from_config(config).eval()
        options: dict[str, Any] = {"num_labels": 1, "output_loading_info": True, "trust_remote_code": False}
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()  # it would report the new head as missing
        try:
            load = AutoModelForSequenceClassification.from_pretrained
            model, report = load(str(spec), dtype=torch.float32, **options)
        except (OSError, ValueError) as error:
            raise ValueError(f"model {str(spec)!r} cannot be made a reward model: {first_line(error)}") from error
        finally:
            logging.set_verbosity(verbosity)
    if lacking := sorted(name for name in report["missing_keys"] if name.startswith(f"{model.base_model_prefix}.")):
        raise ValueError(f"the weights of model {str(spec)!r} are incomplete: {', '.join(lacking[:3])}")
    if model.config.vocab_size < vocab_size:
        sizes = f"{vocab_size}) does not fit the model's ({model.config.vocab_size}"
        raise ValueError(f"the tokenizer's vocabulary ({sizes})")
    model.config.pad_token_id = pad
    return model.eval()


def rewards_of(model: Any, texts: Tokens, pad: int) -> torch.Tensor:
    """Return the model's output for each text [N], differentiable."""
    width = max(map(len, texts))
    tokens = torch.tensor([row + [pad] * (width - len(row)) for row in texts], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in texts], device=model.device)
    return model(input_ids=tokens, attention_mask=mask).logits[:, 0].float()


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
    """Fit a reward model to preferences, in place; dropout stays off.

        L = mean( -log σ(r_c - r_r) + c (r_c + r_r)² )

    The first term (Bradley & Terry 1952; Ouyang et al. 2022) leaves the level of rewards open; the second one
    (Eisenstein et al. 2023, arXiv:2312.09244) keeps it near 0.

    Args:
        model: one output per text.
        pairs: to learn from.
        steps: optimizer steps.
        batch_size: pairs per step; a pass over all pairs ends before the next one begins, each in a new order.
        learning_rate: of AdamW without weight decay; it rises over the first tenth and falls linearly to 0.
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = _schedule(optimizer, check_count("steps", steps, low=0))
    losses: list[float] = []
    for step, rows in enumerate(islice(_batches(len(pairs), batch_size, generator), steps)):
        chosen, rejected = _both(model, pairs.select(rows))
        loss = (bradley_terry(chosen, rejected) + center_coef * (chosen + rejected).square()).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if on_step is not None and not on_step(step, losses[-1]):
            break
    return losses


def _schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a learning rate that rises over the first tenth of the steps and falls linearly to 0."""
    warm = max(math.ceil(steps / 10), 1)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)
    )


def _batches(number: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield indices of batches without end; a pass over all ends before the next one begins, in a new order."""
    while True:
        yield from torch.randperm(number, generator=generator).split(size)


def _both(model: Any, pairs: Preferences) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rewards of the chosen and of the rejected texts [N], [N], in one pass."""
    both = rewards_of(model, pairs.chosen + pairs.rejected, pairs.pad)
    return both[: len(pairs)], both[len(pairs) :]
