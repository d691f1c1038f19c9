"""The place of an answer, docs/answers.md, line by line."""

import pytest

from verifiers.answer import PLACES, answer_in, boxes, placed


def word(text):
    """Read a word in capitals, as a verifier reads its kind of answer."""
    return next((each.strip(".,") for each in text.split() if each.isupper()), None)


def given(text, place="any"):
    return answer_in(text, place, word, lambda text: word(text.partition(" ")[0]))


@pytest.mark.parametrize(
    ("text", "found"),
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
def test_the_first_place_that_occurs_decides(text, found):
    assert {place: given(text, place) for place in PLACES if given(text, place)} == found


@pytest.mark.parametrize("form", ["\\boxed{{{}}}", "\n#### {}\n", "<answer>{}</answer>", "The answer is {}. "])
def test_answers_in_one_place_have_to_agree(form):
    yes, no = form.format("YES"), form.format("NO")
    assert given(yes + yes) == "YES" and given(yes + no) is None
    assert given(form.format("unknown") + yes) == "YES"


def test_a_place_without_an_answer_is_not_passed_over():
    assert given("\\boxed{no idea} The answer is YES.") is None
    assert given("\\boxed{} The answer is YES.") == "YES"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\boxed{\\frac{1}{2}} \\boxed {x}", ["\\frac{1}{2}", "x"]),
        ("\\boxed{\\boxed{3}}", ["\\boxed{3}"]),
        ("\\boxed{\\{1, 2\\}}", ["\\{1, 2\\}"]),
        ("{\\boxed{3}} } \\boxed{4", ["3"]),
    ],
)
def test_braces_of_a_box_are_balanced(text, found):
    assert boxes(text) == found


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>The answer is NO.</think>The answer is YES.", "YES"),
        ("no tag before</think>YES", "YES"),
        ("The answer is YES. <think>or NO", "YES"),
        ("<think> YES", None),
        ('A "<think>" in quotes, YES', "A"),
    ],
)
def test_thoughts_are_cut_off_and_one_that_never_ends_is_no_answer(text, answer):
    assert given(text) == answer


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("answer", ["YES", "some working\n#### YES"])
def test_a_reference_is_found_in_the_place_where_it_is_put(place, answer):
    assert given(placed(answer, place), place) == "YES" or place == "last"


@pytest.mark.parametrize(
    "part", ["\\boxed{", "}", "{", "<answer>", "answer is ", "answer", "is ", "= ", "####", "<think>", "\n", "YES "]
)
def test_any_text_is_read_without_backtracking(part):
    for place in PLACES:
        given(part * (200_000 // len(part)), place)
