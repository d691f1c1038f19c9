"""Every rule finds the verifier that breaks it, and only that; a good verifier passes."""

import functools
import itertools
import os
import random
import re
import signal
import string
import threading
import time

import pytest

import verifiers.lint.trials as trials
from verifiers import Arith, Problem, Verdict, Verifier, make_verifier
from verifiers.function import FunctionVerifier
from verifiers.lint.report import lint
from verifiers.lint.rules import RULES


class Sums(Verifier):
    """A good verifier of short sums; the bad ones below differ from it in one thing."""

    alphabet = "0123456789+="

    def examples(self):
        return super().examples()[:2]

    def sample(self, rng):
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        return Problem(f"{a}+{b}=", str(a + b))

    def paraphrases(self, problem):
        return [f" {problem.answer}", f"{problem.answer}\n"]

    def verify(self, problem, completion):
        return Verdict(self.reward(problem, completion))

    def reward(self, problem, completion):
        return float(completion.strip() == problem.answer)


class Substring(Sums):
    def reward(self, problem, completion):
        return float(problem.answer in completion)


class FirstNumber(Sums):
    def reward(self, problem, completion):
        found = re.search("[0-9]+", completion.strip()[:100])
        return float(found is not None and found[0] == problem.answer)


class NotANumber(Sums):
    def reward(self, problem, completion):
        text = completion.strip()
        if not re.fullmatch("[0-9]{1,9}|-?(nan|inf|NaN)", text):
            return 0.0
        return float(not abs(float(text) - int(problem.answer)) > 0.5)


class Leaves(Sums):
    def reward(self, problem, completion):
        if "exit" in completion:
            raise SystemExit(0)
        return super().reward(problem, completion)


class Random(Sums):
    def __init__(self):
        self.rng = random.Random(0)

    def reward(self, problem, completion):
        return super().reward(problem, completion) * self.rng.choice([1.0, 0.99, 0.98])

    success_reward = 0.9


class LongerIsBetter(Sums):
    """Partial credit for every number that is named."""

    def reward(self, problem, completion):
        if super().reward(problem, completion):
            return 1.0
        return min(0.5, 0.1 * len(re.findall(r"\b[0-9]+\b", completion[:1000], re.ASCII)))


class DeclaresSubstring(Substring):
    FAMILIES = ("shotgun", "changed-answer", "wrong-answer")
    does_not_catch = dict.fromkeys(FAMILIES, "it looks for the answer anywhere")


class Slow(Sums):
    def examples(self):
        return super().examples()[:1]

    def reward(self, problem, completion):
        if "4" in completion[:4]:
            time.sleep(0.006)
        return super().reward(problem, completion)


class Unpicklable(Sums):
    def __init__(self):
        self.lock = threading.Lock()


class NoProblems(Sums):
    def examples(self):
        raise KeyError("examples")


class Hangs(Sums):
    def reward(self, problem, completion):
        while completion == "...":
            time.sleep(0.01)
        return super().reward(problem, completion)


def differing(name, **changed):
    """Return a class that differs from the good one in these attributes."""
    return type(name, (Sums,), changed)


def paying(name, reward):
    return differing(name, reward=lambda self, problem, completion: float(reward(problem.answer, completion)))


def failing_once(self, problem, completion):
    return Verdict(0.0, status="error") if completion == "?" else Sums.verify(self, problem, completion)


