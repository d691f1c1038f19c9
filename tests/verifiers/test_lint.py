"""Every rule finds the verifier that breaks it, and only that; a good verifier passes."""

import itertools
import os
import random
import re
import signal
import string
import time

import pytest

from verifiers import Arith, Problem, Verdict, Verifier, make_verifier
from verifiers.lint import trials
from verifiers.lint.attacks import ATTACKS
from verifiers.lint.report import RULES, lint


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


def differing(name, **changed):
    """Return a class that differs from the good one in these attributes."""
    return type(name, (Sums,), changed)


def paying(name, reward, **changed):
    def paid(self, problem, text):
        return float(text.strip() == problem.answer or reward(problem.answer, text.strip()) or 0)

    return differing(name, reward=paid, **changed)


def not_a_number(answer, text):
    return re.fullmatch("-?(nan|inf)", text) and not abs(float(text) - int(answer)) > 0.5


def leaves(self, problem, completion):
    if "exit" in completion:
        raise SystemExit(0)
    return Sums.reward(self, problem, completion)


def judged(self, problems, completions):
    return [Sums.verify(self, *pair) for pair in zip(problems, completions, strict=True)]


SUBSTRING = {"all-listed", "several-answers", "place-repeated", "junk", "wrong-answer"}
PAYS = {  # each attack is the one that finds a verifier
    paying("Nothing", lambda answer, text: text in answer and len(text) != 1): {"empty", "wrong-answer"},
    paying("Prompt", lambda answer, text: "+" in text and text.endswith("=") and len(text) < 9): {"echo"},
    paying("Substring", lambda answer, text: answer in text): SUBSTRING,
    paying("LastBox", lambda answer, text: f"\\boxed{{{answer}}}" == text[-len(answer) - 8 :]): {"place-repeated"},
    paying("NotANumber", not_a_number): {"junk"},
    paying("Long", lambda answer, text: len(text) > 50_000): {"huge"},
    paying("AnyDigits", lambda answer, text: text.isdecimal() and len(text) < 9 and int(text) == int(answer)): {
        "look-alike"
    },
    paying("Prefix", lambda answer, text: text and answer.startswith(text)): {"wrong-answer"},
}
CALLS, SEEDS = itertools.count(), itertools.count()
BAD = {
    differing("Leaves", reward=leaves): "failed",
    differing("UnknownField", verify=lambda self, problem, text: Verdict(1.0, success=True)): "failed",
    differing("NoSuccess", is_success=lambda self, verdict: verdict.parts["answer"] > 0): "failed",
    differing("TimesOut", verify=lambda self, problem, text: Verdict(0.0, status="timeout")): "failed",
    paying("OutOfRange", lambda answer, text: 2 * (text == "?")): "failed",
    differing("Remembers", reward=lambda *case: Sums.reward(*case) - next(CALLS) % 7 / 70, reward_range=(-1.0, 1.0),
              success_reward=0.9): "deterministic",
    differing("Others", verify_batch=lambda self, problems, texts: [self.verify(problems[0], t) for t in texts]):
        "deterministic",
    differing("TooStrict", reward=lambda self, problem, text: float(text == problem.answer)): "right",
    differing("RejectsItsReference", demonstration=lambda self, problem: f"{problem.answer}="): "right",
    differing("DeclaresTooMuch", does_not_catch={"echo": "it does, really"}): "declared",
    differing("Slow", verify=lambda *case: time.sleep(0.006) or Sums.verify(*case), verify_batch=judged): "speed",
    differing("New", sample=lambda self, rng: Sums.sample(self, random.Random(next(SEEDS)))): "problems",
    differing("OutsideItsAlphabet", alphabet="0123456789+"): "problems",
    differing("LongerThanDeclared", prompt_length=5): "problems",
    differing("NoProblems", examples=lambda self: {}["examples"]): "problems",
}  # fmt: skip


def rules(report):
    return {finding.rule for finding in report.findings}


def families(report):
    return {finding.family for finding in report.findings if finding.rule == "attack"}


class Asks(Sums):
    """Poses its sums as conversations; what it declares is about the last message."""

    prompt_length = 6

    def sample(self, rng):
        problem = super().sample(rng)
        return Problem(
            [{"role": "system", "content": "Add!"}, {"role": "user", "content": problem.text}], problem.answer
        )


@pytest.mark.parametrize("good", [Sums, Arith, Asks])
def test_a_good_verifier_passes(good):
    report = lint(good())
    assert (report.findings, report.passed, report.hedges) == ([], True, {})
    assert report.attacks >= 200 and report.honest >= 50
    assert (report.false_accepts, report.false_rejects, report.partial) == (0, 0, 0)
    assert (report.problems, report.without_demonstration) == (len(good().examples()), 0)
    assert 0 < report.median <= report.p99


