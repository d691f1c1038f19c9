"""Each rule of the doctor names its failure and no other; healthy runs are silent, and a thing is said once."""

import random
import re

import click
import pytest
from _rlenv_scripts import job
from _rlenv_scripts.main import COMMANDS, main
from _rlenv_scripts.reports import live_doctor, reward_rules, rules, statistics
from _rlenv_scripts.reports.history import History, Series, read_run
from _rlenv_scripts.reports.rules import examine_run
from inprocess import done, result_of, run
from made_runs import FAILING, HEALTHY, evaluated, flat, line, write_run

NOTES = {"loss-near-zero"}
ALL = {*map(rules.name_of, rules.RULES), rules.name_of(reward_rules.nothing_improved)}


def names(history, notes=False):
    return {finding.rule for finding in rules.findings_of(history, notes)}


def alarms(folder):
    return {finding.rule for finding in examine_run(folder)}


@pytest.mark.parametrize("rule", sorted(ALL - NOTES))
def test_a_rule_fires_on_its_failure_and_on_nothing_else(rule, tmp_path):
    assert names(FAILING[rule]) == {rule}
    assert alarms(write_run(tmp_path / "run", FAILING[rule])) == {rule}


def until(history, end):
    metrics = {}
    for name, series in history.metrics.items():
        if count := sum(at <= end for at in series.updates):
            metrics[name] = Series(series.updates[:count], series.values[:count])
    return History(metrics, history.config | {"timesteps": history["time/total_timesteps"].last})


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_no_alarm_when_it_is_over_nor_on_the_way(name):
    assert names(HEALTHY[name]) == set()
    assert [names(until(HEALTHY[name], end)) for end in range(10, 200, 10)] == [set()] * 19


def test_a_loss_near_zero_is_explained_and_no_alarm():
    assert names(HEALTHY["text"], notes=True) == NOTES
    assert names(HEALTHY["control"], notes=True) == {"gradient-always-clipped"}, "as a rule, it does no harm"


def test_every_fix_names_options_that_exist():
    commands = [main.get_command(click.Context(main), name) for name in COMMANDS]
    flags = {flag for command in commands for option in command.params for flag in option.opts}
    for history in FAILING.values():
        for finding in rules.findings_of(history, notes=True):
            assert set(re.findall(r"--[a-z][a-z-]+", finding.fix)) <= flags, finding
            assert finding.evidence and finding.title and finding.fix


def rising(start, end, updates=200):
    return line(start, end, updates, noise=0.01)


def reward(start, end, updates=200):
    return {"rollout/ep_rew_mean": rising(start, end, updates)}


def success(start, end):
    return {"rollout/success_rate": rising(start, end)}


def held_out(updates, values):
    return {"eval/success_rate": Series(updates, values)}


def special(end, updates):
    at = tuple(range(1, updates + 1))
    shares = Series(at, (0.2,) * 5 + (end,) * (updates - 5))
    return reward(0.1, 0.9, updates) | {"rollout/special_tokens": shares, "time/iterations": Series(at, at)}


def far(kl, clipped):
    return reward(0.3, 0.5) | {"train/approx_kl": kl, "train/clip_fraction": clipped}


LEARNS = reward(0.3, 0.9) | success(0.3, 0.9)
LUCKY = held_out((0, 20, 40, 200), (0.5, 0.58, 0.48, 0.5)) | {"time/episodes": rising(256, 51200)}
FLAT_START = held_out((0,), (0.0,)) | reward(0.0, 0.1)
SAME = reward(1.0, 1.0) | {"rollout/reward_std": flat(0.0), "rollout/success_rate": flat(1.0)}
SAME |= {"rollout/ep_rew_mean": flat(1.0), "rollout/frac_reward_zero_std": flat(1.0), "time/episodes": flat(12800)}
SAME |= {"rollout/ep_len_mean": flat(8.0), "rollout/group_size_min": flat(4.0)}
GOING = {"time/episodes": rising(1, 200)}
NOTHING = "nothing-improved"
LIMITS = {  # figures beside the limits of a rule, most on its quiet side: (metrics of text, config, what is found)
    "half a percent of special tokens": (special(0.005, 200), {}, ""),
    "special tokens that get fewer": (special(0.02, 50), {}, ""),
    "chance": (held_out((0, 200), (0.6, 0.5)) | LEARNS, {"eval_every": 100, "eval_episodes": 100}, ""),
    "chance in the default curve": (LUCKY | reward(0.3, 0.5) | success(0.5, 0.5), {}, ""),
    "no chance with 2,000": (LUCKY | reward(0.3, 0.5) | success(0.5, 0.5), {"eval_every": 20}, "reward-hacking"),
    "solved, with one answer each": (SAME | {"train/entropy_loss": flat(-0.01)}, {}, ""),
    "wrong answers earn a part": (FLAT_START | {"eval/mean_reward": Series((0,), (0.05,))}, {}, ""),
    "a rise within its error": (reward(0.3, 0.3), {}, NOTHING),
    "a rise": (reward(0.3, 0.5), {}, ""),
    "40 updates": (reward(0.3, 0.3, 40) | {"time/iterations": rising(1, 40, 40)}, {}, ""),
    "less than a third": (reward(0.3, 0.1) | GOING, {"episodes": 1000}, ""),
    "no worse": (reward(0.3, 0.3) | GOING, {"episodes": 400}, ""),
    "worse": (reward(0.3, 0.1) | GOING, {"episodes": 400}, NOTHING),
    "too far by what is clipped": (far(flat(0.02), rising(0.1, 0.9)), {}, "update-too-far"),
    "not too far": (far(flat(0.02), rising(0.1, 0.2)), {}, ""),
    "a critic like a constant": ({"train/explained_variance": flat(0.01)}, {}, ""),
}


