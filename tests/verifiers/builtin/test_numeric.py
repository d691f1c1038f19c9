import pytest

from verifiers import Numeric, Problem


def pays(answer, text, prompt="How many?", **arguments):
    verdict = Numeric(**arguments).verify(Problem(prompt, answer), text)
    assert verdict.status == "ok"
    return verdict.reward == 1.0


@pytest.mark.parametrize(
    ("prompt", "answer", "text", "paid"),
    [
        ("What is 40 + 3?", "43", "The sum is **43**.", True),
        ("What is 40 + 3?", "43", "40 + 4 = 44", False),
        ("How much is left?", "0.25", "It is 25.", False),
        ("What percent is left?", "25", "0.25", False),
        ("How much is left?", "25%", "25", True),
        ("How far?", "90 km", "90", True),
        ("How far?", "90 km", "90 m", False),
        ("How far?", "90", "90 miles", True),
        ("What is due?", "$8", "8 dollars", True),
        ("What is due?", "$8", "€8", False),
        ("How many?", "24 - 5 is what is left.\n#### 19", "19", True),
    ],
)
def test_the_number_in_the_place_is_compared_exactly(prompt, answer, text, paid):
    assert pays(answer, text, prompt) == paid


@pytest.mark.parametrize(
    ("arguments", "text", "paid"),
    [
        ({"tolerance": 0.5}, "42.5", True), ({"tolerance": 0.5}, "42.4", False),
        ({"relative": 0.1}, "47.3", True), ({"relative": 0.1}, "47.4", False),
        ({"inside": "answer"}, "<answer>43</answer>", True), ({"inside": "answer"}, "43", False),
        ({"inside": "/think"}, "<think>1</think>43", True),
    ],
)  # fmt: skip
def test_arguments(arguments, text, paid):
    assert pays("43", text, **arguments) == paid


def test_votes_are_for_what_a_number_means():
    verifier, problem = Numeric(), Problem("How much is left?", "1/4")
    texts = ("0.25", "25%", "It is 1/4.", "\\boxed{0.250}")
    assert {verifier.extract(problem, text) for text in texts} == {"1/4"}
    assert verifier.extract(problem, "nothing") is None
