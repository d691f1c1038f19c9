"""Each rule of the doctor names its failure and no other; healthy runs are silent, and a thing is said once."""

import csv
import random
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest
from _rlenv_scripts.main import COMMANDS, main
from _rlenv_scripts.reports.doctor import examine_run, live, reward_rules, rules
from _rlenv_scripts.reports.doctor.history import History, Series, read_run
from _rlenv_scripts.reports.figures import statistics
from _rlenv_scripts.training import job
from inprocess import result_of, run
from made_runs import FAILING, HEALTHY, evaluated, flat, line, write_run

DOCS = Path(__file__).parents[3] / "docs"
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


def one(metrics, **config):
    """Return the names of what is found in these series of a run on text."""
    history = History({"time/iterations": line(1, 200), **metrics}, {"env_id": "TextGen-v0", **config})
    return names(history)


def rising(start, end, updates=200):
    return line(start, end, updates, noise=0.01)


@pytest.mark.parametrize(("end", "updates", "named"), [(0.02, 200, True), (0.005, 200, False), (0.02, 50, False)])
def test_special_tokens_are_named_above_1_percent_unless_they_get_fewer(end, updates, named):
    at = tuple(range(1, updates + 1))
    shares = {"rollout/special_tokens": Series(at, (0.2,) * 5 + (end,) * (updates - 5))}
    paid = {"rollout/ep_rew_mean": rising(0.1, 0.9, updates), "time/iterations": Series(at, at)}
    assert ("special-tokens" in one(shares | paid)) == named


def test_success_that_rises_in_training_only_is_memorized():
    evaluated = {"eval/success_rate": Series((0, 100, 200), (0.5, 0.6, 0.4))}
    paid = {"rollout/ep_rew_mean": rising(0.3, 0.9), "rollout/success_rate": rising(0.3, 0.9)}
    assert one(evaluated | paid, eval_every=100) == {"worse-than-before"}
    hacked = {"rollout/ep_rew_mean": rising(0.3, 0.9), "rollout/success_rate": rising(0.3, 0.3)}
    assert one(evaluated | hacked, eval_every=100) == {"reward-hacking"}
    small = {"eval/success_rate": Series((0, 200), (0.6, 0.5))}  # chance, with a hundred episodes
    assert one(small | paid, eval_episodes=100, eval_every=100) == set()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (evaluated(0.915, 0.915), evaluated(0.785, 0.785), "success rate 0.915 -> 0.785"),
        (evaluated(0.915, 0.915), evaluated(0.885, 0.885), None),  # may be chance
        (evaluated(1.0, 1.0, 10), evaluated(0.7, 0.7, 10), None),  # Fisher's exact test: p = 0.21
        (evaluated(None, 8.5), evaluated(None, 8.0), "mean reward 8.5 -> 8"),
        (evaluated(0.0, 0.5), evaluated(0.0, 0.3), "mean reward 0.5 -> 0.3"),  # a reward without successes
        (evaluated(0.5, 0.5), None, None),  # still running
    ],
)
def test_a_run_that_ends_worse_than_it_began_is_named_if_it_is_not_chance(before, after, said):
    history = History({}, {}, {"initial_eval": before, "eval": after})
    found = [finding.evidence for finding in rules.findings_of(history) if finding.rule == "worse-than-before"]
    assert [said in evidence and "95 % interval" in evidence for evidence in found] == [True] * (said is not None)


def test_an_interval_of_a_difference_is_newcombes():
    before, after = ({"episodes": count, "success_rate": right / count} for right, count in ((48, 80), (56, 70)))
    interval = statistics.difference_interval(before, after, "success_rate")  # his table II (a), method 10
    assert interval == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


def test_different_answers_that_all_earn_the_same_are_named_also_if_they_count_as_solved():
    same = {"rollout/ep_rew_mean": flat(1.0), "rollout/reward_std": flat(0.0), "rollout/success_rate": flat(1.0)}
    same |= {"rollout/frac_reward_zero_std": flat(1.0), "time/episodes": rising(64, 12800)}
    same |= {"rollout/ep_len_mean": flat(8.0), "rollout/group_size_min": flat(4.0)}
    (found,) = rules.findings_of(History(same | {"train/entropy_loss": flat(-2.0)}, {"env_id": "TextGen-v0"}))
    assert found.rule == "all-rewards-equal" and "all earn 1" in found.title and "all 12800 answers" in found.evidence
    assert one(same | {"train/entropy_loss": flat(-0.01)}) == set(), "solved: each prompt has one answer"


def test_the_small_evaluations_of_the_default_curve_may_differ_by_chance():
    lucky = {"eval/success_rate": Series((0, 20, 40, 200), (0.5, 0.58, 0.48, 0.5)), "time/episodes": rising(256, 51200)}
    paid = {"rollout/ep_rew_mean": rising(0.3, 0.5), "rollout/success_rate": rising(0.5, 0.5)}
    assert one(lucky | paid) == set()
    assert one(lucky | paid, eval_every=20) == {"reward-hacking"}  # of 2,000 episodes each


