"""Demonstrations: the verifier's right answers as tokens, for a supervised warm start."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .task import TextGenTask


@dataclass(frozen=True)
class Demonstrations:
    """Episodes in the shape of the batched environment.

    Attributes:
        observations: `tokens` [N, L] and `length` [N] at reset: the prompts.
        actions: the tokens of the answers, with their end token [N, T].
        mask: which of them are real, bool [N, T].
    """

    observations: dict[str, torch.Tensor]
    actions: torch.Tensor
    mask: torch.Tensor


def demonstrate(task: TextGenTask, start: int, count: int, device: str | torch.device = "cpu") -> Demonstrations:
    """Return the demonstrations of the problems `start` to `start + count` of the task's stream.

    Raises:
        ValueError: if the verifier has no demonstration, or one is longer than a completion may be.
    """
    problems = [task.stream[index] for index in range(start, start + count)]
    prompts = task.encode([problem.prompt for problem in problems])
    answers = [task.demonstration(problem) for problem in problems]
    lengths = torch.tensor([len(answer) for answer in answers])
    return Demonstrations(
        observations={
            "tokens": _padded(prompts, task.max_length, task.pad_token_id).to(device),
            "length": torch.tensor([len(prompt) for prompt in prompts], device=device),
        },
        actions=_padded(answers, int(lengths.max()), task.pad_token_id).to(device),
        mask=(torch.arange(int(lengths.max())) < lengths[:, None]).to(device),
    )


def _padded(rows: list[list[int]], width: int, pad: int) -> torch.Tensor:
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])
