import builtins
import re
import threading
import time

import pytest
from answers import answers, assert_rates, misjudged
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Isolated, Math, Problem, make_verifier
from verifiers.builtin.math.given import given as given_answer
from verifiers.lint.attacks import attacks
from verifiers.reading.extraction import EXTRACTS


@pytest.fixture(scope="module")
def math():
    return Math()


@pytest.fixture(scope="module")
def strict():
    return Math(extract="strict")


def reward(math, answer, completion, prompt="What is it?\n"):
    verdict = math.verify(Problem(prompt, answer), completion)
    assert verdict.status == "ok", verdict
    return verdict.reward


RIGHT = [
    ("46", "46", "46.0", "46/1", "\\frac{46}{1}", "\\frac{92}2", "+46", "x=46", "The answer is 46.", "**46**"),
    ("46", "18+28 is\n\n$46$", "$$46$$", "\\(46\\)", "\\[46\\]", "\\boxed{46}", "Thus $x = 46$.", "\\boxed{46} apples"),
    (
        "46",
        "18+28=46",
        "$18+28=46$",
        "x=18+28=46",
        "2^5+14=46",
        "\\frac{92}{2}=46",
        "46=46",
        "46\\text{ cm}",
        "46 cm",
        "46km",
    ),
    ("46", "$46\\,\\mathrm{kg}$", "46 apples", "(46)", "4.6e1", "4.6\\cdot10^1", "No, $46$!", "$46$ coins"),
    ("10000000", "10^7", "1e7", "$10^{7}$", "$1\\times10^7$", "10{,}000{,}000"),
    ("\\frac{1}{3}", "0.333333", "0.33333333", "\\frac13", "2/6=1/3"),
    ("25\\%", "25 %", "25 percent", "0.25"),
    ("1,234", "1234", "1,234", "$1{,}234$".replace("{,}", ",")),
    ("-7", "-7", "-7.0", "\\frac{-7}{1}"),
    ("\\frac{3}{4}", "3/4", "0.75", ".75", "6/8", "\\frac34", "\\dfrac{3}{4}", "\\tfrac{3}{4}", "75%"),
    ("50\\%", "50\\%", "0.5"),
    ("$\\frac{1}{2}$", "1/2"),
    ("3\\sqrt{2}", "3\\sqrt{2}", "\\sqrt{18}", "3 \\sqrt 2", "4.242641", "\\sqrt{18}=3\\sqrt2"),
    ("3\\sqrt{2}", "3\\sqrt{2}\\approx 4.24", "d=3\\sqrt2\\approx4.2", "4.2426406871", "3\\sqrt{2}\\text{ cm}"),
    ("(x-1)(x+1)", "x^2-1", "(x+1)(x-1)", "-(1-x^2)", "f=x^2-1", "f(x)=(x+1)(x-1)=x^2-1"),
    ("y=2x+1", "2x+1", "y=1+2x"),
    ("e^{x^2}", "e^{x^2}", "\\exp(x^2)"),
    ("4\\pi", "4\\pi", "\\pi*4", "12.566371"),
    ("\\{-2,2\\}", "\\{2,-2\\}", "{-2, 2}", "2,-2", "\\left\\{2,-2\\right\\}"),
    ("(1,2)", "(1,2)", "( 1 , 2 )", "\\left(1,2\\right)", "(1.0,\\frac{4}{2})"),
    ("[-1,1)", "[-1,1)", "x\\in[-1,1)"),
    ("(-\\infty,-1]\\cup[1,\\infty)", "[1,\\infty)\\cup(-\\infty,-1]"),
    ("x>3", "x>3", "3<x"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
]
WRONG = [
    (
        "46",
        "47",
        "-46",
        "4",
        "446",
        "46.001",
        "x46",
        "46x",
        "46\\%",
        "46!",
        "--46",
        "٤٦",
        "46.0000004",
        "!=46",
        "46 thousand",
    ),
    (
        "46",
        "no answer: 46",
        "not $46$",
        "It is not \\boxed{46}.",
        "half of $46$",
        "minus $46$",
        "$46$ million",
        "is it $46$?",
    ),
    (
        "46",
        "18+29=46",
        "46=47",
        "1+46=46",
        "=46=",
        "46=",
        "17\\approx46",
        "18+28\\ne46",
        "46\\cdot x",
    ),
    ("1/2", "0.5000004", "0.4999996", "$0.50000004$", "\\boxed{0.4999999999}", "0.5000004=1/2"),
    ("\\frac{1}{3}", "0.33333", "0.333334", "0.33333334", "0.3333330"),
    ("\\frac{1}{3000000}", "0.0000003", "0", "0.000000"),
    ("(1/2,1)", "(0.5000004,1)", "(0.5,1.0000001)"),
    ("10000000", "10^6", "10^{77}", "10^7!", "10*7"),
    ("46", "46 or 47", "47 or 46", "46, 47", "46 47", "46;47", "$46$ and $47$", "\\boxed{46}\\boxed{47}", "\\boxed{46"),
    ("46", "47=46", "x\\ne 46", "not 46", "\\boxed{}", "$$", "", "\\text{46 or 47}", "±46"),
    ("x+1", "10^{10^{10^{10}}}", "(10^{10})^{10^{10}}", "99999!", "9!!!", "x^{99999}"),
    ("46", "2*23", "18+28", "18+28=", "46^1", "\\sqrt{2116}", "\\{46\\}", "46\n47"),
    ("\\frac{3}{4}", "4/3", "0.7501", "3", "\\frac{-3}{4}", "3/4/1"),
    (
        "3\\sqrt{2}",
        "2\\sqrt{3}",
        "3\\sqrt{2}m",
        "4.2426",
        "3\\sqrt{2}\\approx 5",
        "3\\sqrt{2}\\approx 4.25",
        "x\\approx 4.24",
        "5\\approx 4.24",
        "3\\sqrt{2}=3",
        "4.2426406",
        "5\\equiv 3\\sqrt{2}",
        "3\\sqrt{2}|5",
    ),
    ("3\\sqrt{2}", "3\\sqrt{2}\\lor 5", "3\\sqrt{2}\\cup 5", "3\\sqrt{2},5", "\\neg 3\\sqrt{2}", "x>3\\sqrt{2}"),
    ("(x-1)(x+1)", "x^2+1", "y^2-1", "0", "x"),
    ("2m", "2", "m"),
    ("4\\pi", "\\pi", "12.57", "4"),
    ("\\{-2,2\\}", "\\{2\\}", "\\{-2,2,3\\}", "(-2,2)", "[-2,2]", "2"),
    ("(1,2)", "(2,1)", "[1,2]", "\\{1,2\\}", "(1,2,3)", "1", "1,2"),
    ("[-1,1)", "[-1,1]", "(-1,1)", "(-1,1]"),
    ("x>3", "x\\geq 3", "3", "x<3"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}", "(1,2)"),
]


STRICT_WRONG = [("46", "46\\text{ or so}", "\\boxed{\\boxed{46}}", "46\n\nLet me know!", "$46$, because $40+6=46$")]
READABLE = [
    ("xy", "xy", "x \\cdot y", "The area is $xy$.", "yx"),
    ("mv^2", "mv^2", "mv²", "F = mv^2", "v^2m"),
    ("xe^x", "xe^x", "x e^{x}", "xeˣ", "$f(x) = xe^x$"),
    ("\\frac{ab}{c}", "ab/c", "\\dfrac{ab}{c}", "\\frac{a b}{c}"),
    ("9\\pi", "9π", "9 pi", "π · 9", "9π ≈ 28.27"),
    ("9π", "9\\pi", "9π"),
    ("√3", "\\sqrt{3}", "√3", "sqrt(3)", "√3 ≈ 1.73"),
    ("(-∞, 2)", "(-\\infty, 2)", "(−∞, 2)", "x < 2", "(-∞,2)"),
    ("60°", "60^\\circ", "60 degrees", "60°", "60"),
    ("60^\\circ", "60°", "\\angle A = 60^{\\circ}"),
    ("5\\text{ cm}", "5 cm", "5", "50 mm", "\\boxed{5\\text{ cm}}", "5 centimeters"),
    ("f(x)=x+1", "f(x) = x + 1", "x+1", "y = 1 + x"),
    ("2x+3y=6", "2x + 3y = 6", "$3y + 2x = 6$", "4x+6y=12"),
    ("½", "1/2", "0.5", "\\frac12"),
    ("x = 2, y = 3", "(2, 3)", "x = 2 and y = 3", "y=3, x=2"),
    ("x = 2 \\text{ or } x = 3", "x = 2 or x = 3", "$\\{2, 3\\}$", "The solutions are 2 and 3."),
    ("\\pm 3", "x = ±3", "3 and -3", "$x = 3$ or $x = -3$"),
    ("\\text{even}", "even", "The answer is even.", "\\boxed{\\text{even}}"),
]
READABLE_WRONG = [
    ("xy", "x+y", "x", "xyz", "x^2"),
    ("mv^2", "mv", "m v^3", "mc^2"),
    ("9π", "9", "28", "3π", "9π²"),
    ("(-∞, 2)", "(-∞, 2]", "(2, ∞)", "x > 2", "[-∞, 2]"),
    ("60°", "60 radians", "60%", "30°", "61"),
    ("5\\text{ cm}", "5 m", "5 cm^2", "5 kg", "50", "6 cm"),
    ("f(x)=x+1", "f(x) = x - 1", "x"),
    ("2x+3y=6", "2x - 3y = 6", "2x+3y=7", "6", "2x+3y"),
    ("x = 2, y = 3", "(3, 2)", "x = 3, y = 2", "x = 2", "2"),
    ("\\pm 3", "3", "-3", "x = 3 or x = 2", "±9"),
    ("\\text{even}", "odd", "not even", "\\boxed{\\text{odd}}", "even or odd"),
]


def test_equal_answers_score(math, strict):
    cases = [(answer, text) for answer, *texts in RIGHT for text in texts]
    assert [case for case in cases if reward(math, *case) != 1.0] == []
    assert [case for case in cases[::3] if reward(strict, *case) != 1.0] == []


def test_other_answers_and_several_answers_do_not(math, strict):
    cases = [(answer, text) for answer, *texts in WRONG for text in texts]
    assert [case for case in cases if reward(math, *case) != 0.0] == []
    cases = cases[::3] + [(answer, text) for answer, *texts in STRICT_WRONG for text in texts]
    assert [case for case in cases if reward(strict, *case) != 0.0] == []


def test_products_unicode_units_and_solutions_are_read(math):
    right = [(answer, text) for answer, *texts in READABLE for text in texts]
    assert [case for case in right if reward(math, *case) != 1.0] == []
    wrong = [(answer, text) for answer, *texts in READABLE_WRONG for text in texts]
    assert [case for case in wrong if reward(math, *case) != 0.0] == []


@pytest.mark.parametrize(
    ("question", "answer", "right", "wrong"),
    [
        ("Simplify x * x.", "x^2", "x * x = x^2", "Simplify: x * x."),
        ("Simplify 6/8.", "3/4", "6/8 = 3/4", "The answer is 6/8."),
        ("Simplify a + a + b.", "2a + b", "a + a + b = b + 2a", 'The answer is "a + a + b."'),
        ("Write 0.5 as a fraction.", "1/2", "0.5 = 1/2", "0.5 is a mixed number."),
        ("Which is larger, 1/2 or 1/3?", "1/2", "1/2", "1/3"),
        ("Write 0.00005 in scientific notation.", "5 \\times 10^{-5}", "0.00005 is 5 × 10⁻⁵.", "50"),
    ],
)
def test_a_formula_that_only_repeats_the_question_is_no_answer(question, answer, right, wrong, math):
    problem = Problem(question, answer)
    assert [math.verify(problem, text).reward for text in (right, wrong)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "undone", "done"),
    [
        ("x^2 + C", "\\int 2x dx + C", "\\int 2x dx = x^2 + C"),
        ("x^2", "F = \\int 2x dx", "F = \\int 2x dx = x^2"),
        ("3x^2", "\\frac{d}{dx}(x^3)", "\\frac{d}{dx}(x^3) = 3x^2"),
        ("e", "\\lim_{n\\to\\infty} (1+\\frac{1}{n})^n", "\\lim_{n\\to\\infty} (1+\\frac{1}{n})^n = e"),
        ("n(n+1)/2", "\\sum_{k=1}^{n} k", "\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}"),
        ("\\sqrt{4\\pi}", "\\prod_{k=1}^{2} \\sqrt[4]{4\\pi}", "\\sqrt{4\\pi}"),
        ("(1, 2)", "(\\int_0^1 2x dx, 2)", "(1, 2)"),
        ("x < 2", "x < \\int_0^2 x dx", "x < 2"),
        ("x^2 + y = 0", "\\int 2x dx + y = 0", "y + x^2 = 0"),
    ],
)
def test_an_answer_with_an_operation_to_be_done_earns_nothing(answer, undone, done, math, strict):
    assert [reward(math, answer, f"\\boxed{{{text}}}") for text in (undone, done)] == [0.0, 1.0]
    assert reward(strict, answer, undone) == 0.0


