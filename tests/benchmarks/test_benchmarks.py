"""Each benchmark once, at a size where seconds mean nothing, and the command that runs them.

The runs of docs/results.md, and the command that judges public data, on rows made in the form of each file.
"""

import gzip
import hashlib
import itertools
import json
import math

import pytest
from diagonal import slow
from inprocess import result_of, run
from pages import check_rlenv

from rlenv import _benchmarks
from rlenv._benchmarks import (
    against_trl,
    env,
    generate,
    gpu,
    judged,
    measure,
    one_file,
    peers,
    record,
    sb3,
    tables,
    update,
    worlds,
)
from rlenv._benchmarks.floors import product_speed
from rlenv._benchmarks.measure import Case, measured
from rlenv._benchmarks.public_data import DATA
from rlenv._benchmarks.tables import ROWS, Row
from rlenv.verifiers import make_verifier


@pytest.fixture
def small(monkeypatch):
    """Make every benchmark small."""
    model = worlds.endless_model(15, 16, 1)
    monkeypatch.setattr(worlds, "_warm_model", lambda: model)
    for module, values in {
        generate: {"acting_floor": lambda *sizes: 1.0, "TINY": {3: 1}},
        sb3: {"THRESHOLD": 12.0, "EVERY": 100, "EPISODES": 4},
        env: {"TOKENS": 3, "TEXTS": {2: 1}, "SUMS": (8, 1), "POLES": (1,)},
        one_file: {"GROUPS": 2, "K": 2, "UPDATES": 2},
        update: {"product_speed": lambda model, **how: product_speed(model, work=1e5)},
    }.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def rows_of(cases):
    rows = [measured(case, 1) for case in cases]
    assert all(row.ours > 0 and row.peer > 0 and row.quality and row.pairs == 1 for row in rows)
    return [row.name for row in rows]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("module", "name", "count"),
    [(generate, "generate", 1), slow(sb3, "sb3", 2), slow(env, "env", 3), (one_file, "one-file", 1)],
)
def test_a_benchmark_yields_rows(module, name, count):
    assert len(rows_of(module.cases(name))) == count


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_benchmark_of_a_gpu_yields_rows():
    scale = gpu.Scale("cpu", 0.07, (2,), prompt=5, tokens=4, groups=2, k=2)
    names = rows_of(gpu.cases("gpu", scale))
    assert len(names) == 5 and "captured" in names[2] and names[1] == "GRPO, 2 x 2: training"


@pytest.mark.usefixtures("small")
def test_both_sides_take_the_same_optimizer_steps():
    job, theirs = against_trl.JOBS["trl-grpo"], peers.SAME_LOSS
    agent = against_trl.our_agent(job, job.start())
    assert agent.rate == job.rate, "from the first update on; TRL's default has no warm-up"
    for ours, name in (("lr_schedule", "lr_scheduler_type"), ("adam_eps", "adam_epsilon")):
        assert getattr(agent, ours) == theirs[name]
    for name in ("adam_beta1", "adam_beta2", "weight_decay", "max_grad_norm"):
        assert getattr(agent, name) == theirs[name]


def test_pairs_are_taken_in_turn_and_the_ratio_is_above_one_where_ours_is_better():
    order, speeds = itertools.count(1), iter([(10.0, 10.0), (30.0, 10.0)])
    row = measured(Case("x", "s", measure.in_turn(lambda: float(next(order)), lambda: 2.0 * next(order))), 2)
    assert (row.ours, row.peer) == (4.0, 10.0), "of 3 and 5, 8 and 12: the first pair is dropped"
    case = Case("x", "tokens/s", lambda: next(speeds), details=lambda: {"note": 1}, less_is_better=False, warm_up=0)
    row = measured(case, 2)
    assert (row.ratio, row.details) == ({"median": 2.0, "min": 1.0, "max": 3.0}, {"note": 1})


def test_the_command_writes_rows_with_machine_versions_and_command(monkeypatch, tmp_path):
    cases = lambda name: iter([Case(name, "s", lambda: (1.0, 2.0))])  # noqa: E731
    monkeypatch.setattr(_benchmarks, "find_benchmark", lambda name: cases)
    found = result_of(run("bench", "generate", "--pairs", 7, "--out", tmp_path / "new", "--json"))
    [row] = json.loads((tmp_path / "new" / "generate.json").read_text())
    assert row["pairs"] == 7 and row["command"] == "rlenv bench generate --pairs 7"
    assert {"processor", "cores", "gpu"} == set(row["machine"]) and "torch" in row["versions"] and row["date"]
    assert found == {"generate": [row]}


