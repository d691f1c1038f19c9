"""`rlenv compare --vectorize-seeds`: the runs of separate processes, in one."""

import csv
import json
import time

import pytest
from inprocess import result_of, run

from agents import Reinforce

POLES = ["compare", "--env", "CartPole-v1", "--agents", "reinforce,ppo", "--seeds", "2", "--seed", "20"]
POLES += ["--timesteps", "1200", "--episodes-per-update", "4", "--eval-episodes", "5", "--log-interval", "1"]
POLES += ["--stop-reward", "40", "--no-figures", "--json"]


def in_this_process(jobs, limit, threads):
    """Stand in for processes, each of which takes seconds to start."""
    for job in jobs:
        outcome = run(*job.command[3:])
        job.log.write_text(f"command\n{outcome.output}")
        yield job, outcome.exit_code


def curve(folder):
    """Return progress.csv without what depends on the clock."""
    with (folder / "progress.csv").open() as file:
        return [{name: text for name, text in row.items() if name != "time/fps"} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_results_and_files_are_those_of_separate_runs(tmp_path, monkeypatch):
    together = result_of(run(*POLES, "--vectorize-seeds", "--log-dir", tmp_path / "together"))
    monkeypatch.setattr("_rlenv_scripts.compare.study.run_jobs", in_this_process)
    alone = result_of(run(*POLES, "--log-dir", tmp_path / "alone"))
    assert len(together["runs"]) == len(alone["runs"]) == 4
    for ours, theirs in zip(together["runs"], alone["runs"], strict=True):
        assert {**ours, "seconds": 0, "run_dir": ""} == {**theirs, "seconds": 0, "run_dir": ""}
        assert ours["seconds"] > 0
        folders = [tmp_path / kind / ours["agent"] / f"seed-{ours['seed']}" for kind in ("together", "alone")]
        assert curve(folders[0]) == curve(folders[1])
        names = [{path.name for path in folder.iterdir()} for folder in folders]
        assert names[0] == names[1]
        log = folders[0].with_name(f"{folders[0].name}.log").read_text().splitlines()
        assert " train " in log[0] and json.loads(log[-1])["seed"] == ours["seed"]
    again = run(*POLES, "--log-dir", tmp_path / "together")
    assert result_of(again) == together and "4 of 4 runs are finished already" in again.stderr


def test_a_seed_that_fails_is_reported_and_the_others_end(tmp_path, monkeypatch):
    update = Reinforce.update

    def broken(self, rollout):
        if self.seed == 21:
            raise RuntimeError("the pole is broken")
        return update(self, rollout)

    monkeypatch.setattr(Reinforce, "update", broken)
    outcome = run(*POLES, "--agents", "reinforce", "--vectorize-seeds", "--log-dir", tmp_path / "run")
    assert outcome.exit_code == 1
    report = json.loads(outcome.stdout.strip().splitlines()[-1])
    [failed] = report["failed"]
    assert (failed["seed"], failed["exit_code"], failed["error"]) == (21, 1, "RuntimeError: the pole is broken")
    assert [entry["seed"] for entry in report["runs"]] == [20]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--jobs", 2], "--jobs is for runs in separate processes"),
        (["--num-envs", 2], "does not take reinforce with these options: seeds are vectorized if num_envs is"),
        (["--env", "FrozenLake-v1"], "seeds are vectorized for policies that act in numpy"),
        (["--env", "TextGen-v0"], "seeds are vectorized for control environments"),
    ],
    ids=["jobs", "num_envs", "policy", "text"],
)
def test_what_cannot_be_vectorized_is_one_line_and_nothing_is_made(args, said, tmp_path):
    outcome = run(*POLES, *args, "--vectorize-seeds", "--log-dir", tmp_path / "run")
    assert outcome.exit_code == 2, outcome.output
    [line] = [line for line in outcome.stderr.splitlines() if line.strip()]
    assert said in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_64_seeds_balance_the_pole(tmp_path, capsys):
    args = ["compare", "--env", "CartPole-v1", "--agents", "reinforce-baseline", "--no-figures", "--json"]
    started = time.perf_counter()
    report = result_of(run(*args, "--seeds", 64, "--vectorize-seeds", "--log-dir", tmp_path / "run"))
    seconds = time.perf_counter() - started
    solved = sum(entry["final"] >= 475 for entry in report["runs"])
    training = sum(entry["seconds"] for entry in report["runs"])
    with capsys.disabled():
        print(f"\n64 seeds: {solved} solved; training {training / 64:.3f} s a seed, with evaluations {seconds:.0f} s")
    assert solved >= 60
    for seed in (0, 63):
        alone = tmp_path / f"alone-{seed}"
        options = ["--stop-reward", 475, "--seed", seed, "--log-interval", 5, "--log-kl", "--no-report"]
        assert (
            run("train", "--env", "CartPole-v1", *options, "--timesteps", 1_000_000, "--log-dir", alone).exit_code == 0
        )
        assert curve(alone) == curve(tmp_path / "run" / "reinforce-baseline" / f"seed-{seed}")
