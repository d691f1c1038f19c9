"""The replies in dialogues: the loss on their tokens (`reply_coef`), and whether they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from ..devices import to_host
from ..policies.choosing import Evaluated
from ..rollout import Batch, Rollout, RolloutT


def with_replies(rollout: RolloutT) -> tuple[RolloutT, torch.Tensor]:
    """Return text in which every token after the prompt is a step, and which of these each action is, [N, T].

    Of the attributes of a step, only `actions` and `mask` fit these steps.
    """
    assert isinstance(rollout.observations, dict)
    tokens, first = rollout.observations["tokens"], rollout.observations["length"][:, None]
    place = (rollout.columns - first).where(rollout.mask, 0)
    count = (place + 1).where(rollout.mask, 0).amax(1, keepdim=True)  # of the tokens after each prompt [N, 1]
    step = torch.arange(max(int(count.max()), 1), device=tokens.device)
    said = tokens.gather(1, (first + step).clamp(max=tokens.shape[1] - 1))
    rows, steps = rollout.mask.nonzero(as_tuple=True)
    said[rows, place[rows, steps]] = rollout.actions[rows, steps]  # those of the last turn are not in the tokens
    return replace(rollout, actions=said, mask=step < count, positions=None), place


def reply_weights(rollout: Rollout) -> torch.Tensor:
    """Return 1/M for the episodes with a verdict [N], with M the tokens of their replies."""
    whole, _ = with_replies(rollout)
    replies = (whole.lengths - rollout.lengths).where(rollout.ok, 0).sum()
    return rollout.ok / replies.clamp(min=1).to(rollout.log_probs.dtype)


def with_reply_loss(agent: Any, batch: Batch, want: tuple[str, ...]) -> tuple[Evaluated, torch.Tensor]:
    """Return the evaluated quantities of each step [N, T], and the mean of -log π over the tokens of replies."""
    whole, place = with_replies(batch)
    evaluated = agent.policy.evaluate(whole, want, agent.anchor.reference)
    replies = whole.mask & ~torch.zeros_like(whole.mask).scatter(1, place, True)
    weights = batch.extras["reply_weights"][:, None]
    surprise = -(weights * evaluated["log_probs"]).where(replies, 0).sum()
    return {name: values.gather(1, place).where(batch.mask, 0) for name, values in evaluated.items()}, surprise


def most_frequent_reply(rollout: Rollout) -> float:
    """Return the share of the reply that comes most often among the replies of all dialogues."""
    assert isinstance(rollout.observations, dict)
    tokens, columns, mask = to_host(rollout.observations["tokens"], rollout.columns, rollout.mask)
    gaps = (columns[:, 1:] > columns[:, :-1] + 1) & mask[:, 1:]
    rows = gaps.nonzero()[:, 0].tolist()
    bounds = zip(rows, (columns[:, :-1][gaps] + 1).tolist(), columns[:, 1:][gaps].tolist(), strict=True)
    counts = Counter(tuple(tokens[row, begin:end].tolist()) for row, begin, end in bounds)
    return max(counts.values(), default=0) / max(sum(counts.values()), 1)
