import json
import math
from decimal import Decimal

import pytest
import torch

from rlenv.verifiers import Problem, Verdict, Verifier
from rlenv.verifiers.base import checked, describe, is_success


def test_a_verdict_keeps_numbers_of_other_libraries_as_floats():
    rewards = [Verdict(number).reward for number in (Decimal("0.5"), torch.tensor(0.5), True)]
    assert rewards == [0.5, 0.5, 1.0] and set(map(type, rewards)) == {float}


def test_an_error_is_described_with_the_line_of_the_author_and_not_with_that_of_a_library():
    for fault in (lambda: json.loads(""), lambda: Verdict(1.0, "late"), lambda: Verdict(1.0, late=True)):
        with pytest.raises((ValueError, TypeError)) as raised:
            fault()
        assert describe(raised.value).endswith(f"(test_base.py:{fault.__code__.co_firstlineno})")


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


@pytest.mark.parametrize(("judged", "ends"), [(iter([Verdict(0.5)]), None), ([], "got 0"), ([None], "got 1")])
def test_one_completion_is_judged_by_a_batch_as_many_are(judged, ends):
    batched = type("Batched", (Verifier,), {"verify_batch": lambda self, problems, completions: judged})()
    if ends is None:
        assert batched.verify(Problem("?"), "").reward == 0.5
    else:
        with pytest.raises(ValueError, match=f"^Batched: .* {ends}"):
            batched.verify(Problem("?"), "")


def test_a_verdict_that_was_not_reached_has_no_reward_to_check():
    for status in ("timeout", "error", "not_applicable"):
        given = Verdict(0.0, status=status, reason="why not")
        assert checked(Between(1.0, 2.0), [given], 1) == [given]