def text_run_of(metrics, config=None):
    return History({"time/iterations": rising(1, 200)} | metrics, {"env_id": "TextGen-v0"} | (config or {}))


@pytest.mark.parametrize("name", LIMITS)
def test_figures_beside_the_limits_of_a_rule(name):
    metrics, config, found = LIMITS[name]
    assert names(text_run_of(metrics, config)) == ({found} if found else set())


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (evaluated(0.915, 0.915), evaluated(0.785, 0.785), True),
        (evaluated(0.915, 0.915), evaluated(0.885, 0.885), False),  # may be chance
        (evaluated(1.0, 1.0, 10), evaluated(0.7, 0.7, 10), False),  # Fisher's exact test: p = 0.21
        (evaluated(0.0, 0.5), evaluated(0.0, 0.3), True),  # a reward without successes
        (evaluated(0.3, 0.9), evaluated(0.6, 0.7), False),  # the reward counts something else, too
        (evaluated(0.5, 0.5), None, False),  # still running
    ],
)
def test_a_run_that_ends_worse_than_it_began_is_named_if_it_is_not_chance(before, after, worse):
    found = names(History({}, {}, {"initial_eval": before, "eval": after}))
    assert found == ({"worse-than-before"} if worse else set())


def test_an_interval_of_a_difference_is_newcombes():
    before, after = ({"episodes": count, "success_rate": right / count} for right, count in ((48, 80), (56, 70)))
    interval = statistics.difference_interval(before, after, "success_rate")  # his table II (a), method 10
    assert interval == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


