"""KL estimators: by hand, as expectations, and as the anchor uses them."""

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from tabular import make_agent, random_episodes

from agents.estimators.kl import ESTIMATORS, k1, k2, k3
from agents.training.kl_anchor import Anchor

few = drawn(40)
logits = st.lists(st.floats(-4, 4), min_size=4, max_size=4)


@few
@given(logits, logits)
def test_k1_and_k3_are_unbiased_and_k2_and_k3_never_negative(ours, theirs):
    log_pi, log_ref = (torch.tensor(x, dtype=torch.float64).log_softmax(0) for x in (ours, theirs))
    true = float((log_pi.exp() * (log_pi - log_ref)).sum())
    for estimator in (k1, k3):
        assert float((log_pi.exp() * estimator(log_pi, log_ref)).sum()) == pytest.approx(true, abs=1e-12)
    assert k2(log_pi, log_ref).min() >= 0
    assert k3(log_pi, log_ref).min() >= -1e-15


def test_k3_keeps_its_digits_near_the_reference():
    log_probs, ref = torch.tensor([-1.0]), torch.tensor([-1.0 + 2**-10])
    assert float(k3(log_probs, ref)) == pytest.approx(2**-21, rel=1e-3)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, "exact"])
@pytest.mark.parametrize("place", ["reward", "loss"])
def test_at_the_reference_the_anchor_charges_nothing(estimator, place):
    agent = make_agent()
    agent.anchor = Anchor(0.5, estimator, place)
    agent.anchor.freeze_reference(agent.policy)
    rollout = random_episodes(agent.policy)
    prepared = agent.prepare(rollout)
    torch.testing.assert_close(prepared.rewards, rollout.rewards, rtol=0, atol=1e-15)
    assert agent.anchor.penalty(agent.policy, prepared, rollout.log_probs).abs().max() < 1e-15
