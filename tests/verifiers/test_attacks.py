"""The attacks are wrong by construction, and what their names say."""

import unicodedata

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Problem
from verifiers.lint.attacks import ATTACKS, LONG, WRONG, all_but, attacks, wrong_answers, wrong_cases

SUM = Problem("12+34=", "46")
MADE = attacks(SUM, ["118", "109"], "<a>{}</a>")


def texts_of(problems, family):
    return [case.text for case in wrong_cases(Arith(), problems, problems[0]) if case.family == family]


def test_a_number_meets_every_attack():
    assert set(MADE) == set(ATTACKS)
    assert all(MADE.values()) and sum(map(len, MADE.values())) >= 100
    assert max(map(len, MADE["huge"])) >= LONG


def test_the_right_answer_is_listed_between_wrong_ones_and_has_a_place_beside_a_wrong_one():
    for text in MADE["several-answers"]:
        assert text.index("118") < text.index("46") < text.index("109")
    assert any(" 1000 46 1 " in text for text in MADE["all-listed"])
    listed = attacks(Problem("p", "C", {"choices": ["Quito", "Bonn", "Lima"]}))["all-listed"]
    assert {"A B C A B", "Quito, Bonn, Lima, Quito, Bonn"} <= set(listed)
    repeated = [
        "\\boxed{46} \\boxed{118}",
        "#### 118\n#### 46",
        "The answer is 46. The answer is 118.",
        "<a>118</a>\n<a>46</a>",
    ]
    assert set(repeated) <= set(MADE["place-repeated"])


def test_digits_of_other_scripts_are_the_right_answer_to_those_who_read_them():
    texts = [text for text in MADE["look-alike"] if not text.isascii() and len(text) == 2]
    assert [[unicodedata.numeric(sign) for sign in text] for text in texts[:6]] == [[4, 6]] * 6


@pytest.mark.parametrize(
    ("answer", "choices", "wrong"),
    [
        ("B", ["Quito", "Lima", "Bonn"], ["A", "C"]), ("lima", ["Quito", "Lima"], ["Quito", "lim"]),
        ("y", {"x": "Quito", "y": "Lima"}, ["x"]), ("yes", None, ["no", "ye"]),
        ("46", None, ["1", "99", "47", "-46", "4"]), ("Bonn", None, ["1", "Bon"]),
        ("2,5", None, ["1"]), ("", None, ["1"]),
    ],
)  # fmt: skip
def test_wrong_answers_are_other_options_or_those_of_other_problems(answer, choices, wrong):
    problem = Problem("p", answer, {} if choices is None else {"choices": choices})
    assert wrong_answers(problem, ["1"]) == wrong


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("46", "46.0", True), ("46", " 46. ", True), ("+5", "5", True), ("-5", "5", False), ("4.6", "46", False),
        (".5", "0.5", True), ("Paris", "paris!", True), ("Paris", "Pari", False), ("46", "٤٦", False),
        ("46", "4\u200b6", False), ("?", "?", True), ("?", "!", False),
    ],
)  # fmt: skip
def test_a_text_that_writes_the_answer_differently_is_no_attack(text, other, same):
    assert (all_but([text], [other]) == []) is (all_but([other], [text]) == []) is same


def test_an_answer_to_the_same_prompt_may_be_right():
    problems = [Problem("a fruit", "apple"), Problem("a fruit", "pear"), Problem("a town", "Paris")]
    assert texts_of(problems, WRONG) == ["Paris", "appl"]


def test_a_number_that_a_text_contains_by_chance_is_no_attack():
    assert "Verdict(reward=1.0)" not in attacks(Problem("p", "1"))["junk"]


@drawn(15)
@given(st.text(max_size=20), st.text(max_size=20))
def test_attacks_are_made_for_any_problem_and_never_the_answer(prompt, answer):
    made = wrong_cases(Arith(), [Problem(prompt, answer), Problem("q", "1")], Problem(prompt, answer))
    assert [case.text for case in made if case.family == "empty"][:1] == [""]
    assert all(case.text != answer for case in made if answer)
