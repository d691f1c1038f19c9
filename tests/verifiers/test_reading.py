"""How completions are read: thoughts, the place of the answer, numbers; docs/answers.md, line by line."""

import threading
import warnings
from fractions import Fraction

import pytest

from verifiers.answer import PLACES, answer_in, boxes
from verifiers.builtin.quiet import quiet
from verifiers.numbers import first_number, last_number, leading_number
from verifiers.text import collapsed, conclusion, last_line, normal_form

READERS = [first_number, last_number, leading_number, last_line, collapsed, boxes, conclusion]


def word(text):
    """Read a word in capitals, as a verifier reads its kind of answer."""
    return next((each.strip(".,") for each in text.split() if each.isupper()), None)


def found(text, place="any"):
    return answer_in(text, place, word, lambda text: word(text.partition(" ")[0]))


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("\\boxed{YES}\n#### NO", {"any": "YES", "boxed": "YES", "hash": "NO", "last": "NO"}),
        ("#### NO\nThe answer is YES.\nMAYBE", {"any": "NO", "hash": "NO", "stated": "YES", "last": "MAYBE"}),
        ("<answer>NO</answer> is NOT\nMAYBE", {"any": "NO", "tag": "NO", "stated": "NOT", "last": "MAYBE"}),
        ("The answer: YES, as x = NO", {"any": "YES", "stated": "YES", "last": "YES"}),
        ("**Answer:** YES", {"any": "YES", "stated": "YES", "last": "YES"}),
        ("The answer to this is:\n\nYES\n\nI HOPE so", {"any": "YES", "stated": "YES", "last": "I"}),
        ("It is YES, so x = NO there.", {"any": "NO", "stated": "NO", "last": "YES"}),
        ("It is said that YES", {"any": "YES", "last": "YES"}),
        ("YES\n\nNO\n ", {"any": "NO", "last": "NO"}),
        ("", {}),
    ],
)
def test_the_first_place_that_occurs_decides(text, answers):
    assert {place: found(text, place) for place in PLACES if found(text, place)} == answers


@pytest.mark.parametrize("form", ["\\boxed{{{}}}", "\n#### {}\n", "<answer>{}</answer>", "The answer is {}. "])
def test_answers_in_one_place_have_to_agree(form):
    yes, no = form.format("YES"), form.format("NO")
    assert found(yes + yes) == "YES" and found(yes + no) is None
    assert found(form.format("unknown") + yes) == "YES"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{no idea} The answer is YES.", None),
        ("\\boxed{} The answer is YES.", "YES"),
        ("<think>The answer is NO.</think>The answer is YES.", "YES"),
        ("no tag before</think>YES", "YES"),
        ("The answer is YES. <think>or NO", "YES"),
        ("<think> YES", None),
        ('A "<think>" in quotes, YES', "A"),
    ],
)
def test_thoughts_are_cut_off_and_no_place_is_passed_over(text, answer):
    assert found(text) == answer


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
    ("read", "text"),
    [
        *((last_line, text) for text in (("", ""), (" \n ", ""), ("46", "46"), ("a\n\n b \r\n 46 \n\n", "46"))),
        (last_line, ("a\n\x0b", "\x0b")),  # whitespace is ASCII's
        *((collapsed, text) for text in (("  a\t\r\nb\u00a0c \x1cd ", "a b\u00a0c \x1cd"), (" \n", ""))),
        *((lambda text: normal_form(text, "NFC"), text) for text in (("e\u0301", "é"), ("ﬁ", "ﬁ"))),
        (lambda text: normal_form(text, "NFKC"), ("ﬁ", "fi")),
        (lambda text: normal_form(text, "NFC"), ("a" + "\u0315\u0300" * 50_000, None)),  # it would take long
    ],
)
def test_lines_spaces_and_forms_of_a_text(read, text):
    assert read(text[0]) == text[1]


@pytest.mark.parametrize(
    "part",
    [
        "\\boxed{", "}", "{", "<answer>", "answer is ", "answer", "is ", "= ", "####", "<think>", "\n", "YES ", "1",
        "1,", "1,000", "43 ", "3/", "- ", "$", "\\frac{1}", "is 43 + ", "\u00a0", "**", "4 km/", "\\text{", "1 1/",
    ],
)  # fmt: skip
def test_a_long_text_is_read_without_backtracking(part):
    for place in PLACES:
        found(part * (200_000 // len(part)), place)
    for read in READERS:
        read(part * (20_000 // len(part)))


def test_other_threads_are_warned_while_one_is_quiet_and_nothing_is_left_behind():
    inside, done = threading.Event(), threading.Event()

    def be_quiet():
        with quiet():
            inside.set()
            done.wait(10)
            warnings.warn("of the quiet thread", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thread = threading.Thread(target=be_quiet)
        thread.start()
        inside.wait(10)
        warnings.warn("of another thread", UserWarning, stacklevel=1)
        done.set()
        thread.join()
        warnings.warn("afterwards", UserWarning, stacklevel=1)
    assert [str(each.message) for each in seen] == ["of another thread", "afterwards"]
