import inspect
import pickle
import random
import re
import sys
import warnings
from decimal import Decimal
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
    TARGETS,
    is_formula,
    is_literal,
)
from verifiers.builtin.reasoning_gym.shapes import DOCUMENTS, JSON, NUMERIC
from verifiers.builtin.reasoning_gym.values import VALUES
from verifiers.reading.extraction import EXTRACTS

TASKS = sorted(set(reasoning_gym.factory.DATASETS) - {"composite"})  # which is made of others
SLOW_TO_MAKE = {"arc_1d", "game_of_life", "quantum_lock", "rush_hour", "sokoban", "rubiks_cube"}
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


def hold_to_the_rules(task, size=12, count=3):
    verifier = ReasoningGym(task, size=size, extract="strict")
    problems, again = (made.examples()[:count] for made in (verifier, ReasoningGym(task, size=size)))
    assert [(p.prompt, p.answer) for p in problems] == [(p.prompt, p.answer) for p in again]
    for problem in problems:
        texts = junk(problem) + (hedged(problem.answer) if problem.answer else [])
        assert [text[:60] for text in texts if verifier.verify(problem, text).reward] == []
        if problem.answer:
            assert verifier.verify(problem, problem.answer).reward == 1.0
            assert verifier.verify(problem, f" {problem.answer}\n").reward == 1.0
            assert set(problem.prompt + problem.answer) <= set(verifier.alphabet)
    hold_to_what_is_stated(task, ReasoningGym(task, size=size), problems)


WRAPPINGS = [
    "{}\n", "The answer is {}.", "**Answer:** {}", "Let me think about it.\n\nSo the final answer is **{}**.",
    "<think>\nIt may be {wrong}.\n</think>\n\n{}", "Therefore, the answer is: {}\n\nLet me know if you have questions!",
]  # fmt: skip
BLOCKS = ["{}\n", "Here it is:\n\n```\n{}\n```\n\nEvery rule holds.", "Here it is:\n\n{}\n\nEvery rule holds."]
HEDGES = ["{wrong} or {}", "{} or {wrong}", "The answer is not {}.", "The answer is {}. The answer is {wrong}."]


def hold_to_what_is_stated(task, verifier, problems):
    for problem in problems:
        assert [text[:60] for text in junk(problem) if verifier.verify(problem, text).reward] == []
        wrong = next((each.answer for each in problems if each.answer.lower() != problem.answer.lower()), "")
        if not problem.answer or not wrong or task in WITHOUT_WRAPPINGS:
            continue
        lines = task in {*DOCUMENTS, *JSON, "futoshiki"}
        for wrapping in BLOCKS if lines and task != "codeio" else WRAPPINGS:
            right = wrapping.replace("{}", problem.answer).replace("{wrong}", wrong)
            assert verifier.verify(problem, right).reward == 1.0, right
            other = wrapping.replace("{}", wrong).replace("{wrong}", problem.answer)
            assert verifier.verify(problem, other).reward == 0.0, other
        for hedge in () if lines else HEDGES:
            assert verifier.verify(problem, hedge.replace("{}", problem.answer).replace("{wrong}", wrong)).reward == 0.0


WITHOUT_WRAPPINGS = {"emoji_mystery", "letter_jumble", "sentence_reordering"}  # whole sentences


HELD = sorted({*SOME, *EXACT, *FORMS, *VALUES} - SLOW_TO_MAKE)
FAST = {*SOME, *HELD[::2]} - {"word_ladder"}  # a slow test holds all tasks to the rules


@pytest.mark.parametrize(
    "task", [task if task in FAST else pytest.param(task, marks=pytest.mark.slow) for task in HELD]
)
def test_references_score_and_junk_does_not(task):
    hold_to_the_rules(task, count=2)


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
    assert LITERALS | EXPRESSIONS | EXACT | JSON | NUMERIC | {*FORMS, *TARGETS, *VALUES, *DOCUMENTS} <= set(TASKS)


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


STRICTLY = sorted(LITERALS | EXPRESSIONS)[3:]  # slow with the strict verifier: the loose one lets more through

