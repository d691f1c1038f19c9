from fractions import Fraction

import pytest
from answers import answers, assert_rates, misjudged
from drawn import drawn
from hypothesis import example, given
from hypothesis import strategies as st

from verifiers import Numeric, Problem
from verifiers.builtin.numeric.verifier import read_number
from verifiers.lint.report import lint
from verifiers.reading.extraction import EXTRACTS, extracting

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
        ({"extract": "last"}, "18", "17 or 18", 1.0),
        ({"extract": "last"}, "18", "18 or 17", 0.0),
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


@pytest.mark.parametrize("extract", EXTRACTS)
@pytest.mark.parametrize("answer", ["", "many", "17 or 18", "9" * 5_000, "nan"])
def test_an_answer_without_a_number_is_an_error(answer, extract):
    if (answer, extract) == ("17 or 18", "last"):
        pytest.skip("the last number of it is 18")
    verdict = Numeric(extract=extract).verify(Problem("p", answer), "18")
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "ends with no number" in verdict.reason


@drawn(40)
@given(
    st.fractions(max_denominator=1000).filter(lambda f: abs(f) < 10**12), st.sampled_from(["{}", "It is {}.", "x: {}"])
)
def test_every_fraction_is_read_as_it_is_written(number, sentence):
    assert read_number(sentence.format(number)) == number


@drawn(40)
@given(st.decimals(-(10**9), 10**9, places=6))
def test_every_decimal_is_read_as_it_is_written(number):
    assert read_number(f"{number:f}") == read_number(f"{number:,f}") == read_number(f"{number:e}") == Fraction(number)


@drawn(40)
@given(st.integers(-99, 99), st.integers(-99, 99), st.sampled_from(["{0} {1}", "{0} or {1}", "{0}\n{1}", "{1}, {0}"]))
@example(16, 15, "{0} {1}")
def test_a_wrong_answer_added_never_helps(right, wrong, form):
    if right != wrong:
        for extract in ("stated", "strict"):
            verifier = Numeric(extract=extract)
            assert verifier.verify(Problem("p", str(right)), form.format(right, wrong)).reward == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"inside": "answer"},
        *({"extract": one} for one in EXTRACTS),
    ],
)
def test_demonstrations_and_paraphrases_of_the_examples_are_right(options):
    verifier = Numeric(**options)
    problems = verifier.examples()
    assert len(problems) >= 8
    for problem in problems:
        for completion in (verifier.demonstration(problem), *verifier.paraphrases(problem)):
            assert verifier.verify(problem, completion).reward == 1.0, completion


RICE = "A recipe for 4 people needs 300 g of rice. How many grams are needed for 10 people?"
MEAN = "What is the mean of 4, 8, 15, 16, 23 and 42?"
SWIM = "A swimming pool is 25 m long. Ana swims 64 lengths. How many kilometres does she swim?"
ROOTS = "The roots of x² - 9x + 20 = 0 are integers. What is the larger root?"


@pytest.mark.parametrize(
    ("question", "answer", "completion", "reward"),
    [
        (RICE, "750", "You need 0.75 kg, i.e. 750 grams of rice.", 1.0),
        (RICE, "750", "You need 0.8 kg, i.e. 750 grams of rice.", 0.0),
        (RICE, "750", "You need at least 0.75 kg, i.e. 750 g.", 0.0),
        (RICE, "750", "You need 0.75 kg, not 750 grams.", 0.0),
        (MEAN, "18", "The mean is 18.\n\n(The median, by the way, is 15.5.)", 1.0),
        (MEAN, "18", "The mean is 15.5.\n\n(The median, by the way, is 18.)", 0.0),
        (MEAN, "18", "The mean is 18.\n\n(The mean, by the way, is 17.)", 0.0),
        (MEAN, "18", "The mean is 18.\n\n(By the way, it is 17.)", 0.0),
        (MEAN, "18", "The mean is 18.\n\n(By the way, the answer is 17.)", 0.0),
        (SWIM, "1.6", "64 × 25 m = 1600 m = 1.6 km", 1.0),
        (SWIM, "1.6", "60 × 25 m = 1600 m = 1.6 km", 0.0),
        (SWIM, "1.6", "64 × 25 m = 1600 m = 16 km", 0.0),
        (SWIM, "1.6", "64 × 25 m = 1610 m = 1.6 km", 0.0),
        (ROOTS, "5", "(x - 4)(x - 5) = 0, so x = 4 or x = 5.", 0.0),
        (ROOTS, "5", "x = 4 or x = 5, so the larger root is 5.", 1.0),
    ],
)
def test_conversions_asides_and_alternatives_are_told_from_the_answer(question, answer, completion, reward):
    assert Numeric().verify(Problem(question, answer), completion).reward == reward


