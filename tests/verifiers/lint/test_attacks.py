"""The attacks are many, wrong by construction, and what their names say."""

import re
import string
import unicodedata

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Problem
from verifiers.lint.attacks import FAMILIES, attacks, number, same
from verifiers.lint.cases import wrong_answers

SUM = Problem("12+34=", "46")
OTHERS = ["118", "109"]


@pytest.fixture(scope="module")
def made():
    return attacks(SUM, OTHERS, "0123456789+=")


def test_a_problem_with_a_plain_answer_meets_two_hundred_attacks_of_every_family_for_numbers(made):
    assert set(FAMILIES) == set(made)
    assert len({text for texts in made.values() for text in texts}) >= 200


def test_digits_of_other_scripts_are_the_right_answer_to_those_who_read_them(made):
    texts = made["disguised-answer"][-10:]
    assert not any(text.isascii() for text in texts)
    values = [[unicodedata.numeric(sign) for sign in text] for text in texts]
    assert values == [[4, 6]] * 10
    assert any(text.isdecimal() and int(text) == 46 for text in texts)  # int() reads them, too


def test_the_answer_stands_first_last_or_between(made):
    several = [re.findall("[0-9]+", text) for text in made["shotgun"] if re.search("[0-9]", text)]
    places = [(found[0] == "46", "46" in found[1:-1], found[-1] == "46") for found in several]
    assert {place: places.count(place) for place in places} == {
        (True, False, False): 4, (False, True, False): 12, (False, False, True): 4,
    }  # fmt: skip


def test_right_answers_are_no_attacks():
    honest = ["46.", "The answer is 46", "forty-six"]
    texts = {text for texts in attacks(SUM, ["46.0", "Forty six", "47"], honest=honest).values() for text in texts}
    assert not texts & {"46", "46.0", "Forty six", *honest}
    assert "47" in texts


@drawn(15)
@given(st.integers(-(10**6), 10**6), st.lists(st.integers(-(10**6), 10**6), max_size=5))
def test_no_attack_is_the_number(answer, others):
    for texts in attacks(Problem("p", str(answer)), [str(other) for other in others]).values():
        assert not any(text.isascii() and number(text) == answer for text in texts)


@drawn(40)
@given(st.text(max_size=20), st.text(max_size=20))
def test_attacks_are_made_for_any_problem(prompt, answer):
    made = attacks(Problem(prompt, answer))
    assert made["empty"][0] == ""
    assert answer == "" or all(answer != text for texts in made.values() for text in texts)


@pytest.mark.parametrize(
    ("text", "other", "are"),
    [
        ("46", "46.0", True), ("46", " 46. ", True), ("+5", "5", True), ("-5", "5", False), ("4.6", "46", False),
        ("0.3333", "0.33333", True), ("4.5", "4.59", False), ("999", "1000", False),
        ("Paris", "paris!", True), ("Paris", "Pari", False), ("1+2", "1 + 2", True), ("1+2", "1-2", False),
        ("46", "٤٦", False), ("46", "4\u200b6", False), ("?", "?", True), ("?", "!", False), ("", "", True),
    ],
)  # fmt: skip
def test_sameness(text, other, are):
    assert same(text, other) is are
    assert same(other, text) is are


def test_an_answer_to_the_same_prompt_may_be_right():
    problems = [Problem("a fruit", "apple"), Problem("a fruit", "pear"), Problem("a town", "Paris")]

    class Any(Arith):
        alphabet = string.printable

    assert "pear" not in wrong_answers(Any(), problems, problems[0])
    assert "Paris" in wrong_answers(Any(), problems, problems[0])
