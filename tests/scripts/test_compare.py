"""`rlenv compare`, as a person runs it, with everything made small; its statistics against known answers."""

import json
import math

import inprocess
import numpy as np
import pytest
import torch
from inprocess import error_of, result_of

import rlenv
from rlenv._scripts.config.other_configs import CompareConfig
from rlenv._scripts.jobs.comparison import finished, gpus_of
from rlenv._scripts.reports.comparison_report import rows_of, write_report
from rlenv._scripts.reports.statistics import POINTS, RESAMPLES, interquartile_mean, spread, worse
from rlenv.agents import AGENTS
from rlenv.agents.estimators.pass_at_k import bootstrap_mean
from rlenv.agents.files import Lock

SMALL = {"agents": "reinforce,rloo", "seeds": 2, "sft_steps": 2, "sft_examples": 8, "episodes": 16, "eval_episodes": 4}
SMALL |= {"settings": {"episodes_per_update": 8}, "log_interval": 1, "verifier_kwargs": {"digits": 1}, "report": True}
POLE = ["--env", "CartPole-v1", "--agents", "rloo"]


def compare(*args):
    return inprocess.run("compare", *args)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/seed-*/result.json")}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return what a comparison from Python left, with its config as a file in its folder."""
    folder = tmp_path_factory.mktemp("runs") / "text"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlenv._scripts.jobs.comparison.run_jobs", inprocess.run_jobs)
        made = rlenv.compare(CompareConfig(**SMALL, jobs=2, log_dir=folder))
    assert made.folder == folder and made.failed == []
    (folder / "small.json").write_text(json.dumps(SMALL))
    return folder, made.report


def test_all_runs_start_from_one_checkpoint_and_get_equal_budgets(compared):
    folder, report = compared
    warm = json.loads((folder / "warm" / "result.json").read_text())
    assert warm["steps"] == 2
    initial = {(run["seed"], run["initial"]) for run in report["runs"]}
    assert len(initial) == 2  # the episodes of an evaluation depend on the seed alone
    assert (0, warm["eval"]["success_rate"]) in initial
    assert {run["episodes"] for run in report["runs"]} == {16}
    for run in report["runs"]:
        config = json.loads((folder / run["agent"] / f"seed-{run['seed']}" / "config.json").read_text())
        assert (config["model"], config["sft_steps"]) == (str(folder / "warm"), 0)
        assert (config["group_size"], config["verifier_kwargs"]) == (4, {"digits": 1})
    assert [row["agent"] for row in report["rows"]] == ["before training", "reinforce", "rloo"]
    assert {row["problems"] for row in report["rows"]} == {3} and "| problems |" in (folder / "report.md").read_text()


def test_the_same_command_again_repeats_no_run_and_other_settings_are_named(compared):
    folder, report = compared
    before, again = times(folder), ["--config", folder / "small.json", "--log-dir", folder, "--report"]
    outcome = compare(*again, "--json")
    assert result_of(outcome) == report and "4 of 4 runs are finished already" in outcome.stderr
    assert all(str(folder / name) in outcome.stderr for name in ("report.html", "report.json"))
    line = error_of(compare(*again, "--episodes", 17, "--verifier-arg", "digits=2"))
    assert "other settings (episodes 16, now 17, verifier_kwargs" in line
    assert 'verifier_kwargs {"digits": 1}, now {"digits": 2}' in line
    assert times(folder) == before


def test_settings_and_a_share_of_the_memory_reach_every_run_and_from_a_run_there_is_no_warm_start(
    compared, tmp_path, monkeypatch
):
    planned, model = [], compared[0] / "warm"
    passes = lambda config, together: planned.append(together) or 40  # noqa: E731
    monkeypatch.setattr("rlenv._scripts.jobs.comparison.passes", passes)
    few = ["--model", model, "--verifier-arg", "digits=1", "--seeds", 1, "--log-dir", tmp_path / "run"]
    runs, *_ = jobs_of(monkeypatch, "--agents", "ppo,sdpo", "--agent-arg", "num_epochs=3", *few, "--jobs", 8)
    wanted = {"model": str(model), "sft_steps": 0, "episodes": 60_000, "group_size": 4}
    wanted |= {"settings": {"num_epochs": 3}, "micro_batch_tokens": 40}
    assert len(runs) == 2 and all(wanted.items() <= run.items() for run in runs)
    assert planned == [2, 2], "once for each agent, for no more than there are runs"
    given = ["--agents", "reinforce-baseline", "--agent-arg", "baseline=optimal-token", "--overwrite"]
    [own], *_ = jobs_of(monkeypatch, *given, *few)
    assert own["baseline"] == "optimal-token", "train has an option for it"


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(jobs, limit, threads, gpus):
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr("rlenv._scripts.jobs.comparison.run_jobs", interrupted)
    outcome = compare(*POLE, "--log-dir", tmp_path / "run")
    assert (outcome.exit_code, outcome.stderr) == (130, "Interrupted; the same command continues from here.\n")