def test_a_reference_may_have_an_operation_to_be_done(math):
    texts = ("$\\int_0^1 y^2 dy$", "$\\frac{1}{3}$", "$\\frac{1}{2}$")
    assert [reward(math, "\\int_0^1 x^2 dx", text) for text in texts] == [1.0, 1.0, 0.0]


def test_answers_of_chat_models_are_judged_as_a_careful_examiner_would():
    assert misjudged("math", answers("math")[::50]) == ([], [])


@pytest.mark.slow
def test_all_answers_of_chat_models_are():
    assert_rates("math", refused=0.0, paid=0.0, least=200)


@pytest.mark.parametrize(
    ("extract", "text", "score"),
    [
        ("stated", "The answer is $3\\pi$. Let me know if you need more!", 1.0),
        ("strict", "The answer is $3\\pi$.\n\nLet me know if you need more!", 0.0),
        ("last", "First $2\\pi$ and then, I think, $3\\pi$", 1.0),
        ("last", "The answer is $3\\pi$, not $2\\pi$", 0.0),
        ("boxed", "$2\\pi$ and then \\boxed{3\\pi}, more than $\\pi$", 1.0),
        ("boxed", "The answer is $3\\pi$.", 0.0),
        ("boxed", "\\boxed{2\\pi} and \\boxed{3\\pi}", 0.0),
    ],
)
def test_what_is_taken_for_the_answer_is_chosen(extract, text, score):
    assert reward(Math(extract=extract), "3\\pi", text) == score
    assert (Math(extract=extract).extract(Problem("q", "3\\pi"), text) == "3\\pi") == bool(score)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_its_examples_and_their_other_spellings_score(step, math):
    for number, problem in enumerate(math.examples()):
        for text in (math.demonstration(problem), *math.paraphrases(problem)[number % step :: step]):
            assert reward(math, problem.answer, text, problem.prompt) == 1.0, text