def test_no_rule_fails_on_a_part_of_a_log():
    draw = random.Random(0)
    whole = [*FAILING.values(), *HEALTHY.values()]
    for _ in range(500):
        run = draw.choice(whole)
        factor, metrics = draw.choice([1, 1e6]), {}
        for name in run.metrics:
            start = draw.randrange(len(run[name]))
            end = start + draw.choice([1, 2, len(run[name])])
            if draw.random() < 0.7:
                values = tuple(factor * value for value in run[name].values[start:end])
                metrics[name] = Series(run[name].updates[start:end], values)
        rules.findings_of(replace(run, metrics=metrics))


def test_advice_on_a_collapse_knows_the_learning_rate_of_the_run():
    lost = {"time/iterations": rising(1, 200), "rollout/ep_rew_mean": rising(0.9, 0.0)}
    lost |= {"rollout/success_rate": rising(0.9, 0.0), "rollout/ep_len_mean": rising(8, 1)}
    for rate, advice in ((None, "lower --learning-rate to a third"), (0.05, "leave --learning-rate 0.05 out")):
        found = rules.findings_of(History(lost, {"env_id": "TextGen-v0", "learning_rate": rate}))
        assert [finding.rule for finding in found] == ["reward-collapse"] and found[0].fix.startswith(advice)
        (held,) = rules.findings_of(History(lost, {"env_id": "TextGen-v0", "kl_coef": 0.05}))
        assert "raise --kl-coef 0.05" in held.fix and "hold the policy" in found[0].fix


def test_easier_problems_are_advised_by_what_the_run_does_not_do():
    config = {"env_id": "TextGen-v0"}
    hard = {"time/iterations": rising(1, 200), "eval/success_rate": Series((0,), (0.0,))}
    for curriculum, named in ((None, True), (0.8, False)):
        (found,) = rules.findings_of(History(hard, config | {"curriculum": curriculum}))
        assert ("--curriculum" in found.fix) == named


def test_a_flat_start_is_named_only_if_wrong_answers_earn_nothing():
    hard = {"eval/success_rate": Series((0,), (0.0,)), "rollout/ep_rew_mean": rising(0.0, 0.1)}
    assert one(hard | {"eval/mean_reward": Series((0,), (0.0,))}) == {"warm-start-too-flat"}
    assert one(hard | {"eval/mean_reward": Series((0,), (0.05,))}) == set()


def test_a_reward_that_rises_by_less_than_its_error_has_not_improved():
    assert one({"rollout/ep_rew_mean": rising(0.3, 0.3)}) == {"nothing-improved"}
    assert one({"rollout/ep_rew_mean": rising(0.3, 0.5)}) == set()
    assert one({"rollout/ep_rew_mean": rising(0.3, 0.3, updates=40), "time/iterations": rising(1, 40, 40)}) == set()


@pytest.mark.parametrize(
    ("end", "goal", "found"),
    [(0.1, 1000, False), (0.3, 400, False), (0.1, 400, True), (0.3, 200, True)],
    ids=["less than a third", "no worse", "worse", "over"],
)
def test_a_run_that_goes_on_has_time_and_needs_significance(end, goal, found):
    metrics = {"rollout/ep_rew_mean": rising(0.3, end), "time/episodes": rising(1, 200)}
    assert one(metrics, episodes=goal) == ({"nothing-improved"} if found else set())


def test_an_update_is_too_far_by_its_kl_or_by_what_is_clipped():
    good = {"rollout/ep_rew_mean": rising(0.3, 0.5)}
    assert one(good | {"train/approx_kl": rising(0.0, 0.3)}) == {"update-too-far"}
    assert one(good | {"train/approx_kl": rising(0.02, 0.02), "train/clip_fraction": rising(0.1, 0.9)}) == {
        "update-too-far"
    }
    assert one(good | {"train/approx_kl": rising(0.02, 0.02), "train/clip_fraction": rising(0.1, 0.2)}) == set()


@pytest.mark.parametrize(("explained", "severity"), [(-0.5, "warning"), (0.01, "note"), (0.3, None)])
def test_a_critic_that_is_no_better_or_worse_than_a_constant(explained, severity):
    history = History({"train/explained_variance": rising(explained, explained)})
    finding = rules.training_rules.critic_explains_nothing(history)
    assert (finding.severity if finding else None) == severity


