import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest
import reasoning_gym

from rlenv.verifiers import ReasoningGym, make_verifier
from rlenv.verifiers.builtin.reasoning_gym import ALIKE, EXPRESSIONS, SAME, TARGETS, is_formula

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library
TASKS = sorted(set(reasoning_gym.factory.DATASETS) - {"composite"})  # which is made of others
SOME = ["chain_sum", "complex_arithmetic", "polynomial_equations", "pool_matrix", "syllogism", "word_sorting"]


# Whose scorers evaluate something, as this release has them; every task is tried with `make test-slow`.
EVALUATED = EXPRESSIONS | {*TARGETS, "binary_matrix", "bitwise_arithmetic", "n_queens", "propositional_logic",
                           "spiral_matrix", "string_insertion"}  # fmt: skip
JUNK = ["", "junk", "nan", "-inf", "Infinity", "x" * 50_000, "9" * 5000, "[" * 3000 + "]" * 3000, "(" * 3000, "\x00",
        "\ud800", "I don't know", ",", "..."]  # fmt: skip


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("task", [pytest.param(task, marks=() if task in SOME else pytest.mark.slow) for task in TASKS])
def test_references_score_and_junk_does_not(task):
    verifier, boxed = ReasoningGym(task, size=12), ReasoningGym(task, size=12, place="boxed")
    problems, again = (made.examples()[:3] for made in (verifier, ReasoningGym(task, size=12)))
    assert [(p.prompt, p.answer) for p in problems] == [(p.prompt, p.answer) for p in again]
    for problem in problems:
        right = problem.answer
        texts = [*JUNK, problem.prompt, *([f"{right} {right}9", f"not {right}9"] if right else [])]
        assert [text[:60] for text in texts if verifier.verify(problem, text).reward] == []
        for text in [right, f" {right}\n", f"<think>\n{right}zzz\n</think>\n{right}"] if right else []:
            assert verifier.verify(problem, text).reward == 1.0, text
        if right and right.count("{") == right.count("}") and "Move" not in right:
            assert boxed.verify(problem, f"So \\boxed{{{right}}}, not {right}9.").reward == 1.0
            assert boxed.verify(problem, right).reward == 0.0
        assert set(problem.prompt + right) <= set(verifier.alphabet)


@pytest.mark.parametrize("task", ["list_functions", "pool_matrix"])
def test_global_randomness_is_neither_used_nor_changed(task):
    def state():
        return random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    made = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = state()
        made.append([problem.prompt for problem in ReasoningGym(task, size=100).examples()])
        assert state() == before
    assert made[0] == made[1]


@pytest.mark.parametrize("task", [pytest.param(t, marks=() if t in EVALUATED else pytest.mark.slow) for t in TASKS])
def test_no_answer_runs(task, tmp_path):
    mark = tmp_path / "ran"
    touch = f'__import__("pathlib").Path({str(mark)!r}).touch()'
    verifier = ReasoningGym(task, size=2)
    problem = verifier.examples()[0]
    payloads = [
        touch, f"[{touch}]", f"[[{touch}]]", f"({touch},)", f"str({touch})", f"[x for x in [{touch}]]", f"x + {touch}",
        f"open({str(mark)!r}, 'w')", f"S({touch!r})", f"{problem.answer} + {touch}", f"(lambda: {touch})()",
        f"().__class__.__base__.__subclasses__()[0] or {touch}", f'f"{{{touch}}}"', f"exec({touch!r})",
    ]  # fmt: skip
    texts = [form.format(payload) for payload in payloads for form in ("{}", "<answer>{}</answer>")]
    paid = [text for text in texts if verifier.verify(problem, text).reward]
    assert not mark.exists() and (task not in EVALUATED or not paid)  # others may read a number in it


NO_FORMULAS = [
    "x.real", "exit()", "'a'", "x[0]", "9**9**9", "9**(9**9)", "(9**9)**(9**9)", "x**99999", "x_1", "aa", "1;2", "x=1",
    "lambda: 1", "1" * 13, "x+" * 300, "{x}", "x!", "٤", "\x00", "__import__", "1e999",
]  # fmt: skip
FORMULAS = ["x**2 + 3*x", "2*(2 - 8*x)**(3/2)/3 + C", "-exp(x)*sin(x)", "E**(x)", "1*3*5 + 9", "0.5"]


def test_formulas():
    assert all(map(is_formula, FORMULAS)) and not any(map(is_formula, NO_FORMULAS))
    assert set(TASKS) > SAME | ALIKE | EXPRESSIONS | set(TARGETS)


def test_settings_reach_the_task_and_a_copy_poses_the_same_problems_and_judges_alike():
    for terms in (2, 6):
        verifier = make_verifier("reasoning_gym:chain_sum", size=20, min_terms=terms, max_terms=terms)
        assert all(len(re.findall(r"\d+", problem.prompt)) == terms for problem in verifier.examples())
    copy, problems = pickle.loads(pickle.dumps(verifier)), verifier.examples()
    assert [p.prompt for p in copy.examples()] == [p.prompt for p in problems]
    texts = [problem.answer if index % 2 else "junk" for index, problem in enumerate(problems)]
    assert copy.verify_batch(problems, texts) == verifier.verify_batch(problems, texts)


def test_nothing_is_written_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verifier = ReasoningGym("n_queens", size=2)
    verifier.verify(verifier.examples()[0], "[['Q']]")
    assert list(Path.cwd().iterdir()) == []
