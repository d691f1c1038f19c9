"""The example that measures baselines on a real model: its scores are autograd's, its noise that of its groups."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from identity_checks import collect
from loaded import loaded
from tabular import TabularPolicy, random_episodes
from tiny_models import text_envs, tiny_policy

from agents.estimators.baselines import BASELINES


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


@pytest.mark.parametrize("baseline", ["leave-one-out", "length-weighted", "optimal-token"])
def test_the_noise_is_the_variance_of_the_estimates_of_the_groups(example, baseline, monkeypatch):
    monkeypatch.setattr(example, "PARTITIONS", 1)
    policy = TabularPolicy()
    rollout = random_episodes(policy, groups=2, size=8)
    rollout = replace(rollout, score_norms=policy.evaluate(rollout, ("score_norms",))["score_norms"])
    scores = torch.randn(3, *rollout.mask.shape, generator=torch.Generator().manual_seed(0)).double()
    found = example.noise(rollout, scores, baseline, size=4, seed=1)
    places = torch.rand(2, 8, generator=torch.Generator().manual_seed(1)).argsort(1)
    for prompt in range(2):
        estimates = []
        for group in range(2):
            rows = torch.arange(8)[places[prompt] // 4 == group] + 8 * prompt
            part = replace(rollout.select(rows), groups=torch.zeros(4, dtype=torch.int64))
            gains = part.returns[:, None].expand(part.mask.shape)
            advantages = (gains - BASELINES[baseline]()(gains, part)).where(part.mask, 0)
            estimates.append((scores[:, rows] * advantages).sum((1, 2)) / 4)
        wanted = 4 * torch.stack(estimates).var(0).mean()  # over the directions
        assert float(found[prompt]) == pytest.approx(float(wanted), rel=1e-12)
