"""Adam in one pass over the weights: the same steps, seen by whatever depends on the weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from agents.training.optimizer import Adam

SETTINGS = {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-5}


def weights_of(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((7, 5), (5,), (3, 2, 4))]


def step(optimizer: torch.optim.Optimizer, seed: int) -> None:
    for weight, gradient in zip(optimizer.param_groups[0]["params"], weights_of(seed), strict=True):
        weight.grad = gradient.detach()
    optimizer.step()


def test_one_pass_takes_the_steps_of_torchs_plain_adam() -> None:
    mine, plain = weights_of(), weights_of()
    fast, slow = Adam(mine, **SETTINGS), torch.optim.Adam(plain, **SETTINGS)
    for seed in range(5):
        step(fast, seed)
        step(slow, seed)
    assert fast.param_groups[0]["fused"] is True
    for ours, theirs in zip(mine, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("saved_by_one_pass", [True, False])
def test_the_state_of_either_kernel_goes_on_in_one_pass(saved_by_one_pass: bool) -> None:
    mine, theirs = weights_of(), weights_of()
    first = Adam(mine, **SETTINGS) if saved_by_one_pass else torch.optim.Adam(mine, **SETTINGS)
    step(first, 1)
    again = Adam(theirs, **SETTINGS)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    for ours, other in zip(theirs, mine, strict=True):
        ours.data.copy_(other.data)
    step(first, 2)
    step(again, 2)
    assert again.param_groups[0]["fused"] is True
    for ours, other in zip(theirs, mine, strict=True):
        torch.testing.assert_close(
            ours, other, rtol=1e-5 * (not saved_by_one_pass), atol=1e-6 * (not saved_by_one_pass)
        )
