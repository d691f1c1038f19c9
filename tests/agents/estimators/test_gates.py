"""Which steps are the largest: Clip-Cov and KL-Cov choose by it; the gates stand in tests/laws/test_gradient.py."""

from __future__ import annotations

import torch

from agents.estimators.gates import largest


def test_the_largest_values_and_those_equal_to_the_least_of_them() -> None:
    values, mask = torch.tensor([[3.0, 9.0, 1.0], [2.0, 2.0, torch.nan]]), torch.ones(2, 3, dtype=torch.bool)
    mask[0, 1] = mask[1, 2] = False
    assert largest(values, mask, 1).tolist() == [[True, False, False], [False, False, False]]
    assert largest(values, mask, 2).tolist() == [[True, False, False], [True, True, False]]
    assert torch.equal(largest(values, mask, 99), mask)
    assert not largest(values, torch.zeros_like(mask), 3).any()
