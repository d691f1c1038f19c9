import inspect
import pickle
import random
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import reasoning_gym

from verifiers import Isolated, Problem, ReasoningGym, make_verifier
from verifiers.builtin.reasoning_gym.rules import (
    EXACT,
    EXPRESSIONS,
    FORMS,
    LITERALS,
    NUMBERS,
    TARGETS,
    is_formula,
    is_literal,
)

TASKS = sorted(set(reasoning_gym.factory.DATASETS) - {"composite"})  # which is made of others
SOME = ["leg_counting", "chain_sum", "maze", "rush_hour", "syllogism", "time_intervals", "word_ladder", "dice"]


@pytest.fixture(autouse=True)
def their_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


HARMLESS = {
    "propositional_logic",  # its parse_expr is its own, and evaluates nothing
    "bitwise_arithmetic",  # evaluates its problem
}


def junk(problem):
    """Texts that answer nothing."""
    return [
        "", "junk", "nan", "-inf", "Infinity", "x" * 50_000, "9" * 5000, "[" * 3000 + "]" * 3000, "(" * 3000, "\x00",
        "\ud800", "I don't know", ",", "...", problem.prompt,
    ]  # fmt: skip


def hedged(answer):
    """Texts that name the answer among other things."""
    return [
        f"{answer} or x", f"x or {answer}", f"The answer is {answer}", f"not {answer}", f"zzz\n{answer}",
        f"{answer}\nzzz", f"{answer} {answer}zzz", f"{answer}zzz",
    ]  # fmt: skip


def hold_to_the_rules(task, size=12):
    verifier = ReasoningGym(task, size=size)
    problems, again = verifier.examples()[:3], ReasoningGym(task, size=size).examples()[:3]
    assert [(p.prompt, p.answer) for p in problems] == [(p.prompt, p.answer) for p in again]
    for problem in problems:
        texts = junk(problem) + (hedged(problem.answer) if problem.answer else [])
        assert [text[:60] for text in texts if verifier.verify(problem, text).reward] == []
        if problem.answer:
            assert verifier.verify(problem, problem.answer).reward == 1.0
            assert verifier.verify(problem, f" {problem.answer}\n").reward == 1.0
            assert set(problem.prompt + problem.answer) <= set(verifier.alphabet)


@pytest.mark.parametrize("task", sorted({*SOME, *EXACT, *NUMBERS, *FORMS} - {"sokoban", "quantum_lock"}))
def test_references_score_and_junk_does_not(task):
    hold_to_the_rules(task)


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


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("task", TASKS)
def test_references_score_and_junk_does_not_in_any_task(task):
    hold_to_the_rules(task)


def test_the_lists_name_tasks_that_there_are():
    assert (LITERALS | EXPRESSIONS | EXACT | set(NUMBERS) | set(FORMS) | set(TARGETS)) <= set(TASKS)


EVALUATES = re.compile(r"(?<![\w.])(?:eval|exec)\(|\b(?:parse_expr|sympify)\(|\bsy?m?p[ye]?\.S\(|(?<![\w.])S\(")


def test_every_scorer_that_evaluates_answers_is_on_a_list():
    """Whatever a new release brings: a method that score_answer can reach and that evaluates has to be known."""
    found = set()
    for task, (dataset, _) in reasoning_gym.factory.DATASETS.items():
        sources = {name: _source(getattr(dataset, name)) for name in dir(dataset) if not name.startswith("__")}
        reached, new = set(), {"score_answer"}
        while new:
            reached |= new
            called = {name for at in new for name in re.findall(r"\b(?:self|cls)\.(\w+)", sources.get(at, ""))}
            called |= {name for at in new for name in re.findall(r"(?<![\w.])(\w+)\(", sources.get(at, ""))}
            module = vars(sys.modules[dataset.__module__])
            for name in called - set(sources):
                if inspect.isfunction(module.get(name)) and "reasoning_gym" in module[name].__module__:
                    sources[name] = _source(module[name])
            new = (called & set(sources)) - reached
        code = "\n".join(sources[name] for name in reached)
        if EVALUATES.search(re.sub(r'eval\(entry\["answer"\]\)', "", code)):
            found.add(task)
    assert found - HARMLESS == LITERALS | EXPRESSIONS


