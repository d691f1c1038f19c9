import math
import random
import re

import pytest

from agents.core import rollout
from verifiers import FunctionVerifier, Problem, Verdict, Verifier
from verifiers.base import STATUSES, checked


class Echo(Verifier):
    def verify(self, problem, completion):
        return Verdict(float(completion == problem.prompt), {"length": float(len(completion))})


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf"), 1e39, -1e39])
def test_a_verdict_refuses_a_reward_that_is_not_finite(reward):
    with pytest.raises(ValueError, match=re.escape(f"must be a finite number in float32, got {reward!r}")):
        Verdict(reward)


def test_a_verdict_takes_every_reward_of_single_precision():
    assert [Verdict(reward).reward for reward in (3.4e38, -3.4e38)] == [3.4e38, -3.4e38]


def test_a_verdict_refuses_a_status_that_is_none():
    with pytest.raises(ValueError, match="unknown status 'failed'; allowed: ok, timeout, error, not_applicable"):
        Verdict(0.0, status="failed")


def test_agents_and_verifiers_have_the_same_statuses():
    assert STATUSES == rollout.STATUSES


def test_a_verdict_is_ok_and_without_parts_unless_told():
    assert Verdict(0.5) == Verdict(0.5, {}, "ok")


def test_problems_and_verdicts_cannot_be_changed():
    with pytest.raises(AttributeError):
        Problem("1+1=").prompt = "2+2="
    with pytest.raises(AttributeError):
        Verdict(0.0).reward = 1.0


def test_problems_share_no_metadata():
    assert Problem("a").metadata is not Problem("b").metadata


def test_a_batch_is_judged_in_order_by_verify():
    problems = [Problem("a"), Problem("b"), Problem("c")]
    assert [verdict.reward for verdict in Echo().verify_batch(problems, ["a", "x", "c"])] == [1.0, 0.0, 1.0]


def test_a_batch_of_uneven_length_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        Echo().verify_batch([Problem("a"), Problem("b")], ["a"])


def test_a_verifier_without_problems_says_what_to_pass():
    with pytest.raises(NotImplementedError, match=r"Echo does not make problems: pass problems=\[...\]"):
        Echo().sample(random.Random(0))


def test_a_verifier_without_a_judgement_names_itself():
    class Mute(Verifier):
        pass

    with pytest.raises(NotImplementedError, match="Mute implements neither verify nor verify_batch"):
        Mute().verify(Problem("a"), "a")


def test_by_default_the_answer_is_the_demonstration_and_the_prompt_the_split_key():
    problem = Problem("1+1=", "2")
    assert Echo().demonstration(problem) == "2"
    assert Echo().split_key(problem) == "1+1="


@pytest.mark.parametrize(
    ("verdict", "success"),
    [
        (Verdict(1.0), True),
        (Verdict(2.0), True),
        (Verdict(0.99), False),
        (Verdict(1.0, status="timeout"), False),
        (Verdict(1.0, status="error"), False),
    ],
)
def test_success_needs_the_reward_and_a_verdict_that_was_reached(verdict, success):
    assert Echo().is_success(verdict) is success


def test_the_reward_that_counts_as_success_can_be_lowered():
    class Lenient(Echo):
        success_reward = 0.5

    assert Lenient().is_success(Verdict(0.5))
    assert not Lenient().is_success(Verdict(0.49))


def test_a_verifier_of_batches_judges_single_completions_too():
    class Batches(Verifier):
        def verify_batch(self, problems, completions):
            return [Verdict(float(text == problem.answer)) for problem, text in zip(problems, completions, strict=True)]

    assert Batches().verify(Problem("2+2=", "4"), "4") == Verdict(1.0)
    with pytest.raises(NotImplementedError, match="implements neither verify nor verify_batch"):
        Verifier().verify(Problem("2+2=", "4"), "4")


class Between(Verifier):
    def __init__(self, low, high):
        self.reward_range = (low, high)


@pytest.mark.parametrize(
    ("low", "high", "reward", "inside"),
    [
        (0.0, 1.0, 0.0, True),
        (0.0, 1.0, 1.0 + 1e-7, True),  # rounding
        (0.0, 1.0, -1e-7, True),
        (0.0, 1.0, 1.00001, False),
        (0.0, 1.0, -1.0, False),
        (-1.0, 2.5, -1.0, True),
        (-1.0, 2.5, 2.6, False),
        (0.0, 1e6, 1e6 + 0.5, True),
        (0.0, 1e6, 1e6 + 2, False),
        (0.0, math.inf, 1e30, True),
        (0.0, math.inf, -1e-3, False),
        (-math.inf, 0.0, 1e-3, False),
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


@pytest.mark.parametrize("status", ["timeout", "error", "not_applicable"])
def test_a_verdict_that_was_not_reached_has_no_reward_to_check(status):
    given = Verdict(0.0, status=status, reason="why not")
    assert checked(Between(1.0, 2.0), [given], 1) == [given]


def test_a_reward_function_may_pay_anything_that_is_finite():
    paid = FunctionVerifier(lambda prompts, completions: [3e38, -7.0])
    problems = [Problem("a")] * 2
    assert [verdict.reward for verdict in checked(paid, paid.verify_batch(problems, ["", ""]), 2)] == [3e38, -7.0]
