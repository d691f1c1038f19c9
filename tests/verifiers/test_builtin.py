"""Built-in verifiers beyond the laws and the kept answers: their problems, levels, limits and options."""

import json
import random
import re

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from rlenv.verifiers import Arith, Exact, Format, Guess, Isolated, JsonSchema, Length, Problem, isolate, make_verifier
from rlenv.verifiers.base import has_dialogues
from rlenv.verifiers.builtin.countdown import evaluate
from rlenv.verifiers.dialogues import begin, reply_to


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
