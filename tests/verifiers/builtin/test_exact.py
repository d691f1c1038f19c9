import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Exact, Problem

SHELLEY = Problem("Who wrote Frankenstein?", "Mary Shelley")


@pytest.mark.parametrize(
    ("options", "completion"),
    [
        ({"ignore_case": True}, "MARY shelley"),
        ({"collapse_whitespace": True}, "Mary \n Shelley"),
        ({"ignore_punctuation": True}, "«Mary Shelley!»"),
        ({"unicode": "NFKC"}, "Ｍary Shelley"),
        ({"ignore_case": True, "ignore_punctuation": True, "collapse_whitespace": True}, " mary,\n SHELLEY."),
        ({"inside": "answer"}, "I think so. <answer> Mary Shelley </answer> Or not."),
    ],
)
def test_an_option_forgives_what_it_says_and_nothing_does_without_it(options, completion):
    assert Exact(**options).verify(SHELLEY, completion).reward == 1.0
    assert Exact().verify(SHELLEY, completion).reward == 0.0
    assert Exact(**options).verify(SHELLEY, re.sub("[lL]", "", completion)).reward == 0.0


@pytest.mark.parametrize(
    ("answer", "forgiven", "other"),
    [
        (
            "5",
            ["5.", "(5)", '"5"', "5,", "«5»", "[5]."],
            ["-5", "\u20135", "\u22125", "-(5)", "- 5", "5%", "5 %", "5!", ".5", "5.0"],
        ),
        ("-5", ["-5.", "(-5)", "-5;"], ["5", "--5", "\u22125", "-.5"]),
        ("314", ["314."], ["3.14", "31,4", "3-14", "3:14", "3/14", "3 / 14"]),
        ("1,234", ["1,234."], ["1234", "1.234"]),
        ("sister-in-law", ["sister in-law".replace(" ", ""), "sisterinlaw"], ["sister in law"]),
        ("COVID-19", ["COVID19", "(COVID-19)"], ["COVID 19", "COVID -19"]),
        ("- Lima", ["Lima", "* Lima!"], ["Lima 5"]),
    ],
)
def test_forgiven_punctuation_never_makes_another_number(answer, forgiven, other):
    verifier = Exact(ignore_punctuation=True)
    for text in (answer, *forgiven):
        assert verifier.verify(Problem("p", answer), text).reward == 1.0, text
    for text in other:
        assert verifier.verify(Problem("p", answer), text).reward == 0.0, text


def test_a_letter_is_one_however_it_is_stored():
    problem = Problem("summer?", "été")
    assert Exact().verify(problem, unicodedata.normalize("NFD", "été")).reward == 1.0
    assert Exact().verify(Problem("summer?", unicodedata.normalize("NFD", "été")), "été").reward == 1.0
    assert Exact(unicode="none").verify(problem, unicodedata.normalize("NFD", "été")).reward == 0.0
    assert Exact().verify(problem, "ete").reward == 0.0


def test_without_the_section_that_is_judged_nothing_is_rewarded():
    verifier = Exact(inside="answer")
    assert verifier.verify(SHELLEY, "Mary Shelley").reward == 0.0
    both = "<answer>Lord Byron</answer><answer>Mary Shelley</answer>"
    assert verifier.verify(SHELLEY, both).reward == 0.0
    assert verifier.demonstration(SHELLEY) == "<answer>Mary Shelley</answer>"


@given(st.text(), st.text(), st.sampled_from(["{1}", " {0}\r\n\t", "{0}.", "{0}{0}", "{0}\x00", "\x1c{0}", "{0}{1}"]))
def test_two_texts_match_where_their_forms_do(answer, other, form):
    def plain(text):
        return unicodedata.normalize("NFC", text.strip(" \t\r\n"))

    completion = form.format(answer, other)
    verdict = Exact().verify(Problem("p", answer), completion)
    assert verdict.reward == float(bool(plain(answer)) and plain(answer) == plain(completion))
