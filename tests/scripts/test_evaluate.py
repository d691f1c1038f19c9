"""`rlenv evaluate`: figures, the file of completions, and models without a run."""

import json
import shutil
from pathlib import Path

import inprocess
import pytest
from inprocess import done, run
from runs import edited

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._scripts.reports.evaluation_figures import describe
from rlenv._scripts.reports.problem_figures import of_attempts, with_intervals
from rlenv.agents import Reinforce
from rlenv.agents.files import seal

SAMPLED = ("--episodes", 6, "--samples", 4, "--temperature", 0.8, "--top-p", 0.9, "--device", "cpu")
SUMS = {"verifier": "arith", "verifier_kwargs": {"digits": 2, "levels": 2}}


def result_of(*args):
    return inprocess.result_of(run("evaluate", *args, "--json"))


def rows_in(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def saved(folder, env_kwargs):
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=env_kwargs, episodes_per_update=4, device="cpu")
    agent.save(folder / "checkpoint")
    return agent


def name(folder, **facts):
    """Change what a checkpoint says of itself."""
    edited(folder / "checkpoint" / "agent.json", **facts)
    seal(folder / "checkpoint")


def test_a_wrong_name_is_said_before_work_on_the_others(own):
    assert "'nowhere' is not a run folder" in inprocess.error_of(run("evaluate", own, "nowhere", *SAMPLED))
    assert not (own / "evaluations").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a run folder with an untrained policy on two levels of sums."""
    path = tmp_path_factory.mktemp("runs") / "sums"
    saved(path, SUMS)
    return path


@pytest.fixture
def own(folder, tmp_path):
    """Return a copy of the run folder, to be changed."""
    return shutil.copytree(folder, tmp_path / "run")


def row(problem, answer, success, **changes):
    usual = {"status": "ok", "truncated": False}
    return usual | {"problem": problem, "extracted": answer, "success": success} | changes


def test_figures_count_verdicts():
    rows = [row(0, "1", True), row(0, "2", False, status="timeout"), row(1, "1", False), row(1, None, False)]
    at = of_attempts(rows, 2, range(2), 0)["pass_at_k"]
    assert (at["1"]["value"], at["1"]["problems"]) == (0.5, 2) and at["1"]["low"] <= 0.5 <= at["1"]["high"]
    assert (at["2"]["value"], at["2"]["problems"]) == (0.0, 1)  # the first problem has one verdict only
    rows[1] = row(0, "2", False)
    found = of_attempts(rows, 2, range(2), 0)
    assert (found["pass_at_k"]["2"]["value"], found["maj_at_k"]["2"]["value"]) == (0.5, 0.25)
    failed = row(2, None, False, truncated=True, status="error")
    cut = with_intervals({"a": 1}, [row(0, "1", True), row(1, None, True, truncated=True), failed], range(3), 0)
    assert cut == {"a": 1, "unjudged_problems": 1, "success_interval": [1.0, 1.0], "truncated_share": 0.5}
    uneven = [row(0, "1", True)] * 8 + [row(n, "1", False) for n in range(1, 5)]  # others of theirs failed
    low, high = with_intervals({}, uneven, range(5), 0)["success_interval"]
    assert low <= 8 / 12 <= high, "success_rate, which it is beside, is of episodes"


def test_the_share_of_followed_instructions_counts_instructions_and_not_prompts():
    parts = [{"followed": 1.0, "instructions": 3.0}, {"followed": 2.0, "instructions": 2.0}]
    rows = [row(n, None, False, parts=each) for n, each in enumerate(parts)]
    figures = {"success_rate": 0.5, "mean_reward": 0.5, "mean_ep_length": 3.0, "episodes": 2, "split": "test"}
    found = with_intervals(figures | {"deterministic": True}, rows, range(2), 0)
    assert found["instruction_success"] == 3 / 5 and "instructions followed 0.600" in describe(found)
    assert "instruction_success" not in with_intervals(figures, [each | {"parts": {}} for each in rows], range(2), 0)


def test_an_interval_is_over_different_problems_however_often_each_was_asked():
    """Two problems, each posed 50 times: 100 equal answers say no more than two of them."""
    once, often = ([row(n, "1", n % 2 == 0) for n in range(count)] for count in (2, 100))
    equal = [n % 2 for n in range(100)]
    few, many = (with_intervals({}, rows, equal, 0)["success_interval"] for rows in (once, often))
    assert few == many == [0.0, 1.0]
    few, many = (of_attempts(rows, 1, equal, 0)["pass_at_k"]["1"] for rows in (once, often))
    assert few == many and few["problems"] == 2


def test_problems_that_got_no_verdict_are_counted_beside_the_others(tmp_path, monkeypatch):
    """As rows of HumanEval whose checks a verifier cannot read: the figures are of the others."""
    rows = [{"prompt": f"Begin with {n}: ", "numbers": [1, n], "target": 1 + n} for n in range(2, 6)]
    rows[1]["target"] = "unreadable"
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    saved(tmp_path / "run", {"verifier": "countdown", "problems": "rows.jsonl", "test_fraction": 0.0})
    asked = ("run", "--split", "train", "--episodes", 4, "--device", "cpu")
    judged = "(3 episodes and 1 without a verdict, verdicts on 3 of 4 problems, "
    shown = done("evaluate", *asked)
    assert judged in shown.stdout
    assert "run: 1 episode without a verdict, the last" in shown.stderr and "; prompt 'Begin with 3: '" in shown.stderr
    assert "| 3 of 4 " in done("evaluate", *asked, "--samples", 2).stdout
    figures = result_of(*asked)
    assert (figures["episodes"], figures["unjudged_problems"], figures["problems"]) == (3, 1, 4)


def test_samples_add_their_figures_and_an_evaluation_has_a_file_of_every_completion_of_its_own(folder, own):
    figures = result_of(folder, *SAMPLED)
    assert list(figures["sampled"]["pass_at_k"]) == list(figures["sampled"]["maj_at_k"]) == ["1", "2", "4"]
    rows = rows_in(figures["completions"])
    assert [(one["mode"], one["problem"], one["sample"]) for one in rows] == [
        *(("greedy", problem, 0) for problem in range(6)),
        *(("sampled", problem, sample) for problem in range(6) for sample in range(4)),
    ]
    assert {one["prompt"] for one in rows[:6]} == {one["prompt"] for one in rows[6:]}
    assert all(str(sum(map(int, one["prompt"].rstrip("=").split("+")))) == one["answer"] for one in rows)
    assert all(one["success"] == (one["completion"] == one["answer"]) for one in rows)
    file, again = Path(figures["completions"]), run("evaluate", folder, *SAMPLED)
    assert "samples from the test split" in again.stderr and "| pass@4" in again.stdout
    assert rows_in(file) == rows, "the same again"
    name(own, num_updates=7)
    asked = ("--episodes", 2, "--samples", 1, "--device", "cpu")
    others = ((folder, *asked), (folder, *asked, "--seed", 1), (own, *asked))
    files = {Path(result_of(*other)["completions"]).name for other in others}
    assert len({file.name, *files}) == 4, "other options, another seed, another checkpoint"


def test_figures_say_of_how_many_different_problems_they_are(folder, tmp_path, monkeypatch):
    sums = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in (10, 11, 12, 10)]
    file = tmp_path / "sums.json"
    file.write_text(json.dumps(sums))
    asked = (folder, "--verifier", "exact", "--problems", file, "--max-new-tokens", 4, "--device", "cpu")
    monkeypatch.chdir(folder)
    assert "4 episodes of 3 problems" in done("evaluate", ".", *asked[1:]).stdout, "the folder in which one is"
    (tmp_path / "rows.json").write_text(json.dumps({"problems": sums}))
    listed = (folder, "--verifier", "exact", "--config", tmp_path / "rows.json", *asked[-4:])
    assert "4 episodes of 3 problems" in done("evaluate", *listed).stdout
    assert result_of(*asked, "--episodes", 1)["problems"] == 1
    sampled = result_of(folder, "--verifier-arg", "digits=1", "--verifier-arg", "levels=1", "--episodes", 100)
    assert sampled["problems"] < 30, "100 episodes of 20 sums"


FAILING = """
from rlenv.verifiers import Arith

