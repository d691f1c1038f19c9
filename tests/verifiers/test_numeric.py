import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Numeric, Problem
from verifiers.builtin.numeric import read_number

READ = [
    ("18", 18),
    ("-18", -18),
    ("+18", 18),
    ("\u221218", -18),
    ("1,234", 1234),
    ("1,234,567.5", Fraction("1234567.5")),
    ("18.0", 18),
    (".5", Fraction(1, 2)),
    ("1.8e1", 18),
    ("1E-2", Fraction(1, 100)),
    ("3/4", Fraction(3, 4)),
    ("-3/4", Fraction(-3, 4)),
    ("25%", Fraction(1, 4)),
    ("007", 7),
    ("The answer is 18.", 18),
    ("The answer is **18**!", 18),
    ("18 apples!", 18),
    ("$\\boxed{18}$!", 18),
    ("18km", 18),
    ("18 km/h", 18),
    ("18 cm^2", 18),
    ("$18\\text{ cm}^2$", 18),
    ("18\u00a0", 18),
    ("18\u00a0°C", 18),
    ("$18^\\circ$", 18),
    ("$18/hour", 18),
    ("\\(18\\)", 18),
    ("\\[18\\]", 18),
    ("$$18$$", 18),
    ("$\\text{The answer is } 18$", 18),
    ("minus 18", -18),
    ("It is negative 18 degrees.", -18),
    ("-$18", -18),
    ("-\\boxed{18}", -18),
    ("25 %", Fraction(1, 4)),
    ("25\\%", Fraction(1, 4)),
    ("25 percent", Fraction(1, 4)),
    ("1\u202f234", 1234),
    ("1{,}234", 1234),
    ("1\\,234", 1234),
    ("3 1/2", Fraction(7, 2)),
    ("$3\\frac{1}{2}$", Fraction(7, 2)),
    ("-\\dfrac{3}{4}", Fraction(-3, 4)),
    ("1.8 * 10^1", 18),
    ("$1.8 \\times 10^{-1}$", Fraction(18, 100)),
    ("-10^3", -1000),
    ("9 * 2 = 18", 18),
    ("The total is 9 × $2 = $18.", 18),
    ("1.5 * 4 / (1 + 1) = 6 / 2 = 3", 3),
    ("x = 17 + 1 = 18", 18),
    ("No, 18.", 18),
    ("She has 18 more than Bob, no less.", 18),
    ("18 a day, I think", 18),
    ("It is not 17.\nIt is 18.", 18),
    ("That adds up to 18.", 18),
    ("~18", 18),
    ("$x \\approx 18$", 18),
    ("It costs 18€ (I think)", 18),
    ("**18**", 18),
    ("#### 18", 18),
    ("$\\boxed{18}$", 18),
    ("x=18", 18),
    ("Answer:18", 18),
    ("(-18)", -18),
    ("9 * 2 is\n18 coins\n\n", 18),
    ("17\nno, 18", 18),
    ("Ada has 18 apples", 18),
]


def test_the_only_number_of_the_last_line_is_read():
    assert [(text, number) for text, number in READ if read_number(text) != number] == []


def test_a_line_of_many_numbers_is_unclear_at_once():
    assert read_number("1+1+1=3") == 3
    assert read_number("1=" * 400 + "1") is None


UNCLEAR = [
    "", "\n", "eighteen", "17 or 18", "18 18", "18,19", "1,2,3", "12,34", "1,2345",
    "1.2.3", "18\n19 20", "x2", "H2O", "18th", "0x12", "1_000", "18a", "2^3", "2**3", "18!", "18 !", "(18)!",
    "\\boxed{18!}",
    "!=18", "x != 18", "$x\\ne18$", "≠18", "<= 18", "18 thousand", "18 \\text{ million}", "18k", "18 dozen",
    "0,018", "18,5", "00,018", "1,23,456", "18 x", "18 - x", "x - 18", "18 + tax", "x * 18", "18 * x", "18 pi",
    "\\sqrt{18}", "x^{18}", "18^{x}", "18_{b}", "half of 18", "18 and a half", "seventeen or 18", "ten minus 18",
    "more than 18", "at least 18", "18 or more", "Is it 18?", "18?", "not 18", "isn’t 18", "no answer: 18",
    "18 is wrong", "18 = 17", "1 + 18 = 18", "9 * 3 = 18", "18 = 9 * 2", "x != 9 * 2 = 18", "y9 * 2 = 18",
    "3 1/2 1/2", "3 5/4", "10^9999", "1 234", "18 i",
    "18<eos>", "18\x00", "18\x1c", "1\u200b8", "- 18", "\u2212 18", "--18", "+-18", "1e9999",
    "1e999999999", "1e-999999999", "nan", "inf", "-Infinity", "1/0", "0/0", "1/0.5", "1/2/3", "٤٦",
    "４６", "⁴⁶", "½", "18½", "4٦", "9" * 101, "9" * 5_000, "-" + "9" * 100_000, "0." + "3" * 5_000,
    "1" + ",000" * 50, "18" + " " * 2_000 + "x", "1 " * 50_000, "%", "5%%", ". .", "18e", "e18",
]  # fmt: skip