DEAREST = {(False, "puzzle24"), *((True, task) for task in STRICTLY)}


@pytest.mark.parametrize(
    ("strict", "task"),
    [
        pytest.param(strict, task, marks=pytest.mark.slow if (strict, task) in DEAREST else ())
        for strict in (True, False)
        for task in sorted(LITERALS | EXPRESSIONS | HARMLESS)
    ],
)
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
        count = 1 if task == "puzzle24" else 30  # a puzzle takes 0.1 s to make
        verifier = ReasoningGym(task, size=count + 4)
        problems = [verifier.sample(random.Random(seed)) for seed in range(count)]
        wrong = [problem for problem in problems if problem.answer != text]
        assert wrong and not any(verifier.verify(problem, text).reward for problem in wrong), task
    loose = ReasoningGym("puzzle24", size=1, strict=False)
    assert all(loose.verify(problem, "6*4*1*1").reward == 1.0 for problem in loose.examples())


def shifted(text, by):
    return re.sub(r"-?[0-9.]+", lambda found: str(Decimal(found[0]) + Decimal(by)), text)


LENIENT = {  # a wrong answer that the package gives the full score, made from the right one
    "advanced_geometry": lambda answer: f"{answer}1" if "°" in answer else shifted(answer, "0.0004"),
    "decimal_arithmetic": lambda answer: str(Decimal(answer) + Decimal("0.0009")),
    "figlet_font": lambda answer: f"{answer[:10]}{'z' * len(answer[10:])}" if len(answer) > 10 else None,
    "game_of_life": lambda answer: f"{answer[:-1]},[1]]",
    "number_format": lambda answer: str(Decimal(answer) + Decimal("0.005")),
    "number_sorting": lambda answer: shifted(answer, "0.4"),
    "pool_matrix": lambda answer: shifted(answer, "0.009"),
    "time_intervals": lambda answer: f"{answer}, 23:59" if answer.endswith("days") else None,
    "word_sorting": lambda answer: f"{answer}, {answer}",
}


DEAR = ("figlet_font", "game_of_life")


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=pytest.mark.slow) if task in DEAR else task for task in LENIENT]
)
def test_what_only_a_lenient_scorer_accepts_is_not_paid_for(task):
    settings = {"min_word_len": 11, "max_word_len": 12} if task == "figlet_font" else {}
    loose = ReasoningGym(task, size=12, strict=False, extract="strict", **settings)
    problems = [(problem, LENIENT[task](problem.answer)) for problem in loose.examples()]
    paid = [(problem, text) for problem, text in problems if text and loose.verify(problem, text).reward == 1.0]
    assert paid
    for rule in ("stated", "strict"):
        verifier = ReasoningGym(task, size=12, extract=rule, **settings)
        assert [text for problem, text in paid if verifier.verify(problem, text).reward] == []


def test_any_number_is_close_to_a_negative_one_for_the_scorer_only():
    metadata = {"task": "recurring_event_day"}
    entry = {"question": "On which day is the fifth Monday? If there is none, return -1.", "answer": "-1"}
    problem = Problem(entry["question"], "-1", {"entry": {**entry, "metadata": metadata}})
    loose = ReasoningGym("calendar_arithmetic", size=1, strict=False, extract="strict")
    assert loose.verify(problem, "17").reward == 1.0
    for rule in ("stated", "strict"):
        verifier = ReasoningGym("calendar_arithmetic", size=1, extract=rule)
        assert [verifier.verify(problem, text).reward for text in ("17", "-1")] == [0.0, 1.0]