@pytest.mark.parametrize(
    ("config", "ended", "seconds"),
    [
        ({"timesteps": 1000}, {"timesteps": 900, "episodes": 10}, 5.0),
        ({"timesteps": 1000}, {"timesteps": 1003, "episodes": 10}, None),
        ({"episodes": 64}, {"timesteps": 900, "episodes": 32}, 5.0),
        ({"episodes": 64, "timesteps": None}, {"timesteps": 900, "episodes": 64}, None),
    ],
)
def test_a_run_that_uses_up_its_budget_has_missed_its_goal(config, ended, seconds):
    assert record.seconds_to_goal(config, {"sft_seconds": 2.0, "seconds": 3.0, **ended}) == seconds


def test_a_record_is_faster_and_a_check_allows_for_noise():
    assert record.times_as_long([10.0, 24.0, 9.0], [10.0, 20.0, 10.0]) == 1.0, "of seed by seed: 1, 1.2, 0.9"
    assert record.fault([10.0, 20.0], None, record.FASTER) == "", "the first"
    assert record.fault([9.0, 19.0], [10.0, 20.0], record.FASTER) == ""
    assert "0.97 times" in record.fault([9.7, 19.4], [10.0, 20.0], record.FASTER)
    assert record.fault([11.0, 22.0], [10.0, 20.0], record.SLOWER) == ""
    assert "1.20 times" in record.fault([12.0, 24.0], [10.0, 20.0], record.SLOWER)


def test_a_seed_that_misses_the_goal_counts_as_infinitely_long():
    assert record.median([3.0, None, 1.0]) == 3.0 and record.median([None, 2.0, None]) == math.inf
    assert record.times_as_long([None, None, 9.0, 3.0], [None, 20.0, None, 2.0]) == 1.5, "of infinity, 0, 1.5"
    assert record.fault([3.0, None, 1.0], None, record.FASTER) == ""
    assert "1 of 2 seeds" in record.fault([3.0, None], [3.0, 3.0], record.SLOWER)


