import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Format, Problem

PROBLEM = Problem("2*3?", "6")


@pytest.mark.parametrize(
    "completion",
    [
        "<think>Three twos.</think><answer>6</answer>",
        "\n<think>\nThree\n\ntwos. </think>\r\n\t<answer> 6</answer>\n",
        "<think>a < b > c & d</think><answer><b>6</b></answer>",
        "<think>" + "x" * 100_000 + "</think><answer>6</answer>",
        "<think>e\u0301\u200b</think><answer>\u0665</answer>",
        "<think>\U0001f914</think><answer>.</answer>",
    ],
)
def test_sections_in_order_are_the_form(completion):
    assert Format().verify(PROBLEM, completion).reward == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "6",
        "<think>x</think>",
        "<answer>6</answer><think>x</think>",
        "<think>x</think><answer> \n\u00a0</answer>",
        "<think>\u2060 \ufeff</think><answer>6</answer>",
        "<think>x</think><answer>\u3164\u115f\u1160\uffa0\u2800</answer>",
        "<think>x</think><answer>\u0301</answer>",
        "<think>x</think><answer>\x00\x1b</answer>",
        "<think>x</think><answer>\ud800\ue000\u00ad\u202e\u034f\ufe0f\U000e0041</answer>",
        "<think>x</think> so <answer>6</answer>",
        "<think>x</think><answer>6</answer>\x00",
        "<think>x<answer>6</answer></think>",
        "<think>x</think><think>y</think><answer>6</answer>",
        "<think>x</answer></think><answer>6</answer>",
        "< think>x</think><answer>6</answer>",
        "<think>" * 10_000 + "x" + "</think>" * 10_000,
    ],
)
def test_anything_else_is_not(completion):
    assert Format().verify(PROBLEM, completion).reward == 0.0


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True), min_size=1, max_size=4, unique=True))
def test_tags_may_have_any_names(tags):
    verifier = Format(tags)
    assert Format(", ".join(tags)).tags == verifier.tags == tags
    completion = verifier.demonstration(PROBLEM)
    assert verifier.verify(PROBLEM, completion).reward == 1.0
    assert verifier.verify(PROBLEM, completion.replace(f"</{tags[-1]}>", "")).reward == 0.0


def test_the_demonstration_takes_its_sections_from_the_problem():
    assert Format().demonstration(Problem("p", "6", {"think": "2+2+2"})) == "<think>2+2+2</think><answer>6</answer>"
    assert Format().demonstration(Problem("p", "", {"answer": "5"})) == "<think>...</think><answer>5</answer>"