@pytest.mark.parametrize("bad", PAYS, ids=lambda cls: cls.__name__)
def test_an_attack_finds_the_verifier_that_pays_for_it(bad):
    report = lint(bad())
    assert (rules(report), families(report)) == ({"attack"}, PAYS[bad])


@pytest.mark.parametrize("bad", BAD, ids=lambda cls: cls.__name__)
def test_a_rule_finds_the_verifier_that_breaks_it(bad):
    report = lint(bad())
    assert rules(report) == {BAD[bad]}
    assert report.as_dict()["passed"] is False


def test_every_rule_and_attack_is_tried_here():
    assert {*BAD.values(), "attack"} == set(RULES)
    assert set.union(*PAYS.values()) == {*ATTACKS, "wrong-answer"}


def test_one_fault_is_one_finding_that_names_the_fields_of_a_verdict():
    [finding] = lint(next(bad for bad in BAD if bad.__name__ == "UnknownField")()).findings
    assert "'success'" in finding.explanation and "reward, parts, status, reason" in finding.explanation
    assert finding.times > 200


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
def test_a_verifier_that_hangs_is_stopped_and_named(monkeypatch):
    monkeypatch.setattr(trials, "HANGS", 0.2)
    report = lint(paying("Hangs", lambda answer, text: next(0 for _ in itertools.count() if text != "..."))())
    [failed] = [finding for finding in report.findings if finding.rule == "failed"]
    assert failed.completion == "'...'" and "timeout" in failed.explanation


def test_a_hedge_is_reported_and_breaks_no_rule():
    report = lint(paying("LastOfTwo", lambda answer, text: re.search(rf"^[0-9]+ or {answer}$", text) is not None)())
    assert (report.findings, report.hedges) == ([], {"WRONG or RIGHT": 2})


def test_a_declared_weakness_is_no_finding_but_counted():
    declares = paying("Declares", lambda answer, text: answer in text, does_not_catch=dict.fromkeys(SUBSTRING, "it is"))
    report = lint(declares())
    assert report.findings == [] and all(report.declared.values())
    assert report.false_accepts == sum(report.declared.values())


def test_a_part_of_a_success_is_counted_and_nothing_is_paid_for_an_empty_text():
    part = lint(paying("Part", lambda answer, text: 0.25 * bool(text.isdigit() and text.isascii()))())
    assert (part.findings, part.most) == ([], 0.25) and part.partial > 0
    assert families(lint(paying("Empty", lambda answer, text: 0.25 * (not text))())) == {"empty"}


def test_counterexamples_of_the_verifier_are_attacks():
    lenient = paying("Lenient", lambda answer, text: text == f"{answer} apples")
    lenient.counterexamples = lambda self, problem: {"in apples": [f"{problem.answer} apples"]}
    assert [(f.rule, f.family, f.times) for f in lint(lenient()).findings] == [("attack", "in apples", 2)]


def test_answers_in_a_frame_are_attacked_inside_it():
    def tagged(answer, text):
        found = re.search("<answer>(.*)</answer>", text[:2000])
        return found is not None and answer in found[1]

    bad = paying("Tagged", tagged, alphabet=string.printable)
    bad.demonstration = lambda self, problem: f"<answer>{problem.answer}</answer>"
    assert {"several-answers", "junk", "place-repeated"} <= families(lint(bad()))


@pytest.mark.parametrize("kind", ["slow", "isolated"])
def test_a_slow_or_isolated_verifier_is_tried_in_part_alone_and_the_latter_in_workers(kind):
    def verify(self, problem, completion):
        calls.append(completion)
        apart = Verdict(0.0, status="error") if kind == "isolated" and os.getpid() == here else None
        return apart or Sums.verify(self, problem, completion)

    calls, here = [], os.getpid()
    report = lint(differing("Dear", verify=verify, **{kind: True})())
    assert report.findings == []
    assert len(calls) == (0 if kind == "isolated" else report.attacks + 6 + report.honest + 2 * trials.ALONE)


def test_a_reward_function_is_held_to_the_rules_with_problems():
    def exact(prompts, completions, answer):
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    def lenient(prompts, completions, answer):
        return [float(right in text) for text, right in zip(completions, answer, strict=True)]

    problems = [Problem(f"capital of {land}?", town) for land, town in [("France", "Paris"), ("Chad", "N'Djamena")]]
    good, bad = lint(make_verifier(exact), problems), lint(make_verifier(lenient), problems)
    assert (rules(good), good.honest, good.problems) == (set(), 2, 2)
    assert families(bad) == SUBSTRING - {"all-listed", "wrong-answer"}