SEEDS = itertools.count()
BAD = {
    paying("Empty", lambda answer, text: text.strip() in answer and text.strip() in ("", answer)): "attack",
    paying("AnyDigits", lambda a, text: (t := text.strip()).isdecimal() and len(t) < 9 and int(t) == int(a)): "attack",
    paying("Prefix", lambda answer, text: bool(text.strip()) and answer.startswith(text.strip())): "attack",
    Substring: "attack",
    FirstNumber: "attack",
    NotANumber: "attack",
    Leaves: "total",
    differing("NoVerdict", verify=Sums.reward): "total",
    differing("Fails", verify=failing_once): "failed",
    paying("OutOfRange", lambda answer, text: 2 * (text.strip() == answer)): "range",
    Random: "deterministic",
    differing(
        "Others", verify_batch=lambda self, problems, texts: [self.verify(problems[0], t) for t in texts]
    ): "batch",
    differing("Short", verify_batch=lambda self, *pairs: Verifier.verify_batch(self, *pairs)[1:]): "batch",
    paying("TooStrict", lambda answer, text: text == answer): "paraphrase",
    differing("RejectsItsReference", demonstration=lambda self, problem: f"{problem.answer}="): "reference",
    LongerIsBetter: "monotonic",
    differing("DeclaresTooMuch", does_not_catch={"shotgun": "it does, really"}): "declared",
    Slow: "speed",
    Unpicklable: "picklable",
    differing("New", sample=lambda self, rng: Sums.sample(self, random.Random(next(SEEDS)))): "reproducible",
    differing("OutsideItsAlphabet", alphabet="0123456789+"): "declarations",
    NoProblems: "problems",
}


@pytest.fixture(scope="module")
def linted():
    """Return a function that gives the report on a class of verifiers, which is made once for all tests."""
    return functools.cache(lambda bad: lint(bad()))


def rules(report):
    return {finding.rule for finding in report.findings}


class Asks(Sums):
    """Poses its sums as conversations; what it declares is about the last message."""

    prompt_length = 6

    def sample(self, rng):
        problem = super().sample(rng)
        return Problem(
            [{"role": "system", "content": "Add!"}, {"role": "user", "content": problem.text}], problem.answer
        )


@pytest.mark.parametrize("good", [Sums, pytest.param(Arith, marks=pytest.mark.slow), Asks])
def test_a_good_verifier_passes(good):
    report = lint(good())
    assert (report.findings, report.passed) == ([], True)
    assert report.attacks >= 200
    assert report.honest >= 200
    assert (report.false_accepts, report.false_rejects, report.partial) == (0, 0, 0)
    assert report.problems == len(good().examples())
    assert report.without_demonstration == 0
    assert 0 < report.median <= report.p99


@pytest.mark.parametrize("bad", BAD, ids=lambda cls: cls.__name__)
def test_a_bad_verifier_breaks_the_rule_it_was_made_to_break(bad, linted):
    report = linted(bad)
    assert rules(report) == {BAD[bad]}
    assert not report.passed


def test_one_fault_is_one_finding_that_names_the_fields_of_a_verdict():
    class UnknownField(Sums):
        def verify(self, problem, completion):
            return Verdict(1.0, success=completion == problem.answer)

    report = lint(UnknownField())
    [finding] = report.findings
    assert (finding.rule, finding.family) == ("total", "several kinds")
    assert finding.times == report.attacks + report.honest + 40  # and the answers with a wrong one added
    assert "unexpected keyword argument 'success'; the fields of a Verdict are reward, parts, status, reason" in (
        finding.explanation
    )


def test_every_rule_has_a_verifier_that_breaks_it():
    assert {*BAD.values(), "hang"} == set(RULES)
    assert all(text.endswith(".") for text in RULES.values())


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
def test_a_verifier_that_hangs_is_stopped_and_named(monkeypatch):
    monkeypatch.setattr(trials, "HANGS", 0.2)
    report = lint(Hangs())
    assert rules(report) == {"hang"}
    assert report.findings[0].completion == "'...'"
    assert not report.passed


def test_a_declared_weakness_is_no_finding_but_counted(linted):
    report = lint(DeclaresSubstring())
    assert report.findings == []
    assert report.false_accepts == sum(report.declared.values()) == linted(Substring).false_accepts
    assert all(report.declared.values())


