"""Lint: every rule finds the verifier that breaks it, and only that; attacks are wrong, and what their names say."""

import itertools
import math
import random
import re
import signal
import string

import pytest

from rlenv.verifiers import Dialogue, Execution, FunctionVerifier, Probes, Problem, Reply, Verdict, Verifier
from rlenv.verifiers.base import UNFINISHED
from rlenv.verifiers.lint import report
from rlenv.verifiers.lint.attacks import ATTACKS
from rlenv.verifiers.lint.report import RULES, lint


class Sums(Verifier):
    """A good verifier of short sums; the bad ones below differ from it in one thing."""

    alphabet = "0123456789+="

    def examples(self):
        return super().examples()[:2]

    def sample(self, rng):
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        return Problem(f"{a}+{b}=", str(a + b))

    def probes(self, problem):
        return Probes([f" {problem.answer}", f"{problem.answer}\n"])

    def verify(self, problem, completion):
        return Verdict(self.reward(problem, completion))

    def reward(self, problem, completion):
        return float(completion.strip() == problem.answer)


def differing(name, **changed):
    """Return a class that differs from the good one in these attributes."""
    return type(name, (Sums,), changed)


class Replies(Dialogue):
    def __init__(self, replies, end):
        self.left, self.end = [*replies], end

    def reply(self, turn):
        return self.left.pop(0)

    def out_of_budget(self):
        return self.end


