"""Numbers in completions, and texts of any length; places and thoughts are in test_laws.py and answers/."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from verifiers.answer import PLACES, answer_in, boxes
from verifiers.builtin.quiet import quiet
from verifiers.numbers import first_number, last_number, leading_number
from verifiers.text import collapsed, conclusion, last_line


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
    "part",
    [
        "\\boxed{", "}", "{", "<answer>", "answer is ", "answer", "is ", "= ", "####", "<think>", "\n", "YES ", "1",
        "1,", "1,000", "43 ", "3/", "- ", "$", "\\frac{1}", "is 43 + ", "\u00a0", "**", "4 km/", "\\text{", "1 1/",
    ],
)  # fmt: skip
def test_a_long_text_is_read_without_backtracking(part):
    for place in PLACES:
        answer_in(part * (200_000 // len(part)), place, first_number)
    for read in (first_number, last_number, leading_number, last_line, collapsed, boxes, conclusion):
        read(part * (20_000 // len(part)))


def test_other_threads_are_warned_while_one_is_quiet():
    with ThreadPoolExecutor(1) as other, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("of the quiet thread", UserWarning, stacklevel=1)
            other.submit(warnings.warn, "of another thread", UserWarning, stacklevel=1).result()
        warnings.warn("afterwards", UserWarning, stacklevel=1)
    assert [str(each.message) for each in seen] == ["of another thread", "afterwards"]