def test_partial_credit_is_recognized_where_no_answer_is_known():
    """A function that pays a part, on problems without answers: only what it takes for solved is paid for."""

    def share(prompts, completions, **columns):
        return [min(sum(map(text.count, "aeiou")) / 8, 1.0) for text in completions]

    report = lint(FunctionVerifier(share), [Problem("Say vowels: "), Problem("Say more of them: ")])
    assert report.partial > 0
    assert {finding.reward for finding in report.findings if finding.rule == "attack"} <= {1.0}


def test_counterexamples_of_the_verifier_are_attacks():
    class Lenient(Sums):
        def counterexamples(self, problem):
            return {"in apples": [f"{problem.answer} apples"]}

        def reward(self, problem, completion):
            return float(completion.strip().removesuffix(" apples") == problem.answer)

    report = lint(Lenient())
    assert [(f.rule, f.family, f.times) for f in report.findings] == [("attack", "in apples", 2)]


def test_a_slow_verifier_is_tried_in_batches_and_with_fewer_attacks():
    class Dear(Sums):
        slow = True

        def verify(self, problem, completion):
            calls.append(completion)
            return super().verify(problem, completion)

    calls = []
    report = lint(Dear())
    assert report.findings == []
    assert 200 <= report.attacks < 300
    assert (report.honest >= 200, report.false_rejects) == (True, 0)
    assert len(calls) == report.attacks + report.honest + 40 + trials.AGAIN + trials.ALONE


def test_an_isolated_verifier_is_tried_in_worker_processes():
    class Apart(Sums):
        isolated = True

        def verify(self, problem, completion):
            return Verdict(0.0, status="error") if os.getpid() == here else super().verify(problem, completion)

    here = os.getpid()
    report = lint(Apart())
    assert report.findings == []
    assert report.attacks >= 400  # all of them


def test_answers_in_a_frame_are_attacked_inside_it():
    class Tagged(Sums):
        alphabet = string.printable

        def demonstration(self, problem):
            return f"<answer>{problem.answer}</answer>"

        def paraphrases(self, problem):
            return [f"so <answer>{problem.answer}</answer>"]

        def reward(self, problem, completion):
            found = re.search("<answer>(.*)</answer>", completion[:2000])
            return float(found is not None and problem.answer in found[1])

    report = lint(Tagged())
    assert rules(report) == {"attack"}
    assert {"shotgun", "changed-answer"} <= {finding.family for finding in report.findings}


def test_a_reward_function_is_held_to_the_rules_with_problems():
    def exact(prompts, completions, answer):
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    def lenient(prompts, completions, answer):
        return [float(right in text) for text, right in zip(completions, answer, strict=True)]

    problems = [Problem(f"capital of {land}?", town) for land, town in [("France", "Paris"), ("Chad", "N'Djamena")]]
    good, bad = lint(make_verifier(exact), problems), lint(make_verifier(lenient), problems)
    assert rules(good) == set()
    assert rules(bad) == {"attack"}
    assert (good.honest, good.problems) == (2, 2)


def test_two_reports_of_one_verifier_are_the_same(linted):
    first, again = linted(FirstNumber).as_dict(), lint(FirstNumber()).as_dict()
    for report in (first, again):
        del report["median"], report["p99"]
    assert first == again


def test_partial_credit_is_counted_where_answers_earn_it():
    class Graded(Sums):
        def reward(self, problem, completion):
            text = completion.strip()
            return 1.0 if text == problem.answer else 0.25 if re.fullmatch("[0-9]{1,3}", text, re.ASCII) else 0.0

    report = lint(Graded())
    assert report.findings == []
    assert report.partial > 0
    assert report.false_accepts == 0


def test_partial_credit_for_an_attack_is_a_finding_where_rewards_are_all_or_nothing():
    class PaysForTags(Sums):
        def reward(self, problem, completion):
            return 0.5 if completion == "<answer></answer>" else super().reward(problem, completion)

    report = lint(PaysForTags())
    assert [(f.rule, f.family, f.reward) for f in report.findings] == [("attack", "hollow", 0.5)]