def replying(name, *replies, end=UNFINISHED):
    """Return a verifier whose demonstrations have two turns, which get these replies."""
    turns = ["one", "two"]
    changed = {"dialogue": lambda *_: Replies(replies, end), "demonstration_turns": lambda *_: turns}
    return differing(name, **changed)


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
    differing("UnknownField", verify=lambda self, problem, text: Verdict(1.0, correct=True)): "failed",
    differing("TimesOut", verify=lambda self, problem, text: Verdict(0.0, status="timeout")): "failed",
    paying("OutOfRange", lambda answer, text: 2 * (text == "?")): "failed",
    differing("Remembers", reward=lambda *case: Sums.reward(*case) - next(CALLS) % 7 / 70, reward_range=(-1.0, 1.0),
              success_reward=0.9): "deterministic",
    differing("Others", verify_batch=lambda self, problems, texts: [self.verify(problems[0], t) for t in texts]):
        "deterministic",
    differing("TooStrict", reward=lambda self, problem, text: float(text == problem.answer)): "right",
    differing("RejectsItsReference", demonstration=lambda self, problem: f"{problem.answer}="): "right",
    differing("DeclaresTooMuch", does_not_catch={"echo": "it does, really"}): "declared",
    differing("New", sample=lambda self, rng: Sums.sample(self, random.Random(next(SEEDS)))): "problems",
    differing("OneSplit", split_key=lambda self, problem: "sum"): "problems",
    differing("Unlisted", inputs=("seed",)): "problems",
    differing("NumberedSplit", split_key=lambda self, problem: int(problem.answer)): "problems",
    differing("NoText", demonstration=lambda self, problem: None): "problems",
    differing("ExtractsTheLast", extract=lambda self, problem, text: text.split()[-1]): "failed",
    differing("OutsideItsAlphabet", alphabet="0123456789+"): "problems",
    paying("PartForAll", lambda answer, text: 0.3 * (answer in text)): "partial",
    differing("LongerThanDeclared", prompt_length=5): "problems",
    replying("GoesOn", Reply("?"), Reply("?")): "right",
    replying("LosesAtLast", Reply("?"), Reply(verdict=Verdict(0.0))): "right",
    replying("EndsEarly", Reply(verdict=Verdict(1.0))): "right",
    replying("Mute", Reply("?"), None): "failed",
    replying("Endless", Reply("?"), Reply("?"), end=None): "failed",
    differing("NoProblems", examples=lambda self: {}["examples"]): "problems",
}  # fmt: skip


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine breaks the rule "speed"."""
    monkeypatch.setattr(report, "USUAL", math.inf)
    monkeypatch.setattr(report, "LONGEST", math.inf)


def rules(found):
    return {finding.rule for finding in found.findings}


def families(found):
    return {finding.family for finding in found.findings if finding.rule == "attack"}


@pytest.mark.parametrize("bad", [*PAYS, *BAD], ids=lambda cls: cls.__name__)
def test_a_rule_or_attack_finds_the_verifier_that_breaks_or_pays_for_it(bad):
    found = lint(bad())
    assert (rules(found), families(found)) == (({"attack"}, PAYS[bad]) if bad in PAYS else ({BAD[bad]}, set()))
    assert found.as_dict()["passed"] is False


def test_a_function_gets_a_token_per_character_and_the_state_of_a_training_that_begins():
    def short(completions, answer, completion_ids, trainer_state):
        assert trainer_state.global_step == 0
        assert [len(text) + 1 for text in completions] == list(map(len, completion_ids)), "with the end token"
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    assert lint(FunctionVerifier(short), [Problem("1+1=", "2"), Problem("2+2=", "4")]).findings == []


def test_listed_problems_are_tried_in_place_of_those_that_a_verifier_makes():
    listed = [Problem("1+1=", "2"), Problem("2+2=", "4", {"level": 1})]
    found = lint(Sums(), listed)
    assert (found.findings, found.problems, found.honest) == ([], 2, 6)


def test_a_verifier_is_slow_unless_it_says_so_and_every_rule_and_attack_is_tried_here(monkeypatch):
    monkeypatch.setattr(report, "USUAL", 0.0)
    slow = differing("Slow", execution=Execution(slow=True))
    assert (rules(lint(Sums())), rules(lint(slow()))) == ({"speed"}, set())
    assert {*BAD.values(), "attack", "speed"} == set(RULES)
    assert set.union(*PAYS.values()) == {*ATTACKS, "wrong-answer"}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
def test_a_verifier_that_hangs_is_stopped_and_named(monkeypatch):
    monkeypatch.setattr(report, "HANGS", 0.2)
    found = lint(paying("Hangs", lambda answer, text: next(0 for _ in itertools.count() if text != "..."))())
    [failed] = [finding for finding in found.findings if finding.rule == "failed"]
    assert failed.completion == "'...'" and "timeout" in failed.explanation


def test_exceptions_of_one_line_are_one_finding_whatever_text_they_quote():
    found = lint(paying("Reads", lambda answer, text: int(text) == int(answer))())
    failed = [(finding.explanation[:26], finding.times > 200) for finding in found.findings if finding.rule == "failed"]
    assert failed == [("error: ValueError: invalid", True)]


def test_declared_weaknesses_and_parts_of_a_success_are_counted_and_break_no_rule():
    declares = paying("Declares", lambda answer, text: answer in text, does_not_catch=dict.fromkeys(SUBSTRING, "it is"))
    found = lint(declares())
    assert found.findings == [] and all(found.declared.values())
    assert found.false_accepts == sum(found.declared.values())
    part = lint(paying("Part", lambda answer, text: 0.25 * bool(text.isdigit() and text.isascii()))())
    assert (part.findings, part.most) == ([], 0.25) and part.partial > 0
    assert families(lint(paying("Empty", lambda answer, text: 0.25 * (not text))())) == {"empty"}


def test_a_part_of_a_success_for_saying_everything_is_found_and_not_one_for_the_form():
    """0.3 if the number is anywhere: after 12 updates, a model wrote all of them."""

    def anywhere(answer, text):
        return 0.3 * (answer in re.findall("[0-9]+", text))

    found = lint(paying("Anywhere", anywhere)())
    said = {(finding.rule, finding.family) for finding in found.findings}
    assert said == {("partial", "all-listed"), ("partial", "several-answers")}
    assert all("earns 0.3" in finding.explanation and finding.times > 1 for finding in found.findings)
    declares = paying("Declares", anywhere, does_not_catch=dict.fromkeys(["all-listed", "several-answers"], "it is"))
    assert lint(declares()).findings == []
    form = paying("Form", lambda answer, text: 0.3 * text.startswith("The answer is") + 0.2 * ("," in text))
    assert lint(form()).findings == [] and lint(form()).most == 0.5


def test_counterexamples_of_the_verifier_are_attacks():
    lenient = paying("Lenient", lambda answer, text: text == f"{answer} apples")
    lenient.probes = lambda self, problem: Probes(wrong={"in apples": [f"{problem.answer} apples"]})
    assert [(f.rule, f.family, f.times) for f in lint(lenient()).findings] == [("attack", "in apples", 2)]


def test_answers_in_a_frame_are_attacked_inside_it():
    def tagged(answer, text):
        found = re.search("<answer>(.*)</answer>", text[:2000])
        return found is not None and answer in found[1]

    bad = paying("Tagged", tagged, alphabet=string.printable)
    bad.demonstration = lambda self, problem: f"<answer>{problem.answer}</answer>"
    assert {"several-answers", "junk", "place-repeated"} <= families(lint(bad()))