def jobs_of(monkeypatch, *args):
    """Return the options of the runs that a comparison would start, without starting them."""
    seen = []

    def note(jobs, limit, threads, gpus):
        seen.append((jobs, limit, threads))
        for job in jobs:
            job.log.write_text("command\nbroken\n")
            yield job, 1

    monkeypatch.setattr("rlenv._scripts.jobs.comparison.run_jobs", note)
    report = result_of(compare(*args, "--json"), code=1)
    assert [(run["exit_code"], run["error"]) for run in report["failed"]] == [(1, "broken")] * len(seen[0][0])
    [(jobs, limit, threads)] = seen
    for job in jobs:
        assert job.command[3:5] == ("train", f"--config={job.log.with_suffix('.json')}") and "--json" in job.command
    return [json.loads(job.log.with_suffix(".json").read_text()) for job in jobs], limit, threads


def test_control_gets_no_text_options_and_its_own_budget_and_jobs_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("rlenv._scripts.jobs.comparison.available_cores", lambda: 8)
    runs, limit, threads = jobs_of(monkeypatch, *POLE[:2], "--seeds", 1, "--jobs", 3, "--log-dir", tmp_path / "run")
    alone = [name for name, cls in AGENTS.items() if not cls.needs_teacher]
    assert (len(runs), limit, threads) == (len(alone), 3, 2)
    assert all((run["timesteps"], run["stop_reward"]) == (1_000_000, 475.0) for run in runs)
    assert not any("sft" in name or "group" in name for run in runs for name in run)


def test_a_folder_is_extended_by_one_comparison_at_a_time_and_no_run_that_still_writes_is_deleted(
    tmp_path, monkeypatch
):
    """A run may outlive its comparison, as after `kill -9`."""
    folder = tmp_path / "run"
    given = [*POLE, "--seeds", 1, "--log-dir", folder]
    jobs_of(monkeypatch, *given)
    with Lock(folder / ".lock", "busy"):
        assert "another rlenv compare is running in" in error_of(compare(*given))
    jobs_of(monkeypatch, *POLE[:3], "ppo", "--seeds", 2, "--log-dir", folder)
    settings = json.loads((folder / "compare.json").read_text())
    assert (settings["agents"], settings["seeds"]) == ("rloo,ppo", 2)
    monkeypatch.setattr("rlenv._scripts.jobs.comparison.run_jobs", inprocess.run_jobs)
    (folder / "rloo" / "seed-0").mkdir()
    with Lock(folder / "rloo" / "seed-0" / ".lock", "busy"):
        report = result_of(compare(*given, "--json"), code=1)
    assert "another run is writing" in report["failed"][0]["error"]


@pytest.mark.parametrize("text", ['{"stopped": "why", "interrupted": false}', '{"interrupted": true}', '{"interrup'])
def test_a_run_that_did_not_come_to_its_end_is_not_finished(text, tmp_path):
    (tmp_path / "result.json").write_text(text)
    assert finished(tmp_path) is None


# Statistics and table.