@pytest.mark.parametrize(
    ("question", "answer", "completion", "reward"),
    [
        ("What is 1% of 500?", "5", "1% of 500 is 0.1 * 500 = 5.00.", 0.0),
        ("What is 1% of 500?", "5", "1% of 500 is 0.01 * 500 = 5.00.", 1.0),
        ("What is 14 plus 9?", "23", "14 plus 9 = 13\n\n14 + 9 = 23", 0.0),
        ("What is 14 plus 9?", "23", "14 plus 9 = 23\n\n14 + 9 = 23", 1.0),
        ("What is 6 times 4?", "24", "6 times 4 is 25.\n6 × 4 is 24.", 0.0),
        ("What is 81 divided by 9?", "9", "It is 9.5. This is a fraction with a denominator of 9.", 0.0),
        ("What is 81 divided by 9?", "9", "81 is 9 decimal places to the", 0.0),
        ("What percent of 50 is 25?", "50%", "To find the percentage of 50, divide by the total.", 0.0),
        ("How many degrees are in a right angle?", "90 degrees", "It is determined by the sine of 90 degrees.", 0.0),
        ("How many chambers does the heart have?", "4", "It has four chambers. These three chambers are lower.", 1.0),
        ("What is 75% of 4?", "3", "3. A ratio of paint.\n1. A joke.\n1. So, a 3-", 0.0),
    ],
)
def test_working_of_a_small_model_is_told_from_its_answer(question, answer, completion, reward):
    assert Numeric().verify(Problem(question, answer), completion).reward == reward


def test_a_sample_of_the_answers_that_chat_models_write_is_judged_as_an_examiner_would():
    cases = answers("numeric")[::8]
    right = sum(case["right"] for case in cases)
    refused, paid = misjudged("numeric", cases)
    assert min(right, len(cases) - right) >= 50
    assert len(refused) <= 0.03 * right, refused
    assert len(paid) <= 0.01 * (len(cases) - right), paid


@pytest.mark.slow  # all of them
def test_answers_that_chat_models_write_are_judged_as_an_examiner_would():
    assert_rates("numeric", refused=0.03, paid=0.01, least=1900)


def test_a_sample_of_the_answers_of_a_small_model_is_judged_as_an_examiner_would():
    cases = answers("smollm2")[::2]
    right = sum(case["right"] for case in cases)
    refused, paid = misjudged("numeric", cases)
    assert min(right, len(cases) - right) >= 20
    assert len(refused) <= 0.03 * right, refused
    assert paid == []


@pytest.mark.slow  # all of them
def test_answers_of_a_small_model_are_judged_as_an_examiner_would():
    assert_rates("numeric", refused=0.03, paid=0.0, file="smollm2")


SAID = "What is 15 + 3?"
RULES = {  # what the four rules make of a completion where 18 is right
    "18": ("stated", "strict", "last"),
    "\\boxed{18}": ("stated", "strict", "last", "boxed"),
    "The answer is 18, because 15 + 3 = 18.": ("stated", "last"),
    "18\n\nLet me know if you have questions!": ("stated", "last"),
    "18\n\nShall I explain the 2 steps?": ("stated",),
    "15 + 2 = 17\n18": ("strict", "last"),
    "The answer is 17.\n18": ("strict", "last"),
    "17 or 18": ("last",),
    "The answer is 17. The answer is 18.": ("last",),
    "\\boxed{17} or 18": ("last",),
    "\\boxed{17} and \\boxed{18}": ("last",),
    "\\boxed{18}\n\nThe steps were 1 and 2.": ("stated", "boxed"),
    "17": (),
}


@pytest.mark.parametrize("text", RULES)
def test_what_is_taken_for_the_answer_is_a_choice(text):
    paying = [each for each in EXTRACTS if Numeric(extract=each).verify(Problem(SAID, "18"), text).reward]
    assert paying == [each for each in EXTRACTS if each in RULES[text]]


