"""Numbers as docs/answers.md describes them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.numbers import Number, first_number, last_number, leading_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18), ("-18", -18), ("\u221218", -18), ("x=-18", -18), ("(-18)", -18), ("minus 18", -18), ("-$18", -18),
        ("1,234,567.5", Fraction("1234567.5")), ("1{,}234", 1234), ("1\\,234", 1234), ("1\u202f234", 1234),
        (".5", Fraction(1, 2)), ("18.0", 18), ("1.8e1", 18), ("007", 7), ("3/4", Fraction(3, 4)),
        ("3 1/2", Fraction(7, 2)), ("$3\\frac{1}{2}$", Fraction(7, 2)), ("-\\dfrac{3}{4}", Fraction(-3, 4)),
        ("18km", 18), ("**18** apples", 18), ("$\\text{is } 18$", 18), ("\\(18\\)", 18), ("18^\\circ", 18),
        ("9 * 2 = 18", 18), ("9 × $2 = $18", 18), ("$18/day", 18), ("5 -3 = 2", 2), ("18 or 19", 18),
    ],
)  # fmt: skip
def test_a_number_is_read(text, value):
    number = first_number(text)
    assert number is not None and number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "", "eighteen", "x2", "18 + x", "x * 18", "2^3", "18²", "12-15", "1.2.3", "0,75", "12,34", "1_000", "3½", "1/0",
        "0 1/0", "1e999", "H2O", "4\u0666", "\uff14\uff16", "nan", "inf", "9" * 61, "9" * 100_000, "-" * 9,
    ],
)  # fmt: skip
def test_what_is_no_number_or_a_part_of_an_operation_is_not_read(text):
    assert first_number(text) is None and last_number(text) is None


@pytest.mark.parametrize(
    ("text", "unit", "percent"),
    [
        ("90 km", "km", False), ("90 Kilometers", "km", False), ("90 km/h", "km/h", False), ("90 m/s²", "", False),
        ("$8", "$", False), ("8 dollars", "$", False), ("8 €", "€", False), ("5 apples", "", False),
        ("180°", "°", False), ("25%", "", True), ("25 \\%", "", True), ("25 percent", "", True),
    ],
)  # fmt: skip
def test_a_unit_or_percent_is_a_suffix_in_a_listed_spelling(text, unit, percent):
    number = first_number(text)
    assert (number.unit, number.percent) == (unit, percent)


def test_the_first_the_last_and_the_one_that_a_text_begins_with():
    text = "about 3 apples, 4 pears, 5 + 6 = 11"
    assert [read(text).value for read in (first_number, last_number, leading_number)] == [3, 11, 3]
    assert leading_number("a good idea, since 3") is None
    assert last_number("7 " + "x" * 5_000).value == 7


def test_numbers_agree_whatever_their_units():
    assert Number(Fraction(90), unit="km") == Number(Fraction(90)) != Number(Fraction(90), percent=True)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_read(text):
    for read in (first_number, last_number, leading_number):
        read(text)


@pytest.mark.parametrize(
    "part",
    ["1", "1,", "1,000", "43 ", "3/", "- ", "$", "\\frac{1}", "is 43 + ", "\u00a0", "**", "4 km/", "\\text{", "1 1/"],
)
def test_a_long_text_is_read_without_backtracking(part):
    for read in (first_number, last_number, leading_number):
        read(part * (20_000 // len(part)))
