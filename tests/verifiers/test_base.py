import math

import pytest

from rlenv.verifiers import Verdict, Verifier
from rlenv.verifiers.base import checked, is_success


def test_success_needs_the_reward_and_a_verdict_that_was_reached():
    verdicts = Verdict(1.0), Verdict(0.99), Verdict(1.0, status="timeout")
    assert [is_success(Verifier(), verdict) for verdict in verdicts] == [True, False, False]
    said = Verdict(1.0, success=False), Verdict(0.0, success=True), Verdict(0.0, status="error", success=True)
    assert [is_success(Verifier(), verdict) for verdict in said] == [False, True, False]


class Between(Verifier):
    def __init__(self, low, high):
        self.reward_range = (low, high)


@pytest.mark.parametrize(
    ("low", "high", "reward", "inside"),
    [
        (0.0, 1.0, 1.0 + 1e-7, True),  # rounding
        (0.0, 1.0, 1.00001, False),
        (-1.0, 2.5, -1.0, True),
        (0.0, math.inf, -1e-3, False),
        (-math.inf, math.inf, -3e38, True),
    ],
)
def test_a_reward_outside_the_declared_range_is_an_error(low, high, reward, inside):
    given = Verdict(reward, {"part": 1.0})
    (verdict,) = checked(Between(low, high), [given], 1)
    if inside:
        assert verdict is given
    else:
        name = f"reward_range ({low}, {high}) of Between"
        reason = f"the reward {reward} is outside {name}; declare another reward_range"
        assert verdict == Verdict(0.0, status="error", reason=reason)


def test_a_verdict_that_was_not_reached_has_no_reward_to_check():
    for status in ("timeout", "error", "not_applicable"):
        given = Verdict(0.0, status=status, reason="why not")
        assert checked(Between(1.0, 2.0), [given], 1) == [given]