def test_the_question_is_no_answer_to_itself(math):
    for prompt in ("18+28=\n", "$18+28$", "What is $18+28$?", "\\boxed{18+28}"):
        assert reward(math, "46", prompt, prompt) == 0.0
    assert reward(math, "10000000", "$10^{7}$", "How many are $10^7$?") == 0.0
    assert reward(math, "10000000", "$10^{7}$", "How many are there?") == 1.0


@pytest.mark.parametrize("answer", ["46", "\\{-2,2\\}", "3\\sqrt{2}"])
def test_no_attack_scores_or_raises(math, answer):
    families = attacks(Problem("What is 18 + 28?\n", answer), ["47", "118"])
    for family, texts in families.items():
        for text in texts:
            started = time.perf_counter()
            assert reward(math, answer, text) == 0.0, (family, text[:80])
            assert time.perf_counter() - started < 5, (family, text[:80])


@drawn(40)
@given(
    st.text() | st.lists(st.sampled_from(["\\boxed{", "}", "$", "46", " or ", "{", "\\frac", "^", "("])).map("".join)
)
def test_any_text_has_a_final_answer_or_none(text):
    for rule in EXTRACTS:
        answer = given_answer(text, rule, frozenset("x"), in_words=False)
        assert answer is None or answer.words or all(0 < len(part) <= 300 for part in answer.parts)


