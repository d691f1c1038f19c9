"""The attacks are many, wrong by construction, and what their names say."""

import random
import re
import string
import unicodedata

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Problem
from verifiers.lint.attacks import FAMILIES, attacks
from verifiers.lint.cases import ATTACKED, corpus, shorten, wrong_answers
from verifiers.lint.likeness import near_misses, number, same

SUM = Problem("12+34=", "46")
OTHERS = ["118", "109"]


@pytest.fixture(scope="module")
def made():
    return attacks(SUM, OTHERS, "0123456789+=")


def test_every_family_says_what_its_texts_are():
    assert len(FAMILIES) >= 24
    for name, make in FAMILIES.items():
        assert re.fullmatch("[a-z-]+", name)
        assert (make.__doc__ or "").strip().endswith(".")


def test_a_problem_with_a_plain_answer_meets_two_hundred_attacks_of_every_family_for_numbers(made):
    assert set(FAMILIES) - set(made) == {"homoglyphs"}  # nothing looks like 4 or 6
    assert len({text for texts in made.values() for text in texts}) >= 200


def test_what_the_issue_lists_is_there(made):
    assert made["empty"] == [""]
    assert SUM.prompt in made["echo"]
    assert all(set(map(str, range(1, 1001))) == set(re.findall("[0-9]+", text)) for text in made["every-number"])
    assert "A B C D E" in made["all-choices"]
    assert max(map(len, made["junk"])) == 100_000
    assert "\x00" in made["control-characters"]
    assert "<|endoftext|>" in made["special-tokens"]
    assert max(sum(sign.isdigit() for sign in text) for text in made["huge-integer"]) >= 5000
    assert max(text.count("(") for text in made["deep-nesting"]) == 5000


def test_digits_of_other_scripts_are_the_right_answer_to_those_who_read_them(made):
    texts = made["non-latin-digits"]
    assert len(texts) == 10
    assert not any(text.isascii() for text in texts)
    values = [[unicodedata.numeric(sign) for sign in text] for text in texts]
    assert values == [[4, 6]] * 10
    assert any(text.isdecimal() and int(text) == 46 for text in texts)  # int() reads them, too


def test_the_answer_stands_where_the_family_says(made):
    where = {"shotgun-first": 0, "shotgun-last": -1}
    for family, position in where.items():
        for text in made[family]:
            assert re.findall("[0-9]+", text)[position] == "46"
    for family in ("shotgun", "every-number"):
        for text in made[family]:
            found = re.findall("[0-9]+", text)
            assert "46" in found[1:-1]
            assert "46" not in (found[0], found[-1])


@pytest.mark.parametrize("answer", ["B", "yes", "no", "true", "left"])
def test_choices_have_the_answer_neither_first_nor_last(answer):
    for text in attacks(Problem("?", answer))["all-choices"]:
        words = re.findall(r"[A-Za-z]+", text)
        if answer in words and len(words) > 1:
            assert answer in words[1:-1]
            assert answer not in (words[0], words[-1])


def test_choices_of_the_problem_are_used():
    for choices in (["red", "green", "blue"], {"red": 1, "green": 2, "blue": 3}):
        texts = attacks(Problem("?", "green", {"choices": choices}))["all-choices"]
        assert any({"red", "green", "blue"} <= set(text.split(" or ")) for text in texts)


def test_homoglyphs_look_the_same_and_are_not():
    [text] = attacks(Problem("?", "Paris"))["homoglyphs"]
    assert (len(text), text == "Paris", text.isascii()) == (5, False, False)


def test_an_answer_of_several_lines_or_with_markup_is_only_attacked_where_that_is_wrong_for_sure():
    for answer in ("def f():\n    return 1\n", '{"a": 1}', "\\frac{1}{2}"):
        families = set(attacks(Problem("?", answer), ["another"]))
        assert not families & {"shotgun", "glued", "negation", "non-latin-digits", "part-of-answer"}
        assert {"empty", "junk", "wrong-answer", "deep-nesting"} <= families


def test_right_answers_are_no_attacks():
    honest = ["46.", "The answer is 46", "forty-six"]
    texts = {text for texts in attacks(SUM, ["46.0", "Forty six", "47"], honest=honest).values() for text in texts}
    assert not texts & {"46", "46.0", "Forty six", *honest}
    assert "47" in texts


@pytest.mark.parametrize("answer", ["1", "0", "5000", "1.0", "10"])
def test_a_text_that_names_the_number_by_chance_is_left_out(answer):
    made = attacks(Problem("?", answer))
    for family in ("persuasion", "not-a-number", "alphabet", "junk"):
        for text in made.get(family, []):
            numbers = re.findall(r"[-+]?[0-9]+(?:\.[0-9]+)?", text)
            assert not any(number(each) == number(answer) for each in numbers)


@drawn(15)
@given(st.integers(-(10**6), 10**6), st.lists(st.integers(-(10**6), 10**6), max_size=5))
def test_no_attack_is_the_number(answer, others):
    for texts in attacks(Problem("p", str(answer)), [str(other) for other in others]).values():
        assert not any(text.isascii() and number(text) == answer for text in texts)


@drawn(40)
@given(st.text(max_size=20), st.text(max_size=20))
def test_attacks_are_made_for_any_problem(prompt, answer):
    made = attacks(Problem(prompt, answer))
    assert made["empty"] == [""]
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


@pytest.mark.parametrize(("answer", "count"), [("46", 4), ("-3", 4), ("1234567", 2), ("4.5", 0), ("x", 0), ("", 0)])
def test_near_misses_are_other_numbers(answer, count):
    found = near_misses(answer)
    assert len(found) == count
    assert answer not in found


def test_wrong_answers_of_a_problem_are_those_of_others_and_near_misses():
    rng = random.Random(0)
    problems = [Arith().sample(rng) for _ in range(8)]
    found = wrong_answers(Arith(), problems, problems[0])
    assert problems[1].answer in found
    assert str(int(problems[0].answer) + 1) in found
    assert problems[0].answer not in found


def test_an_answer_to_the_same_prompt_may_be_right():
    problems = [Problem("a fruit", "apple"), Problem("a fruit", "pear"), Problem("a town", "Paris")]

    class Any(Arith):
        alphabet = string.printable

    assert "pear" not in wrong_answers(Any(), problems, problems[0])
    assert "Paris" in wrong_answers(Any(), problems, problems[0])


def test_the_corpus_is_the_same_each_time():
    problems = Arith().examples()
    first, again = (corpus(Arith(), problems, own=True) for _ in range(2))
    assert first == again
    assert {case.problem.prompt for case in first if case.attack} == {p.prompt for p in problems[:ATTACKED]}


def test_a_wrong_answer_is_added_to_right_and_to_wrong_completions():
    cases = corpus(Arith(), [SUM, Problem("1+1=", "2")], own=False)
    added = [case for case in cases if case.base is not None]
    families = {cases[case.base].family for case in added}
    assert families == {"reference", "wrong-answer"}
    for case in added:
        assert cases[case.base].text in case.text
        assert cases[case.base].problem is case.problem


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a", "'a'"), ("é", "'é'"), ("\x1b[2J", r"'\x1b[2J'"), ("\u2003", r"'\u2003'"), ("", "''")],
)
def test_a_text_is_shown_in_one_harmless_line(text, shown):
    assert shorten(text) == shown


def test_a_long_text_is_cut_with_its_length():
    assert shorten("x" * 1000, 20) == "'" + "x" * 17 + "… (1000 characters)"
