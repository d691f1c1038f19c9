"""Built-in verifiers beyond the laws and the kept answers: their problems, levels, limits, options and parts."""

import asyncio
import builtins
import json
import math
import random
import re
import sys
import threading
from dataclasses import replace

import cloudpickle
import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Arith, Exact, Format, Guess, Isolated, JsonSchema, Problem, isolate, make_verifier
from rlenv.verifiers.base import Execution, Verdict, Verifier, has_dialogues, is_success
from rlenv.verifiers.builtin import Length, Math, Weighted
from rlenv.verifiers.builtin.countdown import evaluate
from rlenv.verifiers.builtin.math import formulas, leading_formula
from rlenv.verifiers.dialogues import begin, reply_to

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest


def settings(**strategies):
    return st.fixed_dictionaries(strategies)


def countdowns(numbers):
    operators = st.sampled_from(["+", "+-", "-+*", "+-*/", "/+"])
    largest, levels = st.sampled_from([4, 9, 25, 999]), st.integers(1, numbers - 1)
    return settings(numbers=st.just(numbers), largest=largest, operators=operators, levels=levels)


DIGITS, OPERANDS = st.integers(1, 9), st.integers(2, 9)
POSERS = {
    "arith": settings(digits=DIGITS, operators=st.sampled_from(["+", "-", "*", "+-", "+-*"]), operands=OPERANDS),
    "calculator-sums": settings(digits=DIGITS, operands=OPERANDS),
    "countdown": st.integers(2, 6).flatmap(countdowns),
    "guess": settings(largest=st.integers(2, 200)),
}


@pytest.mark.parametrize("name", POSERS)
def test_a_problem_keeps_to_what_is_declared_and_its_demonstration_is_right(name):
    @drawn(40)
    @given(st.integers(0, 2**32), POSERS[name])
    def pose(seed, chosen):
        verifier = make_verifier(name, **chosen)
        problem = verifier.sample(random.Random(seed))
        turns = verifier.demonstration_turns(problem, random.Random(seed))
        assert set(problem.text).union(*turns) <= set(verifier.alphabet)
        assert len(problem.prompt) <= verifier.prompt_length and max(map(len, turns)) <= verifier.answer_length
        assert len(turns) <= verifier.turns.max_turns
        for text in (turns[-1], *verifier.probes(problem).right):
            assert verifier.verify(problem, text).reward == 1.0
        if has_dialogues(verifier):
            dialogue = begin(verifier, problem)
            *replies, last = [reply_to(dialogue, turn) for turn in turns]
            assert last.verdict.reward == 1 and [reply.verdict for reply in replies] == [None] * len(replies)

    pose()


def test_rows_with_numbers_and_a_target_are_problems_of_countdown():
    verifier, template = make_verifier("countdown"), "Make {target} of {nums}."
    rows = [{"target": 98, "nums": nums} for nums in ([44, 19, 35], [35, 44, 19], [44, 19, 36])]
    first, turned, other = (Problem.from_row(row, {"numbers": "nums"}, template) for row in rows)
    assert verifier.split_key(first) == verifier.split_key(turned) != verifier.split_key(other)
    assert verifier.split_key(Problem("19 35 44=98:", "", first.metadata)) == "19 35 44=98:"


@drawn(40)
@given(st.integers(0, 2**32), POSERS["arith"], st.text(max_size=4))
def test_a_chain_is_computed_with_products_before_sums_and_nothing_longer_is_right(seed, arguments, more):
    verifier = Arith(**arguments)
    problem = verifier.sample(random.Random(seed))
    numbers, symbols = re.findall(r"\d+", problem.prompt), re.findall(r"[-+*]", problem.prompt)
    assert len(numbers) == arguments["operands"] == len(symbols) + 1
    assert {len(number) for number in numbers} == {arguments["digits"]}
    assert set(symbols) <= set(arguments["operators"])
    assert verifier.verify(problem, problem.answer + more).reward == float(not more)
    assert verifier.verify(Problem(problem.prompt), more).status == "error", "a list of prompts has no answers"
    assert int(problem.answer) == evaluate(problem.prompt.rstrip("="))[0]


