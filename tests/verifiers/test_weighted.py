import asyncio
import math
import random
import sys

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Isolated, Problem, Verdict, Verifier, Weighted, make_verifier
from verifiers.base import checked

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

SUM = Problem("1+2=", "3")


class Says(Verifier):
    """Gives the number that the completion is; a word is a fault."""

    reward_range = (-1.0, 3.0)

    def verify(self, problem, completion):
        if completion in ("error", "timeout"):
            return Verdict(0.0, status=completion, reason="why not")
        return Verdict(float(completion), {"twice": 2 * float(completion)})


def silent(prompts, completions):
    return [None for _ in completions]


def one(prompts, completions):
    return [1.0 for _ in completions]


class Unbounded(Says):
    reward_range = (-math.inf, math.inf)


def says(weight, verifier=Says):
    return {"weight": weight, "verifier": verifier}


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=4), st.floats(-1, 3))
def test_the_reward_is_the_weighted_sum_and_stays_in_its_range(weights, value):
    weighted = Weighted({str(index): says(weight) for index, weight in enumerate(weights)})
    verdict = weighted.verify(SUM, repr(value))
    assert verdict.reward == pytest.approx(sum(weights) * value, abs=1e-9)
    low, high = weighted.reward_range
    assert low - 1e-9 <= verdict.reward <= high + 1e-9
    assert {name: verdict.parts[name] for name in weighted.parts} == dict.fromkeys(weighted.parts, value)


def test_a_negative_weight_punishes_and_is_not_asked_for_success():
    weighted = Weighted({"arith": 1, "one": says(-0.25, one)})
    assert weighted.verify(SUM, "3").reward == 0.75
    assert weighted.verify(SUM, "4").reward == -0.25
    assert weighted.is_success(weighted.verify(SUM, "3"))
    punished = Weighted({"arith": -1})
    assert not punished.is_success(punished.verify(SUM, "3")), "there is nothing to solve"


class Floor(Says):
    reward_range = (0.5, 2.0)

    def verify(self, problem, completion):
        return Verdict(0.0, status="not_applicable") if completion[:1] == "0" else super().verify(problem, completion)


@pytest.mark.parametrize(
    ("parts", "low", "high"),
    [
        ({"one": says(1, Floor)}, 0.5, 2.0),
        ({"one": says(1, Floor), "two": says(0.1, Floor)}, 0.05, 2.2),
        ({"one": says(-1, Floor), "arith": 1}, -2.0, 1.0),
        ({"arith": 1, "watched": says(0)}, 0.0, 1.0),
        ({"arith": 1, "watched": says(0, Unbounded)}, 0.0, 1.0),
    ],
)
def test_the_range_holds_without_the_parts_that_do_not_apply(parts, low, high):
    assert Weighted(parts).reward_range == pytest.approx((low, high))


def test_the_range_of_parts_that_apply_holds_and_a_weight_of_zero_only_logs():
    for more in ({"says": says(0)}, {"length": {"weight": 1, "maximum": 3}}):
        weighted = Weighted({"floor": says(1, Floor), **more})
        (verdict,) = checked(weighted, weighted.verify_batch([SUM], ["0000000000000000"]), 1)
        assert verdict.status == "ok"
    verdict = Weighted({"arith": 1, "watched": says(0)}).verify(SUM, "3")
    assert (verdict.reward, verdict.parts) == (1.0, {"arith": 1.0, "watched": 3.0, "watched/twice": 6.0})


def test_parts_may_be_weighted_themselves():
    weighted = Weighted({"inner": {"weight": 2, "verifier": "weighted", "parts": {"arith": 1, "length": 0.5}}})
    verdict = weighted.verify(SUM, "3")
    assert verdict.reward == 3.0
    assert verdict.parts == {
        "inner": 1.5, "inner/arith": 1.0, "inner/length": 1.0, "inner/length/length": 1.0,
    }  # fmt: skip
    assert weighted.is_success(verdict)
    assert not weighted.is_success(weighted.verify(SUM, "4"))
    assert weighted.sample(random.Random(0)) == Arith().sample(random.Random(0))


