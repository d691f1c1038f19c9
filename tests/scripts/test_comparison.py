"""Statistics and table of `rlenv compare`, against known answers and as properties."""

import math

import numpy as np
import pytest
from _rlenv_scripts.comparison import write_report
from _rlenv_scripts.reports.curves import POINTS, merge_equal, read_curves, spread
from _rlenv_scripts.reports.statistics import bootstrap_interval, interquartile_mean, summarize, tabulate
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

FIGURES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)


def interval(values, seed=0, **options):
    return bootstrap_interval(values, np.random.default_rng(seed), **options)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0], 1.5),
        ([1.0, 2.0, 6.0], 3.0),  # fewer than four: nothing is cut off
        ([100.0, 2.0, 4.0, -100.0], 3.0),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # scipy.stats.trim_mean([0, 1, 2, 3, 100], 0.25)
        ([9.0, 0.0, 1.0, 5.0, 4.0, 3.0, 2.0], 3.0),
        ([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 9.0, 9.0], 2.5),
    ],
)
def test_the_interquartile_mean_cuts_a_quarter_from_each_end(values, expected):
    assert interquartile_mean(values) == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_the_mean_of_three_runs_agrees_with_enumeration():
    values = np.array([0.0, 1.0, 5.0])
    means = np.sort([values[[i, j, k]].mean() for i in range(3) for j in range(3) for k in range(3)])
    low, high = interval(values, level=0.8)
    # 3 of the 27 equally likely resamples below the 10 % quantile: the fourth smallest; the same from above.
    assert (low, high) == pytest.approx((means[math.floor(0.1 * 27)], means[-1 - math.floor(0.1 * 27)]), abs=1e-12)


@given(FIGURES)
@drawn(50)
def test_the_interval_lies_in_the_data_and_contains_the_interquartile_mean(values):
    low, high = interval(values, resamples=1000)
    middle = interquartile_mean(values)
    assert min(values) - 1e-9 <= low <= middle + 1e-9
    assert middle - 1e-9 <= high <= max(values) + 1e-9


@given(FIGURES, st.randoms(use_true_random=False))
@drawn(50)
def test_the_order_of_the_runs_changes_nothing(values, random):
    shuffled = random.sample(values, len(values))
    assert summarize("a", shuffled) == summarize("a", values)


def run(agent, seed, initial, final, seconds=1.0, timesteps=10):
    return {
        "agent": agent,
        "seed": seed,
        "initial": initial,
        "final": final,
        "seconds": seconds,
        "timesteps": timesteps,
    }


RUNS = [
    run("rloo", 0, 0.25, 0.5, 3.0, 100),
    run("rloo", 1, 0.75, 0.75, 5.0, 300),
    run("reinforce", 0, 0.25, 1.0, 4.0, 200),
    run("reinforce", 1, 0.75, 0.5, 8.0, 400),
]


def test_the_table_has_a_row_for_the_start_and_for_each_agent():
    start, reinforce, rloo = tabulate(RUNS, ["reinforce", "grpo", "rloo"], None, from_start=True)
    assert (start.agent, start.runs, start.iqm, start.min, start.max) == ("before training", 2, 0.5, 0.25, 0.75)
    assert (start.wins, start.seconds, start.timesteps) == (None, None, None)
    assert (reinforce.agent, reinforce.iqm, reinforce.min, reinforce.max) == ("reinforce", 0.75, 0.5, 1.0)
    assert (reinforce.wins, reinforce.seconds, reinforce.timesteps) == (1, 6.0, 300.0)
    assert (rloo.agent, rloo.iqm, rloo.low, rloo.high) == ("rloo", 0.625, 0.5, 0.75)
    assert rloo.wins == 1  # as good as before is not better


def test_runs_win_by_reaching_the_goal_where_there_is_one():
    [row] = tabulate(RUNS, ["rloo"], 0.75, from_start=False)
    assert row.wins == 1
    [row] = tabulate(RUNS, ["rloo"], None, from_start=False)
    assert row.wins is None


def test_agents_that_make_the_model_worse_are_named_with_the_interval(tmp_path):
    def result(agent, seed, after):
        figures = {"episodes": 500, "mean_reward": 0.9, "reward_std": 0.3, "success_rate": 0.9}
        facts = {"timesteps": 1, "episodes": 1, "updates": 1, "seconds": 1.0, "run_dir": str(tmp_path)}
        return facts | {
            "agent": agent,
            "seed": seed,
            "initial_eval": figures,
            "eval": figures | {"success_rate": after},
        }

    (tmp_path / "progress.csv").write_text("time/episodes,rollout/ep_rew_mean\n1,0.9\n")
    given = {"env_id": "TextGen-v0", "verifier": "arith", "episodes": 1, "stop_reward": None, "figures": False}
    results = [result("rloo", 0, 0.95), *(result("grpo", seed, after) for seed, after in enumerate((0.89, 0.73, 0.77)))]
    made = write_report(tmp_path, given, True, ["rloo", "grpo"], results, [])
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert page.count("worse than before") == 1
    assert "- grpo is worse than before in 2 of 3 runs: seed 1: success rate 0.9 -> 0.73, 95 % interval" in page
    assert [bool(run["worse"]) for run in made["runs"]] == [False, False, True, True]


@pytest.fixture
def progress(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text("time/episodes,rollout/ep_rew_mean,eval/mean_reward\n16,0.5,\n32,1.5,\n,2.5,\n,,9\n")
    return path


def test_a_curve_leaves_out_rows_that_lack_a_figure(progress):
    rewards, kls = read_curves(progress, "time/episodes")
    assert rewards.tolist() == [[16, 32], [0.5, 1.5]] and kls.shape == (2, 0)


def test_curves_of_different_lengths_share_an_axis_and_the_shorter_keeps_its_last_figure():
    short, long = np.array([[0.0, 1.0], [0.0, 4.0]]), np.array([[0.0, 2.0], [0.0, 2.0]])
    grid, middle, low, high = spread([short, long])
    assert (grid[0], grid[-1], len(grid)) == (0.0, 2.0, POINTS)
    assert (low[-1], middle[-1], high[-1]) == (2.0, 3.0, 4.0)
    half = np.argmin(abs(grid - 0.5))
    assert high[half] == pytest.approx(4 * grid[half])
    assert low[half] == pytest.approx(grid[half])


def test_only_equal_curves_are_merged():
    one, other = np.array([[0.0, 1.0], [1.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 2.5]])
    nothing = np.empty((2, 0))
    curves = {"a": [one, other], "b": [one], "c": [one, other], "d": [other, one], "e": [nothing], "f": [nothing]}
    assert merge_equal(curves) == {"a = c": ["a", "c"], "b": ["b"], "d": ["d"], "e": ["e"], "f": ["f"]}
