import builtins
import re
import threading

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Math, Problem
from verifiers.builtin.math import formulas, leading_formula

WRONG = (
    r"\boxed{{17}} \boxed{{{}}}", "The answer is ${}$. The answer is $17$.",
    "The answer is $-17 + {}$.", r"\boxed{{({}) \cdot 17}}",
)  # fmt: skip


@pytest.fixture(scope="module")
def math():
    return Math()


def reward(math, answer, completion, prompt="What is it?\n"):
    verdict = math.verify(Problem(prompt, answer), completion)
    assert verdict.status == "ok", verdict
    return verdict.reward


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("46", ["46.0", r"\frac{46}{1}", "x = 18 + 28 = 46", "$46$ km", "it is 46."], ["47", "18+28", "46x", "46!"]),
        (r"\frac{3}{4}", ["3/4", "0.75", r"\frac34", r"\dfrac{6}{8}", "75%"], ["4/3", "0.7501", r"3/4\pi"]),
        (r"3\sqrt{2}", [r"\sqrt{18}", "3√2", "3 sqrt(2) ≈ 4", "4.242641", r"3\sqrt2\text{ m}"], ["4.2", r"3\sqrt{2}x"]),
        ("(x-1)(x+1)", ["x^2-1", "x² - 1", "f(x) = (x+1)(x-1)", "x^2 - 1 is it"], ["x^2+1", "y^2-1", "x"]),
        (r"\frac{1}{2}mv^2", ["½mv²", "E = mv²/2", r"$\frac{mv^2}{2}$, where m is the mass"], ["mv^2", "m v^3"]),
        (r"\pm 3", ["x = 3 or x = -3", "So x = 3, x = -3.", "$x = 3$ and $x = -3$.", r"\{-3, 3\}"], ["3", "x = ±2"]),
        ("x = 2, y = 3", ["y = 3, x = 2", "So $x = 2$ and $y = 3$."], ["x = 3, y = 2", "x = 2"]),
        ("2x+3y=6", ["3y + 2x = 6", "The line is $4x+6y=12$."], ["2x+3y=7", "6"]),
        ("(-∞, 2)", [r"$(-\infty, 2)$", "x < 2", r"\left(-\infty, 2\right)"], ["(-∞, 2]", "x > 2", "2"]),
        (r"5\text{ cm}", ["5 cm", "5", "$5$ centimeters"], ["5 m", "50 mm", "5 kg", "6 cm"]),
        (r"\text{even}", ["even", r"\boxed{\text{even}}", "The answer is Even."], ["odd", "not even", "even or odd"]),
    ],
)  # fmt: skip
def test_a_formula_is_compared_as_mathematics_and_a_number_as_a_number(math, answer, right, wrong):
    assert [text for text in right if reward(math, answer, text) != 1.0] == []
    assert [text for text in wrong if reward(math, answer, text) != 0.0] == []


def test_demonstrations_and_spellings_score_and_counterexamples_do_not(math):
    for problem in math.examples():
        wrong = [form.format(problem.answer) for form in WRONG]
        for text in (math.demonstration(problem), *math.paraphrases(problem), *wrong):
            assert reward(math, problem.answer, text, problem.prompt) == (text not in wrong), text


@pytest.mark.parametrize(
    "text", ["10^{10^{10}}", "9**9**9", "(10^{10})^{10^{10}}", "99999!x", "9!!!", "x^{99999}", "x" * 301]
)
def test_huge_powers_and_long_texts_are_no_answer(math, text):
    assert [reward(math, answer, f"\\boxed{{{text}}}") for answer in ("x+1", "46")] == [0.0, 0.0]
    assert math.verify(Problem("?", text), "46").status == "error"


@drawn(40)
@given(
    st.text()
    | st.lists(st.sampled_from(["\\boxed{", "}", "$", "46", " or ", "{", "\\frac", "^", "(", "=", "\\"])).map("".join)
)
def test_any_text_has_formulas_or_none(text):
    found = [*formulas(text), *formulas(text, several=True), leading_formula(text)]
    assert all(each is None or (each.text and each.latex) for each in found)
    Math().verify(Problem("?", "x+1"), text)


def test_a_vote_has_numbers_and_formulas(math):
    texts = ("The answer is $\\boxed{46}$.", "46.0", "$x = 46$", "\\boxed{ \\dfrac{x}{2} + 1}", "I do not know")
    found = [math.extract(Problem("?", "46"), text) for text in texts]
    assert found == ["46", "46", "46", "\\frac{x}{2}+1", None]


def test_a_thread_reaches_the_same_verdicts(math):
    """math-verify's own time limit needs the main thread and scores 0 elsewhere."""
    rewards = []
    pairs = [("3\\sqrt{2}", "\\sqrt{18}"), ("46", "47"), ("\\frac{3}{4}", "0.75")]
    thread = threading.Thread(target=lambda: rewards.extend(reward(math, *pair) for pair in pairs))
    thread.start()
    thread.join()
    assert rewards == [1.0, 0.0, 1.0]


def test_nothing_of_a_completion_is_evaluated(math, monkeypatch, tmp_path):
    for text in ("x+1", "$\\{1,x\\}$", "[0,1]", "2**10"):
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