def test_a_vote_reads_as_the_verdict_does():
    problem = Problem(SAID, "18")
    text = "The answer is 18.\nThere are 3 more."
    assert [Numeric(extract=each).extract(problem, text) for each in EXTRACTS] == ["18", "3", "3", None]
    percent = Problem("What percent of 8 is 2?", "25")
    assert {Numeric().extract(percent, text) for text in ("25%", "25", "2/8 = 25 percent")} == {"25"}
    way = Problem("A car drives 60 km/h for 1.5 h. How far?", "90")
    votes = [Numeric().extract(way, text) for text in ("90 km", "90", "90,000 m", "90 miles")]
    assert votes[:3] == ["90", "90", "90"] and votes[3] != "90"


def test_a_default_of_the_environment_is_used_where_no_rule_is_given():
    with extracting("boxed"):
        assert (Numeric().rule, Numeric(extract="last").rule) == ("boxed", "last")
    assert Numeric().rule == "stated"


@pytest.mark.parametrize("extract", ["stated", "strict", "last", "boxed"])
@pytest.mark.parametrize(
    ("prompt", "answer", "right", "wrong"),
    [
        ("How far?", "90 km", ["90 km", "90 kilometers", "90", "90,000 m"], ["90 miles", "90 hours", "90 m"]),
        ("How much?", "$8", ["$8", "8 dollars", "8", "800 cents", "8 USD"], ["€8", "8 cents", "8 euros", "£8"]),
        ("How much is 1.5 km/h?", "1.5 km/h", ["1.5 km per hour", "1500 m/h"], ["1.5 mph", "1.5 km", "1.5 m/s"]),
        ("How many grams are 2 kg?", "2000 g", ["2000 g", "2000 grams", "2,000"], ["2 kg", "2000 kg", "2000 mg"]),
        ("A bill of $40 is split by 5. Each?", "8", ["8", "$8", "8 dollars"], ["€8", "8 cents"]),
        ("How many minutes is that?", "150", ["150", "150 minutes", "150 min"], ["150 hours", "2.5 hours"]),
        ("What percent of 8 is 2?", "25", ["25", "25%", "25 percent"], ["2500%", "0.25", "0.25%"]),
        ("What percent of 8 is 2?", "25%", ["25", "25%"], ["2500%", "0.25%"]),
        ("The percentage increase from 4 to 5?", "25", ["25", "25%"], ["2500%"]),
        ("What is 25% of 80?", "20", ["20"], ["2000%", "20%"]),
    ],
)  # fmt: skip
def test_another_unit_earns_nothing_and_the_same_quantity_in_other_words_does(extract, prompt, answer, right, wrong):
    verifier, form = Numeric(extract=extract), "\\boxed{{{}}}" if extract == "boxed" else "{}"
    rewards = {text: verifier.verify(Problem(prompt, answer), form.format(text)).reward for text in (*right, *wrong)}
    assert rewards == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}