CHAINS, TARGETS = Arith(operators="+-*", operands=3), make_verifier("countdown")
SAME = ["12+34= 34+12=", "1+2+3= 3+1+2=", "1+2*3= 3*2+1=", "9+5-1= 5-1+9="]
OTHER = ["12-34= 34-12=", "12+34= 12*34=", "1+2+3= 1+2*3=", "8-2*3= 3*2-8=", "12*3-4*5= 12*5-4*3="]


@pytest.mark.parametrize(
    ("verifier", "one", "other", "same"),
    [
        *((CHAINS, *pair.split(), pair in SAME) for pair in SAME + OTHER),
        (TARGETS, "3 5 7=26:", "7 3 5=26:", True),
        *((TARGETS, "3 5 7=26:", other, False) for other in ("3 5 7=22:", "3 5 5=26:")),
    ],
)
def test_problems_that_are_one_to_a_learner_share_a_split_key(verifier, one, other, same):
    assert (verifier.split_key(Problem(one)) == verifier.split_key(Problem(other))) is same


def test_every_level_is_drawn_and_has_problems_of_its_own_and_a_single_one_is_not_mentioned():
    rng, arith = random.Random(0), Arith(digits=4, levels=3)
    levels = [arith.sample(rng).metadata["level"] for _ in range(300)]
    assert all(70 < levels.count(level) < 130 for level in (1, 2, 3))
    assert Arith().sample(rng).metadata == {} and "level" not in Guess().sample(rng).metadata
    for level in (1, 2, 3):
        problem = arith.sample_at(rng, level)
        assert problem.metadata == {"level": level}
        assert {len(number) for number in re.findall(r"\d+", problem.prompt)} == {level + 1}
        assert Guess(64, levels=3).sample_at(rng, level).prompt == f"1-{8 << level}:"


def test_a_bad_call_is_answered_in_the_alphabet():
    verifier = make_verifier("calculator-sums", digits=2)
    problem = verifier.sample(random.Random(0))
    for turn in ("calc()", "calc(12+)", "calc(calc(1))", "calc(?)", "calc(1)\n" * 9, "calc(99999999999999999999)"):
        reply = reply_to(begin(verifier, problem), turn)
        assert {message["content"] for message in reply.content} == {"?"} and reply.counts["tool_errors"] >= 1
    call, answer = verifier.demonstration_turns(problem, random.Random(0))
    reply = reply_to(begin(verifier, problem), call)
    assert reply.content == [{"role": "tool", "content": answer}] and len(answer) < verifier.turns.reply_length
    assert [verifier.verify(problem, text).reward for text in (call, answer + "0")] == [0, 0]
    assert verifier.turns.max_turns == 2 and not verifier.execution.isolated


@pytest.mark.parametrize(
    ("turn", "reply"),
    [("41", ">"), (" 43\n", "<"), ("", "?"), ("42.0", "?"), ("40 41", "?"), ("042", "?"), ("-42", "?"), ("٤٢", "?")],
)
def test_a_guess_is_one_whole_number(turn, reply):
    answer = reply_to(begin(Guess(), Problem("1-64:", "42")), turn)
    assert answer.content == reply and answer.verdict is None and answer.reward == 0


@pytest.mark.parametrize(
    ("verifier", "problem", "demonstration"),
    [
        (Format(), Problem("p", "6", {"think": "2+2+2"}), "<think>2+2+2</think><answer>6</answer>"),
        (Format(), Problem("p", "", {"answer": "5"}), "<think>...</think><answer>5</answer>"),
        (Exact(inside="answer"), Problem("p", "Lima"), "<answer>Lima</answer>"),
        (Length(10), Problem("p", "seven ch"), "seven ch"),
    ],
)
def test_a_demonstration_is_made_of_the_problem(verifier, problem, demonstration):
    assert verifier.demonstration(problem) == demonstration
    assert Length(5).demonstration(Problem("p", "seven ch")) != "seven ch", "where its length is right"


def test_a_schema_may_stand_in_a_file(tmp_path):
    path = tmp_path / "book.json"
    path.write_text(json.dumps({"required": ["title"]}))
    assert JsonSchema(str(path)).verify(Problem("Who?"), '{"title": "Emma"}').reward == 1.0
    assert make_verifier(f"json_schema:{path}").verify(Problem("Who?"), "{}").reward == 0.0


