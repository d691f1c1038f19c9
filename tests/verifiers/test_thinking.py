"""What models think between tags is not judged, where a verifier is told so."""

import pytest

from verifiers import Problem, make_verifier
from verifiers.text import conclusion

VERIFIERS = {
    "exact": Problem("9+9=", "18"),
    "numeric": Problem("9+9=", "18"),
    "math": Problem("9+9=", "18"),
    "choice": Problem("Which?", "B", {"choices": ["a", "b"]}),
    "reasoning_gym:gcd": None,
}
THOUGHTS = [
    "<think>\nfirst {wrong}, then {right}\n</think>\n\n",
    "<think>{wrong}</think>",
    "no <think> before\n</think> ",
]


def made(name, inside):
    verifier = make_verifier(name, inside=inside)
    problem = VERIFIERS[name] or verifier.examples()[0]
    return lambda text: (
        verifier.verify(problem, text.replace("{right}", problem.answer).replace("{wrong}", "17")).reward
    )


@pytest.mark.parametrize("name", VERIFIERS)
def test_only_what_follows_the_thoughts_is_judged(name):
    reward = made(name, "/think")
    for thought in THOUGHTS:
        assert reward(thought + "{right}") == 1.0
        assert reward(thought + "17") < 1.0
        assert reward(thought) < 1.0
    for text in (
        "{right}",
        "<think>{right}",
        "{right}</think>",
        "<think>a</think>{right}</think>{right}",
        "</think>" * 9,
    ):
        assert reward(text) < 1.0


@pytest.mark.parametrize("name", ["exact", "numeric", "math", "choice"])
def test_a_demonstration_has_an_empty_thought(name):
    verifier = make_verifier(name, inside="/think")
    problem = VERIFIERS[name]
    assert verifier.demonstration(problem) == f"<think></think>{problem.answer}"
    assert verifier.verify(problem, verifier.demonstration(problem)).reward == 1.0


BOOK = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
BY_DEFAULT = {  # verifier, a right answer, a wrong one
    "numeric": (make_verifier("numeric"), VERIFIERS["numeric"], "18", "17"),
    "math": (make_verifier("math"), VERIFIERS["math"], "18", "17"),
    "choice": (make_verifier("choice"), VERIFIERS["choice"], "B", "A"),
    "json_schema": (make_verifier("json_schema", schema=BOOK), Problem("Year?"), '{"year": 1815}', '{"year": "no"}'),
    "reasoning_gym": (gcd := make_verifier("reasoning_gym:gcd"), gcd.examples()[0], gcd.examples()[0].answer, "0"),
}
COMPLETIONS = {
    "{right}\n<think>Or {wrong}?": 1.0,
    "<think>{wrong}</think>{right}\n<think>{wrong}": 1.0,
    "{wrong}</think>\n{right}": 1.0,
    "<think>{wrong} <think>{wrong}</think>\n{right}": 1.0,
    "<think>\n{wrong}\n</think>\n{right}": 1.0,
    "{wrong}\n<think>{right}": 0.0,
    "<think>{wrong}</think> <think>{right}": 0.0,
    "\n<think>{right}": 0.0,
}


@pytest.mark.parametrize("name", BY_DEFAULT)
@pytest.mark.parametrize("completion", COMPLETIONS)
def test_every_verifier_reads_thoughts_alike(name, completion):
    verifier, problem, right, wrong = BY_DEFAULT[name]
    said = completion.replace("{right}", right).replace("{wrong}", wrong)
    assert verifier.verify(problem, said).reward == COMPLETIONS[completion]


@pytest.mark.parametrize("text", ['print("<think>")', "tags = '<think>', '</think>'", "Write `</think>` at its end."])
def test_a_tag_in_quotes_is_text(text):
    assert conclusion(text) == text
    assert conclusion(f"<think>{text}</think>{text}") == text
    assert conclusion(f"{text} <think>{text}") == f"{text} "