@pytest.mark.parametrize("status", ["error", "timeout"])
def test_the_failure_of_a_part_is_the_failure_of_the_whole(status):
    verdict = Weighted({"one": says(1, one), "says": says(0.1)}).verify(SUM, status)
    assert (verdict.status, verdict.reward, verdict.reason) == (status, 0.0, "says: why not")


def test_a_part_that_does_not_apply_adds_nothing():
    weighted = Weighted({"arith": 1, "silent": says(1, silent)})
    verdict = weighted.verify(SUM, "3")
    assert (verdict.status, verdict.reward, verdict.parts) == ("ok", 1.0, {"arith": 1.0})
    assert weighted.is_success(verdict)
    nothing = Weighted({"silent": says(1, silent)})
    assert nothing.verify(SUM, "3").status == "not_applicable"
    assert not nothing.is_success(nothing.verify(SUM, "3"))


def test_the_first_part_that_makes_problems_poses_them():
    weighted = Weighted({"length": 1, "arith": {"weight": 1, "digits": 3, "levels": 2}, "countdown": 1})
    arith = Arith(digits=3, levels=2)
    assert weighted.makes_problems and weighted.levels == 2
    assert weighted.sample_at(random.Random(1), 2) == arith.sample_at(random.Random(1), 2)
    problem = Problem("34+12=", "46")
    assert (weighted.demonstration(problem), weighted.split_key(problem)) == ("46", "12+34")
    assert set(weighted.alphabet) == set(arith.alphabet) | set(make_verifier("countdown").alphabet)
    assert not Weighted({"length": 1}).makes_problems


def test_parts_that_want_workers_get_them_and_give_them_back():
    class Apart(Says):
        isolated = True

    weighted = Weighted({"arith": 1, "apart": says(1, Apart)})
    assert [name for name, judge in weighted.judges.items() if isinstance(judge, Isolated)] == ["apart"]
    assert weighted.verify(SUM, "3").reward == 4.0
    weighted.close()
    with pytest.raises(RuntimeError, match="the verifier was closed"):
        weighted.verify(SUM, "3")


def test_a_sum_beyond_a_float_is_a_failed_verdict():
    weighted = Weighted({"huge": says(10, Unbounded), "one": says(1, one)})
    assert weighted.verify(SUM, "1e37").reward == 1e38
    for text in ("1e38", "-1e38"):
        verdict = weighted.verify(SUM, text)
        assert (verdict.reward, verdict.status) == (0.0, "error")
        assert "the weighted sum is beyond float32" in verdict.reason
        assert not weighted.is_success(verdict)
    both = Weighted({"up": says(10, Unbounded), "down": says(-10, Unbounded)})
    assert both.verify(SUM, "1e38").reward == 0.0


def test_async_reward_functions_run_side_by_side_and_an_error_is_that_of_the_function():
    meeting = {}

    async def meet(own, other, completions):
        here = meeting.setdefault(own, asyncio.Event())
        here.set()
        await asyncio.wait_for(meeting.setdefault(other, asyncio.Event()).wait(), 60)  # in turn, the first never ends
        return [float(len(text)) for text in completions]

    async def first(completions, **columns):
        return await meet("first", "second", completions)

    async def second(completions, **columns):
        return await meet("second", "first", completions)

    async def fails(completions, **columns):
        raise ConnectionError("no judge")

    functions = {"first": says(1, first), "third": says(1, one), "second": says(1, second)}
    verdicts = Weighted(functions).verify_batch([SUM] * 2, ["xx", "yyy"])
    assert [verdict.reward for verdict in verdicts] == [5.0, 7.0]
    assert list(verdicts[0].parts) == ["first", "third", "second"]
    with pytest.raises(ConnectionError, match="no judge"):
        Weighted({"works": says(1, one), "fails": says(1, fails)}).verify_batch([SUM], ["x"])