STATED = [
    ("syllogism", "No", "No. Some doctors need not be dogs, so the conclusion does not follow.", 1.0),
    ("syllogism", "No", "It does not logically follow from the two statements.", 1.0),
    ("syllogism", "Yes", "It does not logically follow from the two statements.", 0.0),
    ("syllogism", "No", "Yes, since no doctor is a dog.", 0.0),
    ("isomorphic_strings", "False", "The letter a maps to both b and c, so the answer is **False**.", 1.0),
    ("isomorphic_strings", "False", "The strings are not isomorphic.", 1.0),
    ("isomorphic_strings", "True", "true", 1.0),
    ("isomorphic_strings", "True", "True or False", 0.0),
    ("list_functions", "[50, 88, 29]", "The output is [50,88,29].", 1.0),
    ("list_functions", "[50, 88, 29]", "[50, 88]", 0.0),
    ("number_sorting", "['-2.8', '17.0']", 'Sorted: ["-2.8", "17.0"]', 1.0),
    ("number_sorting", "['-2.8', '17.0']", "['17.0', '-2.8']", 0.0),
    ("prime_factorization", "2 × 2 × 5 × 7 × 7", "$980 = 2^2 \\times 5 \\times 7^2$", 1.0),
    ("prime_factorization", "2 × 2 × 5 × 7 × 7", "980 = 4 × 5 × 49", 0.0),
    ("prime_factorization", "139", "139 is already a prime number.", 1.0),
    ("base_conversion", "45a", "1540 in base 8 is 864 in base 10, which is **45a** in base 14.", 1.0),
    ("bitwise_arithmetic", "0x3eb2", "(0x7d65 >> 0x2) << 0x1 = 0x1f59 << 0x1 = 0x3eb2", 1.0),
    ("bitwise_arithmetic", "0x3eb2", "16050", 0.0),
    ("fraction_simplification", "138/583", "$$\\frac{276}{1166} = \\boxed{\\frac{138}{583}}$$", 1.0),
    ("fraction_simplification", "138/583", "The fraction is 276/1166.", 0.0),
    ("shortest_path", "up up right up", "The shortest path is: up, up, right, up.", 1.0),
    ("word_ladder", "PEGS,BEGS,BEES", "PEGS → BEGS → BEES", 1.0),
    ("spell_backward", "talps", '"splat" spelled backward is **talps**.', 1.0),
    ("spell_backward", "talps", "The word backward is tlaps.", 0.0),
    ("caesar_cipher", "TIME WENT ON", "Each letter moves by one.\n\nDecrypted text: TIME WENT ON", 1.0),
    ("knights_knaves", "Amelia is a hero, and Bo is a fool.", "So Amelia is a hero, and Bo is a fool.", 1.0),
    ("knights_knaves", "Amelia is a hero, and Bo is a fool.", "So Amelia is a fool, and Bo is a hero.", 0.0),
    ("syllogism", "No", "No. The fact that some are not tigers tells us nothing about reptiles.", 1.0),
    ("syllogism", "No", "No, the statements say nothing about that.", 1.0),
    ("syllogism", "No", "No, that is wrong.", 0.0),
    ("syllogism", "Yes", "No. The fact that some are not tigers tells us nothing about reptiles.", 0.0),
    ("complex_arithmetic", "6.0 + 3.0i", "(4 - 4i) + (2 + 7i) = (4 + 2) + (-4 + 7)i = 6 + 3i", 1.0),
    ("complex_arithmetic", "6.0 + 3.0i", "$(4 - 4i) + (2 + 7i) = 6 + 3i$", 1.0),
    ("complex_arithmetic", "6.0 + 3.0i", "Real: 4 + 2 = 6\nImaginary: -4 + 7 = 3\n\n6 + 3i", 1.0),
    ("complex_arithmetic", "6.0 + 3.0i", "(4 - 4i) + (2 + 7i) = 6 + 4i", 0.0),
    ("complex_arithmetic", "6.0 + 3.0i", "2(6 + 3i)", 0.0),
    ("complex_arithmetic", "6.0 + 3.0i", "Either 6.0 + 3.0i or 6.00.", 0.0),
    ("complex_arithmetic", "6.0 + 3.0i", "Either -6.00 or 6.0 + 3.0i.", 0.0),
    ("complex_arithmetic", "6.00", "Either 6.00 or 6.0 + 3.0i.", 0.0),
    ("base_conversion", "12323", "In pairs: 1 10 11 10 11 → 1 2 3 2 3\n\n12323", 1.0),
    ("base_conversion", "12323", "In pairs: 1 10 11 10 11 → 1 2 3 2 3\n\n12333", 0.0),
    ("base_conversion", "12323", "$12323_4$", 1.0),
    ("base_conversion", "12323", "12323 or 12333", 0.0),
    ("prime_factorization", "3 × 3 × 41", "369 = 3 × 123. 123 = 3 × 41. 41 is prime.\n\n**3 × 3 × 41**", 1.0),
    ("prime_factorization", "3 × 3 × 41", "369 = 3 × 123. 123 = 3 × 41. 41 is prime.\n\n**3 × 3 × 43**", 0.0),
    ("prime_factorization", "3 × 3 × 41", "The answer is 3 × 41.\n\n**3 × 3 × 41**", 0.0),
    ("time_intervals", "04:26", "From 14:07 to 18:07 is 4 hours. The call lasted **04:26**.", 1.0),
    ("time_intervals", "04:26", "From 14:07 to 18:07 is 4 hours. The call lasted **04:25**.", 0.0),
    ("simple_geometry", "119", "540 \N{MINUS SIGN} (37 + 384) = 540 \N{MINUS SIGN} 421 = 119\n\n119", 1.0),
    ("simple_geometry", "119", "540 \N{MINUS SIGN} (37 + 384) = 540 \N{MINUS SIGN} 421 = 118\n\n119", 0.0),
]