def test_a_vote_has_numbers_and_formulas(math):
    problem = Problem("?", "46")
    texts = ("The answer is $\\boxed{46}$.", "46.0", "$x = 46$", "\\boxed{x + 1}", "46 or 47")
    assert [math.extract(problem, text) for text in texts] == ["46", "46", "46", "x+1", None]


def test_a_section_can_be_judged(math):
    inside = Math(inside="answer")
    assert reward(inside, "46", "<think>$47$</think><answer>$46$</answer>") == 1.0
    assert reward(inside, "46", "46") == reward(inside, "46", "<answer>46</answer><answer>46</answer>") == 0.0
    assert inside.demonstration(Problem("q", "46")) == "<answer>46</answer>"
    with pytest.raises(ValueError, match="a tag is a letter"):
        Math(inside="<answer>")


@pytest.mark.parametrize("answer", ["", "Paris", "9^{9^{9^9}}", "46 or 47", "((("])
def test_a_reference_that_cannot_be_read_is_an_error_and_no_reward_of_zero(math, answer):
    verdict = math.verify(Problem("What is it?", answer), answer)
    assert (verdict.status, verdict.reward) == ("error", 0.0)
    assert repr(answer) in verdict.reason


def test_a_thread_reaches_the_same_verdicts(math):
    """math-verify's own time limit needs the main thread and scores 0 elsewhere."""
    rewards = []
    pairs = [("46", "46"), ("46", "47"), ("\\frac{3}{4}", "0.75")]
    thread = threading.Thread(target=lambda: rewards.extend(reward(math, *pair) for pair in pairs))
    thread.start()
    thread.join()
    assert rewards == [1.0, 0.0, 1.0]


