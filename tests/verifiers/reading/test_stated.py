"""The stated-result rule: ranks, working, corrections and alternatives, whatever the reader reads."""

import re

import pytest
from drawn import drawn
from hypothesis import example, given
from hypothesis import strategies as st

from verifiers.reading.statements.stated import BOX, UNCLEAR, Claim, Rank, boxed, claims, stated
from verifiers.reading.statements.statements import LONGEST_TEXT, MOST_STATEMENTS, statements


def number(claim):
    """Read a claim that is one whole number, with a few words after it."""
    if re.fullmatch(r"\D*[0-9]+ or [0-9]+\D*", claim.text):
        return UNCLEAR
    found = re.fullmatch(r"[\s$(]*([0-9]+)[ a-z]{0,20}[\s.,!$)]*", claim.text)
    return int(found[1]) if found else None


def label(claim):
    """Read a label: a reader of another kind."""
    found = re.fullmatch(r"\W*([A-D])\W*", claim.text)
    return found[1] if found else None


@pytest.mark.parametrize(
    ("text", "result"),
    [
        # ANSWER before CONCLUSION before ALONE before MENTION
        ("The answer is 18. 9 + 8 = 17.", 18),
        ("\\boxed{18}\n\n9 + 8 = 17", 18),
        ("#### 18\n9 + 8 = 17", 18),
        ("9+9=18, 18-1=17 #### 17", 17),
        ("9 + 8 = 17 #### 18", 18),
        ("18 is the answer. 9 + 8 = 17.", 18),
        ("17\n9 + 9 = 18", None),  # it begins with another answer
        ("First this.\n17\n9 + 9 = 18", 18),
        ("She walked.\n\n18\n\nThat was far.", 18),
        # the answer and a box have to agree; of conclusions the last one counts
        ("The answer is 17. The answer is 18.", None),
        ("\\boxed{17} and \\boxed{18}", None),
        ("The answer is 18.\n\n$\\boxed{18}$", 18),
        ("3 * 4 = 12. 12 + 6 = 18.", 18),
        ("17\n18", None),
        ("It is 17. It is 18.", None),
        ("x = 17, so x = 18", None),
        ("18 or 17", None),
        ("The answer is 17 or 18.", None),
        ("18. Or maybe 17.", None),
        ("The answer is 18. Alternatively, 17.", None),
        ("18. Or 18 apples.", 18),
        # reasons and pleasantries
        ("The answer is 18, because 9 + 8 = 17.", 18),
        ("It is 18, since 17 is odd.", 18),
        ("18 (the other one is 17)", 18),
        ("18\n\nLet me know if there is more!", 18),
        ("Is it 17?\n18", 18),
        ("the: 17\nor: 1\nTotal: 18", 18),
        ("The total is 18. Or: 17", None),
        ("x = 18\nCheck: 18 - 1 = 17\nx = 18", 18),
        ("Is it 18?", None),
        # corrections
        ("The answer is 17. No, 18.", 18),
        ("The answer is 17. Wait, that is wrong. It is 18.", 18),
        ("The answer is 17. Actually, it is 18.", 18),
        ("The answer is 17... wait, I forgot something. 9 + 9 = 18", 18),
        ("The answer is 18. Wait, that is wrong.", None),
        ("The answer is 18. Wait, let me check. Yes.", 18),
        ("The answer is 18.\n\nTo check: 18 - 1 = 17", 18),
        ("9 + 9 = 18\nCheck: 18 - 9 = 9", 18),
        # layout
        ("The answer is:\n\n\\[\n18\n\\]\n\nDone.", 18),
        ("**Answer**\n\n18", 18),
        ("### Final answer\n**18**", 18),
        ("The answers are:\n1. 17\n2. 18", None),
        ("The answers are:\n- 17\n- 18", None),
        ("1. One step.\n2. Another.\n3. 9 + 9 = 18", 18),
        ("| What | How many |\n|---|---|\n| All | 18 |", 18),
        ("```python\nx = 17\n```\n18", 18),
        ("```\n18\n```", 18),
        ("> **18**", 18),
        ("<think>The answer is 17.</think>18", 18),
        ("<think>The answer is 18.", None),
        ("", None),
    ],
)
def test_one_result_is_stated(text, result):
    assert stated(text, number) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("The correct answer is:\n\n**B) **", "B"),
        ("B\n\nExplanation: because of it.", "B"),
        ('The answer is "B".', "B"),
        ("Based on this, the answer is B.", "B"),
        ("The answer is A. No, B.", "B"),
        ("A\nB", None),
    ],
)
def test_the_reader_decides_what_a_result_is(text, result):
    assert stated(text, label) == result


