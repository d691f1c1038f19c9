"""What verifiers of answers do alike: thoughts, the place of the answer, and references that cannot be judged by."""

import pytest

from verifiers import Problem, make_verifier
from verifiers.answer import PLACES
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


TARGET = Problem("3 5 7=26:", "3*7+5", {"numbers": [3, 5, 7], "target": 26})
PLACED = {"numeric": VERIFIERS["numeric"], "math": Problem("?", r"3\pi"), "choice": VERIFIERS["choice"],
          "countdown": TARGET, "reasoning_gym:gcd": BY_DEFAULT["reasoning_gym"][1]}  # fmt: skip
FORMS = {
    "boxed": "\\boxed{{{}}}\n1",
    "hash": "1\n#### {}\n2",
    "tag": "<answer>{}</answer>\n1",
    "stated": "It is {}.\n1",
}


@pytest.mark.parametrize("name", PLACED)
def test_the_place_of_the_answer_is_chosen(name):
    problem = PLACED[name]
    for place in PLACES:
        verifier = make_verifier(name, place=place)
        paid = [verifier.verify(problem, form.format(problem.answer)).reward for form in FORMS.values()]
        assert paid == [float(place in (each, "any")) for each in FORMS], place
        alone = verifier.verify(problem, f"9 tens\n{problem.answer}").reward
        assert alone == float(place in ("any", "last")), place
        assert verifier.verify(problem, verifier.demonstration(problem)).reward == 1.0
        assert verifier.extract(problem, "I do not know.") is None


COUNTS = [{}, {"numbers": [3, 5]}, {"target": 8}, {"numbers": "35", "target": 8}, {"numbers": None, "target": 0},
          {"numbers": [3, "5"], "target": 8}, {"numbers": [3, [5]], "target": 8},
          {"numbers": [3, 5], "target": "8"}]  # fmt: skip
UNUSABLE = [
    *(("exact", {}, Problem("p", answer), "no reference answer") for answer in ("", " \n")),
    ("exact", {"ignore_punctuation": True}, Problem("p", "?!"), "no reference answer"),
    ("numeric", {}, Problem("How many?", "many"), "'many'"),
    *(("math", {}, Problem("?", answer), repr(answer)) for answer in ("", "9^{9^{9^9}}", "(((")),
    ("choice", {}, Problem("Which?", "Bonn", {"choices": ["Quito", "Lima"]}), "'Bonn'"),
    *(("countdown", {}, Problem("3 5=8:", "3+5", metadata), "'numbers'") for metadata in COUNTS),
]


@pytest.mark.parametrize(("name", "options", "problem", "named"), UNUSABLE)
def test_a_reference_that_cannot_be_read_is_an_error_and_no_reward_of_zero(name, options, problem, named):
    for text in ("", "43", "anything", problem.answer):
        verdict = make_verifier(name, **options).verify(problem, text)
        assert (verdict.reward, verdict.status) == (0.0, "error") and named in verdict.reason


CAPITALS = Problem("What is the capital of Peru?", "B", {"choices": ["Quito", "Lima", "New Lima", "La Paz"]})
PRODUCT = Problem("", "42.0", {"entry": {"question": "?", "answer": "42.0", "metadata": {}}})
LEFT = Problem("How much is left?", "1/4")
VOTES = [
    ("numeric", LEFT, {"0.25": "1/4", "25%": "1/4", "It is 1/4.": "1/4", "\\boxed{0.250}": "1/4", "nothing": None}),
    (
        "choice",
        CAPITALS,
        {"(b)": "B", "Lima": "B", "It is New Lima.": "C", "B) Quito": None, "A or B": None, "E": None},
    ),
    ("math", Problem("?", "46"), {"\\boxed{46}": "46", "46.0": "46", "\\boxed{ \\dfrac{x}{2} + 1}": "\\frac{x}{2}+1"}),
    ("countdown", TARGET, {"It is $\\boxed{3*7+5}$.\n3*7+7": "3*7+5", "3 * 7 + 5 = 26": "3*7+5"}),
    ("reasoning_gym:products", PRODUCT, {"It is 42.": "42.0", "It is 43.": "43"}),
]


@pytest.mark.parametrize(("name", "problem", "votes"), VOTES)
def test_votes_are_for_what_an_answer_means(name, problem, votes):
    verifier = make_verifier(name)
    assert {text: verifier.extract(problem, text) for text in votes} == votes


def test_documents_that_are_equal_vote_together():
    verifier, problem, *_ = BY_DEFAULT["json_schema"]
    texts = ('{"a": 1, "year": 1815}', '```\n{"year": 1815, "a": 1}\n```', "I do not know.")
    one, other, none = (verifier.extract(problem, text) for text in texts)
    assert one == other and none is None