def _source(found):
    try:
        return inspect.getsource(found)
    except (OSError, TypeError):
        return ""


@pytest.mark.parametrize("task", sorted(LITERALS | EXPRESSIONS | HARMLESS))
@pytest.mark.parametrize("strict", [True, False])
def test_no_answer_runs(task, strict, tmp_path):
    mark = tmp_path / "ran"
    touch = f'__import__("pathlib").Path({str(mark)!r}).touch()'
    verifier = ReasoningGym(task, size=2, strict=strict)
    problem = verifier.examples()[0]
    payloads = [
        touch, f"[{touch}]", f"[[{touch}]]", f"({touch},)", f"str({touch})", f"[x for x in [{touch}]]", f"x + {touch}",
        f"open({str(mark)!r}, 'w')", f"S({touch!r})", f"{problem.answer} + {touch}", f"(lambda: {touch})()",
        f"().__class__.__base__.__subclasses__()[0] or {touch}", f'f"{{{touch}}}"', f"exec({touch!r})",
    ]  # fmt: skip
    for payload in payloads:
        assert verifier.verify(problem, payload).reward == 0.0
    assert not mark.exists()


def test_the_payloads_would_run_without_the_lists(tmp_path, monkeypatch):
    monkeypatch.setattr("verifiers.builtin.reasoning_gym.verifier.is_harmless", lambda task, answer: True)
    mark = tmp_path / "ran"
    verifier = ReasoningGym("string_insertion", size=2, strict=False)
    verifier.verify(verifier.examples()[0], f'[__import__("pathlib").Path({str(mark)!r}).touch()]')
    assert mark.exists()


@pytest.mark.parametrize(
    "text", ["x**2 + 3*x", "2*(2 - 8*x)**(3/2)/3 + C", "-exp(x)*sin(x)", "E**(x)", "1*3*5 + 9", "0.5"]
)
def test_formulas(text):
    assert is_formula(text)


NO_FORMULAS = [
    "x.real", "exit()", "'a'", "x[0]", "9**9**9", "9**(9**9)", "(9**9)**(9**9)", "x**99999", "x_1", "aa", "1;2", "x=1",
    "lambda: 1", "1" * 13, "x+" * 300, "{x}", "x!", "٤", "\x00", "__import__", "1e999",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_FORMULAS)
def test_no_formulas(text):
    assert not is_formula(text)


def test_literals():
    assert all(map(is_literal, ["[1, 2]", "'a'", "[['Q', '_']]", "(1,)", "None", "-1"]))
    assert not any(map(is_literal, ["", "f()", "[x]", "1+1", "[" * 3000, "'a'*9", "9" * 6000, "\x00", "\ud800", "[1"]))


def test_the_holes_that_the_rules_close():
    """What the package gives the full score for, and what is wrong with it."""
    holes = [("puzzle24", "6*4*1*1"), ("coin_flip", "0"), ("complex_arithmetic", "nan"), ("dice", "٣")]
    for task, text in holes:
        count = 6 if task == "puzzle24" else 30  # a puzzle takes 0.1 s to make
        verifier = ReasoningGym(task, size=count + 4)
        problems = [verifier.sample(random.Random(seed)) for seed in range(count)]
        wrong = [problem for problem in problems if problem.answer != text]
        assert wrong and not any(verifier.verify(problem, text).reward for problem in wrong), task
    loose = ReasoningGym("puzzle24", size=4, strict=False)
    assert all(loose.verify(problem, "6*4*1*1").reward == 1.0 for problem in loose.examples())


