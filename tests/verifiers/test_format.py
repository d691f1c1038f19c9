from hypothesis import given
from hypothesis import strategies as st

from verifiers import Format, Problem

PROBLEM = Problem("2*3?", "6")


def test_a_long_text_is_read():
    assert Format().verify(PROBLEM, f"<think>{'x' * 100_000}</think><answer>6</answer>").reward == 1.0
    assert Format().verify(PROBLEM, "<think>" * 10_000 + "x" + "</think>" * 10_000).reward == 0.0


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
