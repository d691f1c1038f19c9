"""Importance weights of ratios that no float holds; tests/laws/test_gradient.py has the modes."""

from __future__ import annotations

import pytest
import torch

from agents.estimators.mismatch import MODES, importance_weights


@pytest.mark.parametrize("mode", MODES)
def test_ratios_beyond_all_numbers_are_bounded(mode: str) -> None:
    log_pi, log_mu = torch.tensor([[0.0, 0.0], [-900.0, -900.0]]), torch.tensor([[-900.0, -900.0], [0.0, 0.0]])
    found = importance_weights(log_pi, log_mu, torch.ones(2, 2, dtype=torch.bool), mode, 0.0, 3.0)
    assert found[0].tolist() == ([3, 3] if mode.endswith("truncate") else [0, 0])
    assert found[1].tolist() == [0, 0]