class Mine(Arith):
    def extract(self, problem, completion):
        raise KeyError("unread")

    def close(self):
        raise OSError("open")
"""


def test_an_extract_or_a_close_that_fails_costs_no_evaluation(folder, tmp_path):
    (tmp_path / "mine.py").write_text(FAILING)
    out = tmp_path / "all.jsonl"
    with pytest.warns(UserWarning, match=r"KeyError: 'unread' \(mine.py:6\)"), pytest.warns(UserWarning, match="open"):
        done("evaluate", folder, "--verifier", f"{tmp_path / 'mine.py'}:Mine", "--out", out, *SAMPLED)
    assert [row["extracted"] for row in rows_in(out)] == [None] * 30


def test_nothing_is_kept_of_an_evaluation_without_any_verdict(folder, tmp_path):
    out, problems = tmp_path / "all.jsonl", tmp_path / "words.json"
    problems.write_text(json.dumps([{"prompt": "1+1=", "answer": "=", "split": "test"}]))
    task = ("--verifier", "numeric", "--problems", problems, "--max-prompt-tokens", 6, "--max-new-tokens", 4)
    outcome = run("evaluate", folder, *task, "--out", out, "--episodes", 2)
    assert outcome.exit_code == 1 and "reached no verdict on all 1 episodes" in outcome.stderr
    assert not out.exists() and not out.with_suffix(".json").exists()


def test_one_config_serves_a_model_and_the_run_of_its_precision(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where evaluations of a model have their files
    both = tmp_path / "both.yaml"
    both.write_text("samples: 1\nepisodes: 2\ndevice: cpu\ndtype: float32\n")
    asked = (("--config", both), ("--samples", 1, "--episodes", 2, "--device", "cpu"))
    files = {result_of(folder, *each)["completions"] for each in asked}
    assert len(files) == 1, "the same evaluation"
    task = ("--verifier", "arith", "--verifier-arg", "digits=2", "--verifier-arg", "levels=2", "--config", both)
    of_model, of_run = (result_of(each, *task) for each in (folder / "checkpoint" / "policy" / "model", folder))
    assert of_model["completions"].startswith("evaluations") and of_model["sampled"] == of_run["sampled"]


def test_training_from_a_checkpoint_reads_its_model_alone(own, tmp_path):
    name(own, env_kwargs={"verifier": "no_such_module:f"}, agent="no_such_module:Agent")
    tiny = ["--sft-steps", 0, "--timesteps", 4, "--eval-episodes", 2, "--episodes-per-update", 4, "--max-new-tokens", 4]
    done("train", "--agent", "reinforce", "--model", own, *tiny, "--log-dir", tmp_path / "next")


def test_a_run_is_asked_all_of_a_file_that_it_was_not_trained_on(own, tmp_path):
    """The hash that holds problems out is of the run's own file; a copy of that file is still split by it."""
    trained, copied, other = (tmp_path / f"{name}.json" for name in ("trained", "copied", "other"))
    for path, numbers in ((trained, range(12)), (copied, range(12)), (other, range(20, 32))):
        path.write_text(json.dumps([{"prompt": f"{number}+1="} for number in numbers]))
    name(own, env_kwargs={"verifier": "length", "problems": str(trained), "max_new_tokens": 4})

    def asked(path, *more):
        return result_of(own, "--problems", path, "--samples", 1, *more)["problems"]

    assert asked(trained) == asked(copied) < 12 == asked(other)
    assert asked(other, "--test-fraction", 0.25) < 12
