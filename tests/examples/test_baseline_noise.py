"""The example that measures baselines on a real model: its scores are autograd's, its noise that of its groups."""

from pathlib import Path

import pytest
import torch
from identity_checks import collect
from loaded import loaded
from tiny_models import text_envs, tiny_policy


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "examples" / "real_model")
        yield loaded("examples/real_model/baseline_noise.py")


def test_the_scores_along_a_direction_are_those_of_the_gradient(example):
    envs = text_envs(4)
    policy = tiny_policy("llama", envs)
    rollout = collect(policy, envs, 3)
    weights = list(policy.parameters())
    before = [weight.clone() for weight in weights]
    found = example.scores_along(policy, rollout, seed=5, step=1e-5)
    assert all(map(torch.equal, before, weights))
    generator = torch.Generator().manual_seed(5)
    directions = [torch.randn(weight.shape, generator=generator) for weight in weights]
    log_probs = policy.evaluate(rollout)["log_probs"]
    for row, t in rollout.mask.nonzero().tolist():
        slopes = torch.autograd.grad(log_probs[row, t], weights, retain_graph=True)
        wanted = sum(float((slope * v).sum()) for slope, v in zip(slopes, directions, strict=True))
        assert float(found[row, t]) == pytest.approx(wanted, rel=1e-5, abs=1e-5)