def test_what_repeats_the_question_contradicts_nothing():
    known = {17}.__contains__
    assert stated("18\n\nThe first number is 17.", number, known=known) == 18
    assert stated("It is 17. It is 18.", number, known=known) == 18
    assert stated("18. Or maybe 18.", number, lambda one, other: False) is None


def test_what_is_asked_for_counts_before_what_is_not():
    asked = {"5 edges": True, "8 corners": False}.get
    assert stated("It has 5 edges. It has 8 corners", number, asked=lambda claim: asked(claim.text.strip("."))) == 5
    assert stated("It has 8 corners", number, asked=lambda claim: asked(claim.text)) == 8
    assert stated("It has 5 edges. The answer is 8 corners", number, asked=lambda claim: asked(claim.text)) == 8


def test_claims_say_where_they_stand():
    [group] = claims("So x is 18, because I say so.")
    assert group[0] == Claim("18", Rank.CONCLUSION, "is", "So x ", ", because I say so.")
    [first, second] = claims("$\\boxed{{1}}$ and \\boxed{2}.")
    assert [(first[0].text, first[0].rank, first[0].verb), second[0].text] == [("{1}", Rank.ANSWER, BOX), "2"]
    assert second[0].before.endswith("and ") and second[0].after == "."
    assert list(claims("Is it 18?")) == []
    assert [each.text for each in boxed("\\boxed{1}\n\\[ \\boxed{\\frac{1}{2}} \\] \\boxed{3")] == ["1", "\\frac{1}{2}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("No. The rest. No. 5 is.", ["No.", "The rest.", "No. 5 is."]),
        ("It is 3.5, e.g. half of 7. Good.", ["It is 3.5, e.g. half of 7.", "Good."]),
        ("2**3 is **8**. *So* `8`!", ["2**3 is 8.", "So 8!"]),
        ("It has 5, so 6 remain.", ["It has 5,", "so 6 remain."]),
        ("$$x\n= 3$$ and $y$", ["$x = 3$  and $y$"]),
        ("\\begin{align*}a &= 1\\\\ &= 2\\end{align*}", ["\\begin{align*}a &= 1\\\\ &= 2\\end{align*}"]),
        ("\\[\\begin{aligned}a &= 1\\\\ &= 2\\end{aligned}\\]", ["$a = 1 = 2$"]),
        ("a\nb\na", ["a", "b", "a"]),
        ("x" * 2000, []),
        ("---\n\n***", []),
    ],
)
def test_a_text_is_split_into_statements(text, said):
    assert statements(text) == said


PIECES = [*"018 .\n$\\{}[]*`|#:=-", "the answer is ", "\\boxed{", "no, ", "so ", "\\[", "```", "<think>", "or "]


@drawn(40)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
@example("`1`0")
def test_any_text_has_statements_and_a_result_or_none(text):
    assert all(each.strip() for each in statements(text))
    assert stated(text, number) in {None, *map(int, re.findall("[0-9]+", text))}


def test_a_long_text_is_read_from_its_end():
    text = "The answer is 17.\n" + "Well.\n" * LONGEST_TEXT + "The answer is 18."
    assert stated(text, number) == 18
    assert len(statements("\n".join(f"line {n}" for n in range(1000)))) == MOST_STATEMENTS