def test_what_is_unclear_is_no_number():
    assert [text for text in UNCLEAR if read_number(text) is not None] == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9 * 2 = 18", 18),
        ("17 or 18", 18),
        ("I have 18 left.\nThat is all.", 18),
        ("1 2\n" * 20_000 + "18", 18),
        ("18" + " " * 2_000, None),  # further back than is read
        ("9" * 1_500, None),
        ("9" * 900 + " 18 " + "x" * 997, None),
        ("18 x2", None),
        ("", None),
    ],
)
def test_without_strictness_the_last_number_is_read(text, number):
    assert read_number(text, strict=False) == number


@pytest.mark.parametrize(
    ("options", "answer", "completion", "reward"),
    [
        ({}, "0.1", "1/10", 1.0),
        ({}, "0.1", "0.10000000000000000001", 0.0),
        ({}, "1000000", "1000001", 0.0),
        ({}, "0", "-0", 1.0),
        ({}, "2 and 2 make\n4", "4", 1.0),
        ({}, "9 * 2 is it.\n#### 18", "18.", 1.0),
        ({"tolerance": 0.1}, "3", "3.1", 1.0),
        ({"tolerance": 0.1}, "3", "2.9", 1.0),
        ({"tolerance": 0.1}, "3", "3.1001", 0.0),
        ({"relative": 0.01}, "-200", "-202", 1.0),
        ({"relative": 0.01}, "-200", "-202.1", 0.0),
        ({"relative": 0.01}, "0", "0.001", 0.0),
        ({"relative": 0.01, "tolerance": 5}, "200", "204", 1.0),
        ({}, "18", "17 or 18", 0.0),
        ({"strict": False}, "18", "17 or 18", 1.0),
        ({"strict": False}, "18", "18 or 17", 0.0),
        ({"inside": "answer"}, "18", "1 2 3 <answer>18</answer> 4", 1.0),
        ({"inside": "answer"}, "18", "18", 0.0),
        ({"tolerance": 1e300}, "18", "nan", 0.0),
        ({}, "18 km", "18", 1.0),
        ({}, "18 km", "18 km.", 1.0),
        ({}, "18 km", "18 m", 0.0),
        ({}, "18", "18 m", 1.0),
        ({}, "18 m²", "18 m^2", 1.0),
        ({}, "25%", "0.25", 1.0),
        ({}, "25", "25%", 0.0),
    ],
)
def test_numbers_are_compared_within_the_tolerance(options, answer, completion, reward):
    assert Numeric(**options).verify(Problem("p", answer), completion).reward == reward


@pytest.mark.parametrize(
    ("prompt", "answer", "completion", "reward"),
    [
        ("What percentage of 8 is 2?", "25", "25%", 1.0),
        ("What percentage of 8 is 2?", "25", "0.25", 0.0),
        ("How many percent of 8 is 2?", "25%", "25%", 1.0),
        ("Ten percent of 250?", "25", "25%", 0.0),
        ("How many atoms are there?", "1000000", "10^6", 1.0),
        ("What is 10^6?", "1000000", "10^6", 0.0),
        ("What is 10^6?", "1000000", "$10^{6}$", 0.0),
        ("Write 10^6 + 10^6.", "2000000", "2 * 10^6", 1.0),
    ],
)
def test_the_question_decides_about_percent_and_powers_of_ten(prompt, answer, completion, reward):
    assert Numeric().verify(Problem(prompt, answer), completion).reward == reward


@pytest.mark.parametrize("answer", ["", "eighteen", "17 or 18", "9" * 5_000, "nan"])
def test_an_answer_without_a_number_is_an_error(answer):
    verdict = Numeric().verify(Problem("p", answer), "18")
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "ends with no number" in verdict.reason


@given(
    st.fractions(max_denominator=1000).filter(lambda f: abs(f) < 10**12), st.sampled_from(["{}", "It is {}.", "x: {}"])
)
def test_every_fraction_is_read_as_it_is_written(number, sentence):
    assert read_number(sentence.format(number)) == number


@given(st.decimals(-(10**9), 10**9, places=6))
def test_every_decimal_is_read_as_it_is_written(number):
    assert read_number(f"{number:f}") == read_number(f"{number:,f}") == read_number(f"{number:e}") == Fraction(number)


@given(st.integers(-99, 99), st.integers(-99, 99), st.sampled_from(["{0} {1}", "{0} or {1}", "{0}\n{1}", "{1}, {0}"]))
def test_a_wrong_answer_added_never_helps(right, wrong, form):
    if right != wrong:
        assert Numeric().verify(Problem("p", str(right)), form.format(right, wrong)).reward == 0.0


@pytest.mark.parametrize("options", [{}, {"strict": False}, {"inside": "answer"}])
def test_demonstrations_and_paraphrases_of_the_examples_are_right(options):
    verifier = Numeric(**options)
    problems = verifier.examples()
    assert len(problems) >= 8
    for problem in problems:
        for completion in (verifier.demonstration(problem), *verifier.paraphrases(problem)):
            assert verifier.verify(problem, completion).reward == 1.0, completion


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": -1}, "numeric: tolerance must be a number of at least 0, got -1"),
        ({"tolerance": "0.1"}, "numeric: tolerance must be a number of at least 0, got '0.1'"),
        ({"relative": float("nan")}, "numeric: relative must be a number of at least 0, got nan"),
        ({"relative": float("inf")}, "numeric: relative must be a number of at least 0, got inf"),
        ({"strict": 1}, "numeric: strict must be true or false, got 1"),
        ({"inside": ""}, "numeric: a tag is a letter"),
    ],
)
def test_what_an_option_does_not_take_is_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Numeric(**options)