# The command.


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return the folders of a healthy run, one with a warning and one with an error."""
    folder, clipped, never = tmp_path_factory.mktemp("judged"), *map(FAILING.get, GRAVE)
    made = {"healthy": HEALTHY["text"], "warning": clipped, "error": never}
    return {name: write_run(folder / name, history) for name, history in made.items()}


GRAVE = ("gradient-always-clipped", "reward-never-seen")


def test_the_command_prints_failure_evidence_and_fix_and_notes_if_asked(judged):
    said = run("doctor", judged["warning"], judged["healthy"]).stdout
    assert "[gradient-always-clipped]" in said and "raise --max-grad-norm" in said
    assert str(judged["healthy"]) in said and "[loss-near-zero]" not in said
    assert "[loss-near-zero]" in run("doctor", judged["healthy"], "--all").stdout


@pytest.mark.parametrize(("name", "codes"), [("healthy", (0, 0)), ("warning", (1, 0)), ("error", (1, 1))])
def test_the_exit_code_follows_the_gravest_finding(name, codes, judged):
    for level, code in zip(("warning", "error"), codes, strict=True):
        assert run("doctor", judged["healthy"], judged[name], "--fail-on", level).exit_code == code


def test_json_has_the_findings_of_every_run(judged):
    found = result_of(run("doctor", judged["error"], judged["healthy"], "--json"))
    assert found[str(judged["healthy"])] == []
    (first,) = found[str(judged["error"])]
    assert set(first) == {"rule", "severity", "title", "evidence", "fix", "update"}
    assert first["rule"] == "reward-never-seen"


def test_a_run_that_goes_on_is_examined_without_its_half_written_line(tmp_path):
    folder = write_run(tmp_path / "run", FAILING["answers-cut-off"])
    (folder / "result.json").unlink()
    table = folder / "progress.csv"
    with table.open("a") as file:
        file.write("0,0,,1")
    assert alarms(folder) == {"answers-cut-off"}
    table.unlink()
    assert alarms(folder) == set()  # nothing is logged yet


# The series.


def test_a_series_has_a_beginning_an_end_and_a_trend():
    line = Series(tuple(range(1, 41)), tuple(0.5 * i for i in range(40)))
    assert (line.start, line.end, line.edge) == (0.75, 18.75, 4)
    assert line.trend() == (pytest.approx(19.5), pytest.approx(0, abs=1e-9))
    noise = Series(line.updates, tuple(float(i % 2) for i in range(40)))
    rise, error = noise.trend()
    assert abs(rise) < error
    assert line.smooth(4).values == pytest.approx((2.25, 7.25, 12.25, 17.25))
    assert line.smooth(4).updates == (10, 20, 30, 40)
    assert line.around(20) == pytest.approx(9.25, abs=0.5)
    assert line.since(39).values == (19.0, 19.5)


def test_cells_that_are_empty_or_not_finite_are_left_out(tmp_path):
    (tmp_path / "config.json").write_text('{"env_id": "CartPole-v1"}')
    (tmp_path / "progress.csv").write_text("time/iterations,a\n1,2\n2,\n3,nan\n4,5\n")
    read = read_run(tmp_path)["a"]
    assert (list(read.updates), list(read.values)) == ([1, 4], [2.0, 5.0])


def shares(start, end):
    """Return a share that goes along a line, with the noise of 64 episodes per update."""
    draw = random.Random(0)
    at = tuple(range(1, 201))
    means = [start + (end - start) * (i - 1) / 199 for i in at]
    return Series(at, tuple(sum(draw.random() < mean for _ in range(64)) / 64 for mean in means))


@pytest.mark.parametrize(
    ("cut", "success", "found"),
    [
        ((0.6, 0.6), (0.2, 0.3), True),  # most
        ((0.05, 0.4), (0.3, 0.3), True),  # ever more, and no more are right
        ((0.05, 0.4), (0.3, 0.5), False),  # longer answers that are right more often
        ((0.9, 0.6), (0.1, 0.3), False),  # the policy learns to end its answers
        ((0.9, 0.6), (0.3, 0.3), True),
        ((0.9, 0.9), (0.9, 0.98), False),  # what is cut is right
    ],
)
def test_answers_are_cut_off_if_most_are_or_ever_more(cut, success, found):
    right = shares(*success)
    metrics = {"rollout/truncated_frac": shares(*cut), "rollout/success_rate": right, "rollout/ep_rew_mean": right}
    assert ("answers-cut-off" in names(text_run_of(metrics))) is found


# Live, and the pages.


@pytest.fixture(scope="module")
def hard_start(tmp_path_factory):
    """Return the output and the folder of a run that starts without a warm start."""
    folder = tmp_path_factory.mktemp("doctor") / "run"
    small = ["--episodes", 48, "--episodes-per-update", 8, "--eval-episodes", 20, "--eval-every", 4, "--sft-steps", 0]
    outcome = done("train", *small, "--agent", "ppo", "--log-kl", "--log-interval", 2, "--log-dir", folder)
    return outcome.stderr, folder


def test_a_run_says_each_warning_once_and_before_it_trains(hard_start):
    said, folder = hard_start
    before, after = said.split("wrong answers alone teach nothing")
    assert "before:" in before and "after:" in after
    flags = ("--sft-steps", "--sft-examples", "--curriculum", "--group-size", "--verifier-arg", "docs/recipes.md")
    assert all(flag in after.splitlines()[0] for flag in flags)
    named = re.findall(r"\[([a-z-]+)\]$", said, re.MULTILINE)
    assert len(named) == len(set(named)) and set(named) >= alarms(folder) - {"stopped"}


def test_what_the_agent_has_warned_of_is_not_said_again(tmp_path, capsys):
    history = FAILING["entropy-collapse"]
    doctor = live_doctor.LiveDoctor(write_run(tmp_path / "run", history), history.config)
    doctor.said |= live_doctor.BY_THE_AGENT
    doctor.look()
    assert not live_doctor.BY_THE_AGENT & set(re.findall(r"\[([a-z-]+)\]", capsys.readouterr().err))


def test_the_first_update_is_logged(hard_start):
    history = read_run(hard_start[1])
    assert list(history.reward.updates[:3]) == [1, 2, 4]
    assert abs(history["rollout/kl_start"].first) < 1e-5


def test_a_run_that_goes_on_is_no_longer_stopped(pole_copy, monkeypatch):
    (pole_copy / "result.json").write_text('{"stopped": "the verifier failed"}')
    assert "stopped" in alarms(pole_copy)
    seen = []
    monkeypatch.setattr(job.Job, "_learn", lambda *_: seen.append(alarms(pole_copy)))
    result_of(run("train", "--resume", pole_copy, "--episodes", 40, "--json"))
    assert len(seen) == 1 and "stopped" not in seen[0]
