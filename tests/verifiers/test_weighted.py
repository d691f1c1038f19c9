import asyncio
import math
import random
import sys
from dataclasses import replace

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


WEIGHED = {"arith": 1, "one": says(-0.25, one)}
INNER = {"inner": {"weight": 2, "verifier": "weighted", "parts": {"arith": 1, "length": 0.5}}}
LENGTH = {"inner/length": 1.0, "inner/length/length": 1.0}
UP, DOWN = (says(weight, Unbounded) for weight in (10, -10))
NOTHING = {"one": 0.0, "one/twice": 0.0, "other": 0.0, "other/twice": 0.0}
CANCELLED = {"up": 1e38, "up/twice": 2e38, "down": 1e38, "down/twice": 2e38}
JUDGED = [  # parts, a completion, the verdict and whether it is a success
    (WEIGHED, "3", Verdict(0.75, {"arith": 1.0, "one": 1.0}), True),
    (WEIGHED, "4", Verdict(-0.25, {"arith": 0.0, "one": 1.0}), False),
    ({"arith": -1}, "3", Verdict(-1.0, {"arith": 1.0}), False),  # there is nothing to solve
    ({"arith": 1, "watched": says(0)}, "3", Verdict(1.0, {"arith": 1.0, "watched": 3.0, "watched/twice": 6.0}), True),
    (INNER, "3", Verdict(3.0, {"inner": 1.5, "inner/arith": 1.0, **LENGTH}), True),
    (INNER, "4", Verdict(1.0, {"inner": 0.5, "inner/arith": 0.0, **LENGTH}), False),
    ({"arith": 1, "silent": says(1, silent)}, "3", Verdict(1.0, {"arith": 1.0}), True),
    ({"silent": says(1, silent)}, "3", Verdict(0.0, status="not_applicable"), False),
    ({"up": UP, "one": says(1, one)}, "1e37", Verdict(1e38, {"up": 1e37, "up/twice": 2e37, "one": 1.0}), True),
    ({"up": UP, "down": DOWN}, "1e38", Verdict(0.0, CANCELLED), True),
    *(
        ({"up": UP, "one": says(1, one)}, text, Verdict(0.0, status="error", reason=BEYOND), False)
        for text in ("1e38", "-1e38")
    ),
    *(
        ({"one": says(1, one), "says": says(0.1)}, fault, Verdict(0.0, status=fault, reason="says: why not"), False)
        for fault in VERIFIER_FAILED
    ),
    ({"one": says(1), "other": says(1)}, "0", Verdict(0.0, NOTHING, reason="nothing; nothing"), False),
]


@pytest.mark.parametrize(("parts", "text", "verdict", "success"), JUDGED)
def test_the_parts_make_the_verdict_and_those_with_a_positive_weight_the_success(parts, text, verdict, success):
    weighted = Weighted(parts)
    said = weighted.verify(SUM, text)
    assert replace(said, success=None) == verdict and is_success(weighted, said) is success


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