EDGES = "How many edges does a cube have?"
APPLES = "Each of 300 trees yields 40 kg of apples. How many kilograms are harvested?"
PASSED = "How many students passed if 18 of 30 failed?"
SPEED = "A train travels 150 km in 2.5 hours. What is its average speed?"
CELSIUS = "A thermometer shows 68°F. What is this in degrees Celsius?"
EXAMINED = [  # prompt, answer, right completions, wrong completions
    (
        EDGES,
        "12",
        [
            "A cube has **12 edges**. It also has 8 vertices and 6 faces.",
            "It has 12 straight edges. There are 8 corners.",
            "A cube has 8 vertices. A cube has 12 edges. A cube has 6 faces.",
            "It has 12 edges.\n\nIn addition, a cube has:\n- 6 faces\n- 8 vertices",
        ],
        ["A cube has 8 edges. It also has 12 vertices.", "A cube has 12 edges. So it has 8 edges.", "12 edges. No, 8."],
    ),
    (
        PASSED,
        "12",
        ["12 students passed, 18 failed.", "18 students failed, 12 passed.", "30 - 18 = 12 students passed."],
        ["12 students failed, 18 passed.", "12 failed.", "18 passed and 12 failed."],
    ),
    (
        CELSIUS,
        "20",
        ["20", "20 °C", "20 C", "(68 - 32) × 5/9 = 20, so the temperature is 20 degrees."],
        ["20 K", "(68 - 32) × 5/9 = 20, so the temperature is 20 K.", "20 kelvin", "20 F"],
    ),
    ("What is 20 °C in kelvin, rounded?", "293", ["293 K", "293K", "293 kelvin"], ["293 °C", "293 F"]),
    ("The temperature?", "293 K", ["293 K", "293 kelvin"], ["293 °C"]),
    ("How many people?", "20000", ["20K people", "20k"], ["20 people"]),
    (
        APPLES,
        "12000",
        [
            "300 × 40 kg = 12,000 kg of apples (12 tonnes).",
            "300 × 40 kg = 12,000 kg (= 12 t)",
            "They harvest 12,000 kg of apples, which is 12 tonnes.",
            "300 × 40 kg = 12,000 kg of apples, that is, 12 tonnes.",
        ],
        ["300 × 40 kg = 12,000 kg (13,000 kg)", "12,000 kg of apples (13 tonnes)", "That is 12 tonnes."],
    ),
    (
        "What is 12 minus 4?",
        "8",
        [
            "It is 12 - 4 = 8, the opposite of 4. In other words, 12 - 4 = 8 is a zero operation, which is what",
            "12 - 4 = 8, which is a one-digit number.",
        ],
        ["12 - 4 = 8 is wrong.", "12 - 4 = 9 is a zero operation.", "12 - 4 = 7, and 8 is a one-digit number."],
    ),
    (
        SPEED,
        "60 km/h",
        [
            r"$\frac{150}{2.5} = 60$ km/h",
            r"It costs $5 and so $v = 60$ km/h",
            "$d = 150$ km, $v = 60$ km/h",
        ],
        [r"$\frac{150}{2.5} = 61$ km/h", "$60"],
    ),
    (
        "What is 40 + 6?",
        "46",
        ["$40+6=46$", r"$40+6=\boxed{46}$"],
        ["$17=46$", "$17 = 46$.", r"\boxed{17}\boxed{46}", r"\boxed{17}$\boxed{46}$", r"\boxed{46}\boxed{17}"],
    ),
    (
        "What is 1/2 + 1/4?",
        "3/4",
        [r"\frac{3}{4}", r"$\frac{3}{4}$!", r"It is \frac{3}{4}!"],
        [r"\frac{3}{4}!", r"$\frac{3}{4}!$", r"\frac{3!}{4}"],
    ),
    (
        "How often is an e in these four words?",
        "3",
        ['- The: 1\n- person: 1\n- or: 0\n- me: 1\n\nTotal: 1 + 1 + 1 = 3\n\nThe letter "e" appears **3 times**.'],
        ['- The: 1\n- or: 0\n- me: 3\n\nTotal: 1 + 3 = 4\n\nThe letter "e" appears **4 times**.', "3. Or 4."],
    ),
    (
        "Solve 87z + 135 = 4311.",
        "48",
        ["z = 48\n\nCheck: 87 × 48 + 135 = 4176 + 135 = 4311 ✓\n\n**z = 48**", "540 - (100 + 392) = 540 - 492 = 48"],
        ["z = 47\n\nCheck: 87 × 48 + 135 = 4311 ✓\n\n**z = 47**", "540 - (100 + 392) = 540 - 491 = 48"],
    ),
]


@pytest.mark.parametrize(("prompt", "answer", "right", "wrong"), EXAMINED)
def test_nouns_units_formulas_and_lists_are_read_as_an_examiner_does(prompt, answer, right, wrong):
    rewards = {text: Numeric().verify(Problem(prompt, answer), text).reward for text in (*right, *wrong)}
    assert rewards == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}


HOSTILE = [
    "1\n", "1 = 1. ", "is 1 ", "the answer is ", "\\boxed{", "\\boxed{1}", "\\[", "$$", "$", "*1", "**", "1,", "1/",
    "- 1\n", "one hundred ", "half of ", "```\n", "1: ", "(", "9", "=", "so 1, ", "that is wrong. ", "no, 1. ", "| 1 |",
    "<think>", "10^", "\\frac{", "1 km ", "1 percent ", "e.g. ", "1 or ", "not ",
]  # fmt: skip


@pytest.mark.parametrize("extract", EXTRACTS)
def test_any_text_has_a_verdict(extract):
    verifier = Numeric(extract=extract)
    for text in HOSTILE:
        for prompt in (SAID, "How many km are 5 miles?"):
            verdict = verifier.verify(Problem(prompt, "18 km"), text * (20_000 // len(text)) + " 17")
            assert (verdict.reward, verdict.status) == (0.0, "ok"), text


@pytest.mark.slow
@pytest.mark.parametrize("extract", EXTRACTS)
def test_lint_finds_nothing_whatever_is_taken_for_the_answer(extract):
    assert [each for each in lint(Numeric(extract=extract)).findings if each.rule != "speed"] == []