def test_other_right_answers_score():
    entry = {"question": "", "answer": "", "metadata": {"numbers": [3, 3, 8, 8]}}
    puzzle, verifier = Problem("", "8/(3 - 8/3)", {"entry": entry}), ReasoningGym("puzzle24", size=1)
    assert verifier.verify(puzzle, "8/(3-8/3)").reward == 1.0
    assert verifier.verify(puzzle, "(3+8-3)*3").reward == 0.0
    problem = Problem("", "0.3125", {"entry": {"question": "", "answer": "0.3125", "metadata": {}}})
    verifier = ReasoningGym("coin_flip", size=1)
    rewards = [verifier.verify(problem, text).reward for text in ("5/16", "0.31250", "0.31", "0.4", "0.3125x")]
    assert rewards == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_loose_scoring_pays_for_parts_and_strict_does_not():
    strict, loose = ReasoningGym("leg_counting", size=5), ReasoningGym("leg_counting", size=5, strict=False)
    for problem in strict.examples():
        text = f"The answer is {problem.answer}"
        assert strict.verify(problem, text).reward == 0.0
        assert 0.0 < loose.verify(problem, text).reward < 1.0
        assert loose.verify(problem, problem.answer).reward == 1.0


def test_a_section_can_be_judged():
    verifier = ReasoningGym("leg_counting", size=5, inside="answer")
    problem = verifier.examples()[0]
    assert verifier.demonstration(problem) == f"<answer>{problem.answer}</answer>"
    assert verifier.verify(problem, f"hm <answer> {problem.answer} </answer>").reward == 1.0
    assert verifier.verify(problem, problem.answer).reward == 0.0


def test_settings_reach_the_task():
    few = make_verifier("reasoning_gym:chain_sum", size=20, min_terms=2, max_terms=2)
    many = make_verifier("reasoning_gym:chain_sum", size=20, min_terms=6, max_terms=6)
    assert all(len(re.findall(r"\d+", problem.prompt)) == 2 for problem in few.examples())
    assert all(len(re.findall(r"\d+", problem.prompt)) == 6 for problem in many.examples())


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("leg_countin", {}, "unknown task 'leg_countin'; did you mean leg_counting"),
        ("zzzzzz", {}, "unknown task 'zzzzzz'; there are 1"),
        ("chain_sum", {"min_term": 2}, "reasoning_gym:chain_sum refuses size=10000, min_term=2: .*min_term"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "refuses size=10000, min_terms=9, max_terms=2"),
        ("chain_sum", {"size": 0}, "size must be a whole number from 1 to"),
        ("chain_sum", {"strict": "yes"}, "strict must be true or false, got 'yes'"),
        ("chain_sum", {"inside": "<a>"}, "a tag is a letter"),
        ("composite", {}, "reasoning_gym:composite refuses size=10000"),
    ],
)
def test_what_it_does_not_take_is_one_line(task, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_verifier(f"reasoning_gym:{task}", **settings)
    assert "\n" not in str(caught.value)


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"needs reasoning_gym: pip install 'rlenv\[reasoning-gym\]'"):
        make_verifier("reasoning_gym:leg_counting")


def test_it_travels_to_workers_and_judges_alike_there():
    verifier = ReasoningGym("leg_counting", size=50)
    copy = pickle.loads(pickle.dumps(verifier))
    problems = verifier.examples()
    assert [p.prompt for p in copy.examples()] == [p.prompt for p in problems]
    texts = [problem.answer if index % 2 else "junk" for index, problem in enumerate(problems)]
    apart = Isolated(verifier, workers=1)
    try:
        assert apart.verify_batch(problems, texts) == verifier.verify_batch(problems, texts)
    finally:
        apart.close()


def test_nothing_is_written_where_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verifier = ReasoningGym("n_queens", size=2)
    verifier.verify(verifier.examples()[0], "[['Q']]")
    assert list(Path.cwd().iterdir()) == []