@pytest.mark.slow
def test_workers_reach_the_same_verdicts_and_outlive_a_bomb():
    math = make_verifier("math")
    apart = Isolated(math, workers=1, timeout=3)
    try:
        pairs = [("46", "46"), ("x+1", "(9^{9999}+1)^{9999}"), ("46", "47"), ("\\frac{3}{4}", "0.75")]
        verdicts = apart.verify_batch([Problem("What is it?", answer) for answer, _ in pairs], [c for _, c in pairs])
    finally:
        apart.close()
    assert [verdict.status for verdict in verdicts] == ["ok", "timeout", "ok", "ok"]
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0, 0.0, 1.0]


def test_nothing_of_a_completion_is_evaluated(math, monkeypatch, tmp_path):
    for text in ("1+1", "$\\{1,x\\}$", "[0,1]", "2**10"):
        reward(math, "\\{x,3,7.5\\}", text)  # imports what the library puts off
    evaluate, execute = builtins.eval, builtins.exec

    def watched(code, *scopes):  # sympy reads the digits of a number so, and nothing else
        if not isinstance(code, str) or not re.fullmatch(r"(Integer|Float) ?\(\s*'?[0-9.]+'?\s*\)", code.strip()):
            raise SystemExit(f"evaluated: {code!r}")
        return evaluate(code, *scopes)

    def importing(code, *scopes):
        if code != "from sympy import *":
            raise SystemExit(f"executed: {code!r}")
        return execute(code, *scopes)

    monkeypatch.setattr(builtins, "eval", watched)
    monkeypatch.setattr(builtins, "exec", importing)
    mark = tmp_path / "ran"
    calls = [
        f'__import__("pathlib").Path("{mark}").touch()', f"open('{mark}','w')", "().__class__.__base__",
        "x.__class__", "S('1/0')", "[f() for f in (exit,)]", "(lambda: exit())()", "\\operatorname{exit}()", "1+1",
        "exit()", "2**10", "4*(3+2)",
    ]  # fmt: skip
    for call in calls:
        for text in (call, f"${call}$", f"\\boxed{{{call}}}", f"The answer is {call}", f"\\text{{{call}}}"):
            assert reward(math, "\\{x,3,7.5\\}", text) == 0.0
    assert reward(math, "3\\sqrt{2}+7.5", "7.5+\\sqrt{18}") == 1.0
    assert not mark.exists()