TRAIN = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--log-dir") + 1])
folder.mkdir()
result = {"sft_seconds": 1.0, "seconds": int(sys.argv[sys.argv.index("--seed") + 1]), "timesteps": 1}
(folder / "config.json").write_text(json.dumps({"timesteps": int(os.environ["OMP_NUM_THREADS"])}))
(folder / "result.json").write_text(json.dumps(result))
sys.exit("no luck" if result["seconds"] == 9 else 0)
"""


def test_the_code_that_runs_is_that_of_the_tree(tmp_path):
    (tmp_path / "src" / "rlenv").mkdir(parents=True)
    (tmp_path / "src" / "rlenv" / "__init__.py").touch()
    (tmp_path / "src" / "rlenv" / "__main__.py").write_text(TRAIN)
    task = record.Task("rlenv train --of-this-tree", 1.0, 1)
    assert record.run(task, tmp_path, 3, tmp_path / "run-3") == 4.0
    with pytest.raises(RuntimeError, match="status 1: no luck"):
        record.run(task, tmp_path, 9, tmp_path / "run-9")


# The runs of docs/results.md: their commands exist, and a call continues what an earlier one left.


@pytest.mark.parametrize("name", ROWS)
def test_the_command_of_a_row_is_one(name, tmp_path):
    command, _ = check_rlenv(tables.command(ROWS[name], 0, tmp_path)[1:])
    assert command.name == "train"


def test_a_row_with_a_verifier_of_a_file_is_continued(tmp_path):
    options = "--verifier examples/real_model/sums.py:Sums --episodes-per-update 8 --sft-steps 0 --eval-episodes 2"
    row = Row("sums", f"{options} --max-new-tokens 2", 1)
    for episodes in (8, 16):
        _, *words = tables.command(row, 0, tmp_path / "sums-0")
        assert ("--resume" in words) == (episodes == 16)
        outcome = run(*words, "--episodes", episodes)
        assert outcome.exit_code == 0, outcome.output


# The command that judges public data.

CHECK = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(0, 0) == 0\n"
ADD = {
    "task_id": "HumanEval/0", "prompt": 'def add(a, b):\n    """Add."""\n', "entry_point": "add",
    "canonical_solution": "    return a + b\n", "test": CHECK,
}  # fmt: skip
FILES = {  # a file of each data set, as rows
    "GSM8K": [
        {"question": "A pen costs 3 of Ann's 20 coins. What do 6 cost?", "answer": "3 * 6 = <<3*6=18>>18\n#### 18"},
        {"question": "How many seats do 12 cars with 100 seats each have?", "answer": "It is 12 * 100.\n#### 1,200"},
    ],
    "GSM8K, OpenAI's four models": [
        {
            "question": "What do 6 pens of 3 coins cost?", "ground_truth": "3 * 6 = 18\nA: 18",
            "6b_finetuning": {"is_correct": True, "solution": "6 * 3 = 18\n#### 18"},
            "175b_verification": {"is_correct": False, "solution": "6 + 3 = 9\n#### 9"},
        }
    ],
    "GSM8K, ToRA": [
        {"question": "How many?", "gt": "1,200", "pred": ["1200.0"], "code": ["It is $\\boxed{1200.0}$."]},
        {"question": "How many?", "gt": "7", "pred": ["8"], "code": ["It is $\\boxed{8}$."]},
    ],
    "AIME 2024": [{"problem": "Find n.", "solution": "So n is $\\boxed{204}$.", "answer": "204"}],
    "MATH, test": [
        {"problem": "What is one half?", "solution": "It is $\\boxed{\\frac{1}{2}}$."},
        {"problem": "What is the diagonal of a square of side 3?", "solution": "It is $\\boxed{3\\sqrt{2}}$."},
        {"problem": "Is 12 even or odd?", "solution": "It is $\\boxed{\\text{even}}$."},
        {"problem": "Is 13 even or odd?", "solution": "It is $\\boxed{\\text{odd}}$."},
    ],
    "MATH-500": [{"problem": "Solve.", "solution": "We get $\\boxed{-4}$.", "answer": "-4"}],
    "MATH, Qwen2.5-Math": [
        {"question": "What is 2 + 2?", "gt": "4", "code": ["\\boxed{4}", "\\boxed{5}"], "score": [True, False]}
    ],
    "MMLU STEM": [{"question": "Peru's capital?", "choices": ["Quito", "Lima", "Bogota", "La Paz"], "answer": 1}],
    "HumanEval": [ADD],
    "HumanEval, Reflexion": [
        ADD | {"solution": "def add(a, b):\n    return a + b\n", "is_solved": True},
        ADD | {"solution": "    return a - b", "is_solved": False},
    ],
    "MBPP": [
        {
            "text": "Write a function that adds.", "code": "def add(a, b):\r\n    return a + b", "test_setup_code": "",
            "test_list": ["assert add(2, 3) == 5"],
        },
        {"text": "No form of ours.", "code": "x = 1", "test_setup_code": "", "test_list": ["assert x == 1"]},
    ],
}  # fmt: skip
MISSED = {("MBPP", "reference"): 1}  # tests without a call


def written(folder, name, monkeypatch):
    """Write the rows of a data set into its first file, and make that its only source."""
    data = DATA[name]
    content = "".join(json.dumps(row) + "\n" for row in FILES[name]).encode()
    source = data.sources[0]
    content = gzip.compress(content) if source.path.endswith(".gz") else content
    source = source._replace(blob=hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
    place = folder / source.repository / source.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    monkeypatch.setitem(DATA, name, data._replace(sources=[source]))
    return DATA[name]


@pytest.mark.parametrize("name", FILES)
def test_verdicts_on_rows_of_each_file(name, tmp_path, monkeypatch):
    data = written(tmp_path, name, monkeypatch)
    result = judged.judge(name, make_verifier(data.verifier), data.read(tmp_path))
    assert result["rows"] == len(FILES[name])
    for kind, (paid, total) in result["counts"].items():
        assert total > 0
        assert paid == (total - MISSED.get((name, kind), 0) if judged.KINDS[kind] else 0), kind
    assert {kind.split()[0] for kind in result["counts"]} <= {"reference", "stated", "own", "wrong", "echo", "labelled"}
