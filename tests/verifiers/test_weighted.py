import asyncio
import math
import random
import sys

import cloudpickle
import pytest

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Arith, Execution, Isolated, Problem, Verdict, Verifier, Weighted, make_verifier
from rlenv.verifiers.base import is_success

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

SUM = Problem("1+2=", "3")
BEYOND = "the weighted sum is beyond float32"


class Says(Verifier):
    """Gives the number that the completion is; a word is a fault."""

    reward_range = (-1.0, 3.0)

    def verify(self, problem, completion):
        if completion in ("error", "timeout"):
            return Verdict(0.0, status=completion, reason="why not")
        number = float(completion)
        return Verdict(number, {"twice": 2 * number}, reason="" if number else "nothing")


def silent(prompts, completions):
    return [None for _ in completions]


def one(prompts, completions):
    return [1.0 for _ in completions]


class Unbounded(Says):
    reward_range = (-math.inf, math.inf)


def says(weight, verifier=Says):
    return {"weight": weight, "verifier": verifier}


def test_the_reasons_of_parts_are_said_together():
    parts = {"one": says(1), "other": says(1, one), "third": says(1)}
    assert Weighted(parts).verify(SUM, "0").reason == "nothing; nothing"


INNER = {"inner": {"weight": 2, "verifier": "weighted", "parts": {"arith": 1, "length": 0.5}}}
SUMS = [  # parts, a completion, the reward and whether it is a success, named parts of the verdict
    ({"arith": 1, "one": says(-0.25, one)}, "3", 0.75, True, {"arith": 1.0, "one": 1.0}),
    ({"arith": 1, "one": says(-0.25, one)}, "4", -0.25, False, {"arith": 0.0, "one": 1.0}),
    ({"arith": -1}, "3", -1.0, False, {"arith": 1.0}),  # there is nothing to solve
    ({"arith": 1, "watched": says(0)}, "3", 1.0, True, {"arith": 1.0, "watched": 3.0, "watched/twice": 6.0}),
    (INNER, "3", 3.0, True, {"inner": 1.5, "inner/arith": 1.0, "inner/length": 1.0, "inner/length/length": 1.0}),
    (INNER, "4", 1.0, False, {"inner": 0.5, "inner/arith": 0.0, "inner/length": 1.0, "inner/length/length": 1.0}),
    ({"arith": 1, "silent": says(1, silent)}, "3", 1.0, True, {"arith": 1.0}),
    ({"up": says(10, Unbounded), "one": says(1, one)}, "1e37", 1e38, True, None),
    ({"up": says(10, Unbounded), "down": says(-10, Unbounded)}, "1e38", 0.0, True, None),
]


@pytest.mark.parametrize(("parts", "text", "reward", "success", "named"), SUMS)
def test_the_parts_make_the_reward_and_those_with_a_positive_weight_the_success(parts, text, reward, success, named):
    weighted = Weighted(parts)
    verdict = weighted.verify(SUM, text)
    assert (verdict.status, verdict.reward, is_success(weighted, verdict)) == ("ok", reward, success)
    assert named is None or verdict.parts == named


@pytest.mark.parametrize(
    ("parts", "text", "status", "reason"),
    [
        *(({"one": says(1, one), "says": says(0.1)}, status, status, "says: why not") for status in VERIFIER_FAILED),
        ({"silent": says(1, silent)}, "3", "not_applicable", ""),
        *(({"up": says(10, Unbounded), "one": says(1, one)}, text, "error", BEYOND) for text in ("1e38", "-1e38")),
    ],
)
def test_a_sum_without_all_its_parts_or_beyond_a_float_is_no_reward(parts, text, status, reason):
    weighted = Weighted(parts)
    verdict = weighted.verify(SUM, text)
    assert verdict == Verdict(0.0, status=status, reason=reason) and not is_success(weighted, verdict)


class Floor(Says):
    reward_range = (0.5, 2.0)


@pytest.mark.parametrize(
    ("parts", "low", "high"),
    [
        ({"one": says(1, Floor)}, 0.5, 2.0),
        ({"one": says(1, Floor), "two": says(0.1, Floor)}, 0.05, 2.2),
        ({"one": says(-1, Floor), "arith": 1}, -2.0, 1.0),
        ({"arith": 1, "watched": says(0, Unbounded)}, 0.0, 1.0),
    ],
)
def test_the_range_holds_without_the_parts_that_do_not_apply(parts, low, high):
    assert Weighted(parts).reward_range == pytest.approx((low, high))


def test_the_first_part_that_makes_problems_poses_them():
    weighted, arith = Weighted({"length": 1, "arith": 1, "countdown": 1}), Arith()
    problem = weighted.sample(random.Random(1))
    assert problem == arith.sample(random.Random(1)) and weighted.demonstration(problem) == problem.answer
    assert weighted.split_key(problem) == arith.split_key(problem)
    assert set(weighted.alphabet) == set(arith.alphabet) | set(make_verifier("countdown").alphabet)


def test_parts_that_want_workers_get_them_and_give_them_back():
    class Apart(Says):
        execution = Execution(isolated=True)

    weighted = Weighted({"arith": 1, "apart": says(1, Apart)})
    assert [name for name, judge in weighted.judges.items() if isinstance(judge, Isolated)] == ["apart"]
    assert weighted.verify(SUM, "3").reward == 4.0
    weighted.close()
    with pytest.raises(RuntimeError, match="the verifier was closed"):
        weighted.verify(SUM, "3")


def test_async_reward_functions_run_side_by_side():
    both = asyncio.Barrier(2)

    async def meeting(completions):
        await asyncio.wait_for(both.wait(), 60)  # in turn, the first never ends
        return [float(len(text)) for text in completions]

    functions = {"first": says(1, meeting), "third": says(1, one), "second": says(1, meeting)}
    verdicts = Weighted(functions).verify_batch([SUM] * 2, ["xx", "yyy"])
    assert [verdict.reward for verdict in verdicts] == [5.0, 7.0]
    assert list(verdicts[0].parts) == ["first", "third", "second"]