@pytest.mark.parametrize(("task", "answer", "completion", "reward"), STATED)
def test_short_answers_may_be_stated_in_a_sentence(task, answer, completion, reward):
    verifier = ReasoningGym(task, size=1)
    metadata = {"word_length": 4, "start_word": "PEGS", "end_word": "BEES", "solution": answer}
    metadata |= {"simplified_numerator": 138, "simplified_denominator": 583, "numerator": 276, "denominator": 1166}
    metadata |= {"result": (6, 3), "task_type": "time"}
    metadata |= {"problem": "(0x7d65 >> 0x2) << 0x1", "direction": "ascending", "matrix": [["#", "X"], ["O", "*"]]}
    if task == "shortest_path":
        metadata["matrix"] = [["X", "#"], ["O", "O"], ["O", "X"], ["*", "X"]]
    problem = Problem("", answer, {"entry": {"question": "?", "answer": answer, "metadata": metadata}})
    assert verifier.verify(problem, completion).reward == reward


def test_which_answer_counts_is_a_choice():
    text = "6 * 7 = 42. The answer is \\boxed{42}.\n\nI checked 3 times."
    problem = Problem("", "42", {"entry": {"question": "What is 6 * 7?", "answer": "42", "metadata": {}}})
    made = {rule: ReasoningGym("products", size=1, extract=rule) for rule in EXTRACTS}
    rewards = {rule: verifier.verify(problem, text).reward for rule, verifier in made.items()}
    assert rewards == {"stated": 1.0, "strict": 0.0, "last": 0.0, "boxed": 1.0}
    assert made["stated"].extract(problem, text) == "42"
    assert made["stated"].extract(problem, "I do not know.") is None
    with pytest.raises(ValueError, match="reasoning_gym: extract must be one of stated, strict, last, boxed, got"):
        ReasoningGym("products", size=1, extract="first")


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
    strict = ReasoningGym("leg_counting", size=5, extract="strict")
    loose = ReasoningGym("leg_counting", size=5, strict=False, extract="strict")
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


def copied():
    """Return a verifier, a copy that poses the same problems, these, and answers to them."""
    verifier = ReasoningGym("leg_counting", size=50)
    copy = pickle.loads(pickle.dumps(verifier))
    problems = verifier.examples()
    assert [p.prompt for p in copy.examples()] == [p.prompt for p in problems]
    texts = [problem.answer if index % 2 else "junk" for index, problem in enumerate(problems)]
    return verifier, copy, problems, texts


def test_a_copy_poses_the_same_problems_and_judges_alike():
    verifier, copy, problems, texts = copied()
    assert copy.verify_batch(problems, texts) == verifier.verify_batch(problems, texts)


@pytest.mark.slow  # a worker imports the package for seconds
def test_it_travels_to_workers_and_judges_alike_there():
    verifier, _, problems, texts = copied()
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
