import builtins
import re
import threading

from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from rlenv.verifiers import Math, Problem
from rlenv.verifiers.builtin.math import formulas, leading_formula

WRONG = (
    r"\boxed{{17}} \boxed{{{}}}", "The answer is ${}$. The answer is $17$.",
    "The answer is $-17 + {}$.", r"\boxed{{({}) \cdot 17}}",
)  # fmt: skip


def reward(answer, completion, prompt="What is it?\n"):
    verdict = Math().verify(Problem(prompt, answer), completion)
    assert verdict.status == "ok", verdict
    return verdict.reward


def test_demonstrations_and_spellings_score_and_counterexamples_do_not():
    math = Math()
    for problem in math.examples():
        wrong = [form.format(problem.answer) for form in WRONG]
        for text in (math.demonstration(problem), *math.probes(problem).right, *wrong):
            assert reward(problem.answer, text, problem.prompt) == (text not in wrong), text


@drawn(10)
@given(
    st.text()
    | st.lists(st.sampled_from(["\\boxed{", "}", "$", "46", " or ", "{", "\\frac", "^", "(", "=", "\\"])).map("".join)
)
def test_any_text_has_formulas_or_none(text):
    found = [*formulas(text), *formulas(text, several=True), leading_formula(text)]
    assert all(each is None or (each.text and each.latex) for each in found)
    assert Math().verify(Problem("?", "x+1"), text).status == "ok"


def test_a_thread_reaches_the_same_verdicts():
    """math-verify's own time limit needs the main thread and scores 0 elsewhere."""
    rewards = []
    pairs = [("3\\sqrt{2}", "\\sqrt{18}"), ("46", "47"), ("\\frac{3}{4}", "0.75")]
    thread = threading.Thread(target=lambda: rewards.extend(reward(*pair) for pair in pairs))
    thread.start()
    thread.join()
    assert rewards == [1.0, 0.0, 1.0]


def test_nothing_of_a_completion_is_evaluated(monkeypatch, tmp_path):
    for text in ("x+1", "$\\{1,x\\}$", "[0,1]", "2**10"):
        reward("\\{x,3,7.5\\}", text)  # imports what the library puts off
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
            assert reward("\\{x,3,7.5\\}", text) == 0.0
    assert reward("3\\sqrt{2}+7.5", "7.5+\\sqrt{18}") == 1.0
    assert not mark.exists()
