import pytest

from verifiers import Choice, Problem

CAPITALS = Problem("What is the capital of Peru?", "B", {"choices": ["Quito", "Lima", "New Lima", "La Paz"]})


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        *((text, "B") for text in ("B", "(b)", "**B**", "B.", "[B]", "option B", "$\\text{B}$", "Lima", "B) Lima")),
        *((text, "B") for text in ("The answer is B because of its port, not A.", "It is Lima.", "\\boxed{(B)}")),
        ("It is New Lima.", "C"),
        ("B) Quito", None),
        ("\\boxed{A} \\boxed{B}", None),
        ("The answer is A. The answer is B.", None),
        ("limay", None),
        ("", None),
    ],
)
def test_a_choice_is_named_by_its_label_or_text(text, choice):
    assert Choice().extract(CAPITALS, text) == choice
    assert Choice().verify(CAPITALS, text).reward == (choice == "B")


@pytest.mark.parametrize(
    ("metadata", "answer", "text"),
    [({"choices": {"Y": "yes", "N": "no"}}, "yes", "Y"), ({}, "C", "c"), ({"choices": ["1", "2"]}, "2", "B")],
)
def test_labels_may_be_given(metadata, answer, text):
    assert Choice().verify(Problem("Which?", answer, metadata), text).reward == 1.0