def test_what_is_explained_is_not_said_again_as_nothing_improved():
    unchanged = {"rollout/ep_rew_mean": rising(0.3, 0.3)}
    assert names(History(unchanged)) == {"nothing-improved"}
    assert names(History(unchanged, {}, {"stopped": "x"})) == {"stopped"}


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
        ((0.4, 0.4), (0.3, 0.3), False),
        ((0.9, 0.6), (0.1, 0.3), False),  # the policy learns to end its answers
        ((0.9, 0.6), (0.3, 0.3), True),
        ((0.9, 0.76), (0.1, 0.3), True),
        ((0.9, 0.9), (0.9, 0.98), False),  # what is cut is right
    ],
)
def test_answers_are_cut_off_if_most_are_or_ever_more(cut, success, found):
    right = shares(*success)
    metrics = {"rollout/truncated_frac": shares(*cut), "rollout/success_rate": right, "rollout/ep_rew_mean": right}
    assert ("answers-cut-off" in one(metrics)) is found


def test_control_may_run_to_its_time_limit():
    cut = {"rollout/truncated_frac": Series((1, 2), (1.0, 1.0))}
    assert reward_rules.answers_cut_off(History(cut, {"env_id": "CartPole-v1"})) is None
    assert reward_rules.answers_cut_off(History(cut, {"env_id": "rlenv:TextGen-v0"})) is not None


# Live, and the pages.


@pytest.fixture(scope="module")
def hard_start(tmp_path_factory):
    """Return the output and the folder of a run that starts without a warm start."""
    folder = tmp_path_factory.mktemp("doctor") / "run"
    small = ["--episodes", 48, "--episodes-per-update", 8, "--eval-episodes", 20, "--eval-every", 4, "--sft-steps", 0]
    outcome = run("train", *small, "--agent", "ppo", "--log-kl", "--log-interval", 2, "--log-dir", folder)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stderr, folder


def test_a_run_says_each_warning_once_and_before_it_trains(hard_start):
    said, folder = hard_start
    before, after = said.split("wrong answers alone teach nothing")
    assert "before:" in before and "after:" in after
    flags = ("--sft-steps", "--sft-examples", "--curriculum", "--group-size", "--verifier-arg", "docs/recipes.md")
    assert all(flag in after.splitlines()[0] for flag in flags)
    named = re.findall(r"\[([a-z-]+)\]$", said, re.MULTILINE)
    assert len(named) == len(set(named)) and set(named) >= alarms(folder) - {"stopped"}


def test_a_reward_that_is_always_1_is_named_live_and_afterwards(tmp_path):
    (tmp_path / "always.py").write_text("def true(prompts, completions):\n    return [1.0] * len(completions)\n")
    (tmp_path / "p.csv").write_text("prompt,split\na:,train\nb:,train\nc:,test\n")
    task = ["--problems", tmp_path / "p.csv", "--verifier", f"{tmp_path / 'always.py'}:true", "--max-new-tokens", 4]
    small = ["--episodes", 24, "--episodes-per-update", 8, "--eval-episodes", 4, "--log-dir", tmp_path / "run"]
    outcome = run("train", *task, *small, "--sft-steps", 0)
    assert outcome.exit_code == 0, outcome.output
    for said in (outcome.stderr, run("doctor", tmp_path / "run").stdout):
        assert "different answers all earn 1" in said and "all 24 answers" in said


def test_what_the_agent_has_warned_of_is_not_said_again(tmp_path, capsys):
    history = FAILING["entropy-collapse"]
    doctor = live.LiveDoctor(write_run(tmp_path / "run", history), history.config)
    doctor.said |= live.BY_THE_AGENT
    doctor.look()
    assert not live.BY_THE_AGENT & set(re.findall(r"\[([a-z-]+)\]", capsys.readouterr().err))


def test_the_first_update_is_logged(hard_start):
    history = read_run(hard_start[1])
    assert list(history.reward.updates[:3]) == [1, 2, 4]
    assert abs(history["rollout/kl_start"].first) < 1e-5


def test_every_metric_is_explained(hard_start):
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`((?:rollout|train|eval|time|sft)/[\w/]+)`", page))
    with (hard_start[1] / "progress.csv").open(encoding="utf-8") as file:
        logged = set(next(csv.reader(file)))
    made = {name for history in FAILING.values() for name in history.metrics}
    families = re.compile(r"rollout/(parts/|success_rate/level_).*")  # names that the verifier chooses
    assert {name for name in logged | made if not families.fullmatch(name)} <= explained
    assert "`rollout/parts/NAME`" in page and "`rollout/success_rate/level_N`" in page


def test_every_rule_is_explained():
    page = (DOCS / "symptoms.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)*)` \((?:note|warning|error)", page)) == ALL


def test_a_run_that_goes_on_is_no_longer_stopped(pole_copy, monkeypatch):
    (pole_copy / "result.json").write_text('{"stopped": "the verifier failed"}')
    assert "stopped" in alarms(pole_copy)
    seen = []
    monkeypatch.setattr(job.Job, "_learn", lambda *_: seen.append(alarms(pole_copy)))
    result_of(run("train", "--resume", pole_copy, "--episodes", 40, "--json"))
    assert len(seen) == 1 and "stopped" not in seen[0]