def test_the_interquartile_mean_cuts_a_quarter_from_each_end_and_the_interval_agrees_with_enumeration():
    assert interquartile_mean([100.0, 2.0, 4.0, -100.0]) == pytest.approx(3)
    assert interquartile_mean([0.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx(2)  # as scipy.stats.trim_mean
    values = np.array([0.0, 1.0, 5.0])
    means = np.sort([values[[i, j, k]].mean() for i in range(3) for j in range(3) for k in range(3)])
    low, high = bootstrap_mean(values, np.random.default_rng(0), RESAMPLES, 0.8, interquartile_mean)
    # 3 of the 27 equally likely resamples below the 10 % quantile: the fourth smallest; the same from above.
    assert (low, high) == pytest.approx((means[math.floor(0.1 * 27)], means[-1 - math.floor(0.1 * 27)]), abs=1e-12)


def run(agent, seed, initial, final, seconds, timesteps):
    before, after = ({"success_rate": each, "mean_reward": each} for each in (initial, final))
    facts = {"agent": agent, "seed": seed, "seconds": seconds, "timesteps": timesteps}
    return facts | {"initial_eval": before, "eval": after}


RUNS = [
    run("rloo", 0, 0.25, 0.5, 3.0, 100),
    run("rloo", 1, 0.75, 0.75, 5.0, 300),
    run("reinforce", 0, 0.25, 1.0, 4.0, 200),
    run("reinforce", 1, 0.75, 0.5, 8.0, 400),
]


def test_the_table_has_a_row_for_the_start_and_for_each_agent_and_counts_wins():
    table = rows_of(RUNS, ["reinforce", "grpo", "rloo"], "success_rate", None, from_start=True)
    columns = ("agent", "runs", "iqm", "min", "max", "wins", "seconds", "timesteps")
    assert [tuple(row[name] for name in columns) for row in table] == [
        ("before training", 2, 0.5, 0.25, 0.75, None, None, None),
        ("reinforce", 2, 0.75, 0.5, 1.0, 1, 6.0, 300.0),
        ("rloo", 2, 0.625, 0.5, 0.75, 1, 4.0, 200.0),  # as good as before is not better
    ]
    assert (table[2]["low"], table[2]["high"]) == (0.5, 0.75)
    for goal, wins in ((0.75, 1), (None, None)):
        [row] = rows_of(RUNS, ["rloo"], "success_rate", goal, from_start=False)
        assert row["wins"] == wins


def test_a_class_of_this_session_is_no_name_for_other_processes(monkeypatch):
    monkeypatch.setitem(AGENTS, "mine", type("Mine", (AGENTS["rloo"],), {}))
    with pytest.raises(ValueError, match=r"'mine' is a class of this session; .*file\.py:Mine"):
        rlenv.compare(CompareConfig(agents="rloo,mine"))


def test_agents_that_make_the_model_worse_are_named_with_the_interval(tmp_path):
    def result(agent, seed, after):
        figures = {"episodes": 500, "mean_reward": 0.9, "reward_std": 0.3, "success_rate": 0.9}
        facts = {"timesteps": 1, "episodes": 1, "updates": 1, "seconds": 1.0, "run_dir": str(tmp_path)}
        evals = {"initial_eval": figures, "eval": figures | {"success_rate": after}}
        return facts | evals | {"agent": agent, "seed": seed}

    (tmp_path / "progress.csv").write_text("time/total_timesteps,rollout/ep_rew_mean\n1,0.9\n")
    config = CompareConfig(episodes=1, report=False)
    results = [result("rloo", 0, 0.95), *(result("grpo", seed, after) for seed, after in enumerate((0.89, 0.73, 0.77)))]
    results.append(result("ppo", 0, 0.95))
    made, _ = write_report(tmp_path, config, ["rloo", "grpo", "ppo"], results, [])
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert page.count("worse than before") == 1
    assert "- grpo is worse than before in 2 of 3 runs: seed 1: success rate 0.9 -> 0.73, 95 % interval" in page
    assert [bool(run["worse"]) for run in made["runs"]] == [False, False, True, True, False]
    write_report(tmp_path, CompareConfig(env_id="FrozenLake-v1", episodes=1, report=False), ["ppo"], results[-1:], [])
    assert "| ppo | 1 | 0.900 |" in (tmp_path / "report.md").read_text(encoding="utf-8"), "0.9 and 0.94 differ"


def test_a_problem_that_is_asked_many_times_is_one_for_the_interval_of_a_difference():
    for figure in ("success_rate", "mean_reward"):
        before = {"episodes": 2000, "problems": 4, "success_rate": None, "mean_reward": 0.5, "reward_std": 0.5}
        before |= {figure: 0.5}
        assert worse(before, before | {figure: 0.25}) is None
        assert worse(before | {"problems": 2000}, before | {figure: 0.25, "problems": 2000})


def test_curves_of_different_lengths_share_an_axis_and_the_shorter_keeps_its_last_figure():
    short, long = np.array([[0.0, 1.0], [0.0, 4.0]]), np.array([[0.0, 2.0], [0.0, 2.0]])
    grid, middle, low, high = spread([short, long])
    assert (grid[0], grid[-1], len(grid)) == (0.0, 2.0, POINTS)
    assert (low[-1], middle[-1], high[-1]) == (2.0, 3.0, 4.0)
    half = np.argmin(abs(grid - 0.5))
    assert (high[half], low[half]) == pytest.approx((4 * grid[half], grid[half]))
    assert spread([np.array([[256.0], [each]]) for each in (0.0, 2.0)]).tolist() == [[256], [1], [0], [2]]


def test_runs_share_the_gpus_that_are_visible(tmp_path, monkeypatch):
    monkeypatch.setattr("rlenv._scripts.jobs.comparison.resolve_device", lambda device, env: torch.device(device))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for device, visible, gpus in (("cuda", "2,3,5", ["2", "3", "5"]), ("cuda", "", ["0", "1"]), ("cuda:1", "", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus_of(CompareConfig(device=device)) == gpus