def test_a_schema_or_pattern_that_takes_for_ever_ends_at_the_deadline():
    regex, schema, completion = make_verifier("regex:a"), {"pattern": "^(a+)+$"}, json.dumps("a" * 60 + "b")
    assert isinstance(isolate(JsonSchema(schema)), Isolated) and isinstance(isolate(regex), Isolated)
    verifier = Isolated(JsonSchema(schema), workers=1, timeout=0.3)
    verdict = verifier.verify(Problem("p"), completion)
    verifier.close()
    assert (verdict.reward, verdict.status, verdict.reason) == (0.0, "timeout", "no answer within 0.3 s")
    assert regex.execution.timeout <= 5.0


# Mathematics.

WRONG = (
    r"\boxed{{17}} \boxed{{{}}}", "The answer is ${}$. The answer is $17$.",
    "The answer is $-17 + {}$.", r"\boxed{{({}) \cdot 17}}",
)  # fmt: skip


def reward(answer, completion, prompt="What is it?\n"):
    verdict = Math().verify(Problem(prompt, answer), completion)
    assert verdict.status == "ok", verdict
    return verdict.reward


def test_demonstrations_and_spellings_score_and_counterexamples_do_not():
    verifier = Math()
    for problem in verifier.examples():
        wrong = [form.format(problem.answer) for form in WRONG]
        for text in (verifier.demonstration(problem), *verifier.probes(problem).right, *wrong):
            assert reward(problem.answer, text, problem.prompt) == (text not in wrong), text


@drawn(10)
@given(
    st.text()
    | st.lists(st.sampled_from(["\\boxed{", "}", "$", "46", " or ", "{", "\\frac", "^", "(", "=", "\\"])).map("".join)
)
def test_any_text_has_formulas_or_none(text):
    found = [*formulas(text), *formulas(text, several=True), leading_formula(text)]
    assert all(each is None or (each.text and each.latex) for each in found)
    assert Math().verify(Problem("?", "x+1"), text).status == "ok"


def test_a_thread_reaches_the_same_verdicts():
    """math-verify's own time limit needs the main thread and scores 0 elsewhere."""
    rewards = []
    pairs = [("3\\sqrt{2}", "\\sqrt{18}"), ("46", "47"), ("\\frac{3}{4}", "0.75")]
    thread = threading.Thread(target=lambda: rewards.extend(reward(*pair) for pair in pairs))
    thread.start()
    thread.join()
    assert rewards == [1.0, 0.0, 1.0]


def test_nothing_of_a_completion_is_evaluated(monkeypatch, tmp_path):
    for text in ("x+1", "$\\{1,x\\}$", "[0,1]", "2**10"):
        reward("\\{x,3,7.5\\}", text)  # imports what the library puts off
    evaluate, execute = builtins.eval, builtins.exec

    def watched(code, *scopes):  # sympy reads the digits of a number so, and nothing else
        if not isinstance(code, str) or not re.fullmatch(r"(Integer|Float) ?\(\s*'?[0-9.]+'?\s*\)", code.strip()):
            raise SystemExit(f"evaluated: {code!r}")
        return evaluate(code, *scopes)

    def importing(code, *scopes):
        if code != "from sympy import *":
            raise SystemExit(f"executed: {code!r}")
        return execute(code, *scopes)

    monkeypatch.setattr(builtins, "eval", watched)
    monkeypatch.setattr(builtins, "exec", importing)
    mark = tmp_path / "ran"
    calls = [
        f'__import__("pathlib").Path("{mark}").touch()', f"open('{mark}','w')", "().__class__.__base__",
        "x.__class__", "S('1/0')", "[f() for f in (exit,)]", "(lambda: exit())()", "\\operatorname{exit}()", "1+1",
        "exit()", "2**10", "4*(3+2)",
    ]  # fmt: skip
    for call in calls:
        for text in (call, f"${call}$", f"\\boxed{{{call}}}", f"The answer is {call}", f"\\text{{{call}}}"):
            assert reward("\\{x,3,7.5\\}", text) == 0.0
    assert reward("3\\sqrt{2}+7.5", "7.5+\\sqrt{18}") == 1.0
    assert not mark.exists()


# Weighted sums.

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


@pytest.mark.parametrize(("members", "success"), [([silent, one], True), ([Says(), one], False), ([silent], False)])
def test_of_a_list_the_first_that_applies_says_what_a_success_is(members, success):
    """A function may return None for the problems of another task."""
    listed = make_verifier(members)
    assert is_success(listed, listed.verify(SUM, "0")) is success


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
