"""Each rule of the doctor names its failure and no other; healthy runs are silent, and a thing is said once."""

import math
import random
import re

import click
import numpy as np
import pytest
from inprocess import done, result_of, run
from made_runs import AT, CONTROL, HEALTHY, SETTINGS, TEXT, evaluated, flat, line, sparse, write_run

from rlenv._scripts.main import COMMANDS, main
from rlenv._scripts.reports import rules, statistics
from rlenv._scripts.reports.history import History, read_run
from rlenv._scripts.reports.rules import findings_of

REWARD, SUCCESS, HELD_OUT = "rollout/ep_rew_mean", "rollout/success_rate", "eval/success_rate"
CUT, SPREAD, EQUAL = "rollout/truncated_frac", "rollout/reward_std", "rollout/frac_reward_zero_std"
LENGTH = "rollout/ep_len_mean"
MOUNTAIN = {"env_id": "MountainCar-v0", "agent": "ppo"}
STUCK = {REWARD: line(0.3, 0.3, noise=0.01), SUCCESS: flat(0.3)}
SAME = {REWARD: flat(1), SUCCESS: flat(1), SPREAD: flat(0), EQUAL: flat(1), HELD_OUT: sparse({0: 1, 200: 1})}
NEVER_RIGHT = {REWARD: line(0, 0.1), SUCCESS: line(0, 0.1), HELD_OUT: sparse({0: 0, 200: 0})}
LUCKY = {HELD_OUT: sparse({0: 0.5, 20: 0.58, 40: 0.48, 200: 0.5})}
GOING = {"time/episodes": AT}


def shares(start, end):
    """Return a share that goes along a line, with the noise of 64 episodes per update."""
    draw = random.Random(0)
    return np.array([sum(draw.random() < mean for _ in range(64)) / 64 for mean in line(start, end)])


def first(updates, columns):
    """Return the first updates of a run that is over."""
    whole = text(columns)
    return History({name: column[: updates + 1] for name, column in whole.columns.items()}, SETTINGS, {"updates": 1})


def right(start, end):
    return {SUCCESS: shares(start, end), REWARD: shares(start, end)}


def text(columns, config=None, result=None):
    """Return a healthy run on text in which these columns are otherwise."""
    return History(TEXT | columns, SETTINGS | (config or {}), result or {})


def ends(before, after):
    return text({}, result={"initial_eval": before, "eval": after})


# Measured in twelve updates on two numbers: 1 for the right one alone, 0.3 for it anywhere, so that both get written.
PARTS = dict(zip(range(1, 13), (56, 38, 68, 75, 115, 122, 160, 191, 204, 188, 188, 195), strict=True))
GAMED = {REWARD: sparse({at: part / 1000 for at, part in PARTS.items()}), SUCCESS: flat(0), CUT: flat(0.87)}
GAMED |= {HELD_OUT: sparse({0: 0, 12: 0})}
FORM = {SUCCESS: shares(0.2, 0.5), REWARD: shares(0.2, 0.5) + line(0.1, 0.3)}
SURE = {"train/entropy_loss": flat(-0.01)}
# Measured on GSM8K, in twenty updates of four prompts with sixteen answers each, of which one problem was easy.
EASY = sparse(dict(enumerate(np.array((2, 2, 8, 2, 2, 0, 2, 2, 0, 3, 0, 3, 0, 6, 2, 14, 0, 5, 2, 3)) / 100, start=1)))
NEVER = {REWARD: flat(0), SUCCESS: flat(0), SPREAD: flat(0), EQUAL: flat(1)}

SMALL_TASK = {name: column[[0, 5, 10, -1]] for name, column in CONTROL.items()}
SMALL_TASK |= {
    "time/iterations": np.array([1, 10, 20, 24]),
    "train/entropy_loss": np.linspace(-0.6, 0, 4),
    REWARD: np.array([0.5, 0.9, 0.96, 0.97]),
}

CASES = {  # what is planted: (the rules that find it and no others, the run)
    "no figure before the run stopped": ("", History({}, SETTINGS, {"updates": 0, "stopped": "no verdict"})),
    "an error in 5 % of the verdicts": ("verdicts-fail", text({"rollout/failed_frac": flat(0.05)})),
    "no reward ever": ("no-signal", History(CONTROL | {REWARD: flat(-200), SPREAD: flat(0)}, MOUNTAIN)),
    "no reward for any text": ("no-signal", text(NEVER)),
    "no rise in 200 updates": ("nothing-learned", text(STUCK)),
    "no rise in 40 updates": ("", text(STUCK | {"time/iterations": np.minimum(AT, 40)})),
    "no rise in a fifth of a run": ("", text(STUCK | GOING, {"episodes": 1000})),
    "no rise in half of a run": ("", text(STUCK | GOING, {"episodes": 400})),
    "a fall in a fifth of a run": ("", text(GOING | {REWARD: line(0.3, 0.2)}, {"episodes": 1000})),
    "a fall in half of a run": ("nothing-learned", text(GOING | STUCK | {REWARD: line(0.3, 0.2)}, {"episodes": 400})),
    "a reward like return": ("no-signal", text(SAME)),
    "one answer to each problem": ("equal-groups", text(SAME | SURE)),
    "groups that are equal": ("equal-groups", text(STUCK | {EQUAL: line(0.9, 1)})),
    "a part for saying everything": ("reward-without-success", first(12, GAMED)),
    "the same in 200 updates": ("reward-without-success", text({SUCCESS: shares(0.1, 0.1), CUT: flat(0.9)})),
    "a part for the form, more right": ("", text(FORM)),
    "a part for the form, nearly all right": ("", text({SUCCESS: flat(0.9), REWARD: line(0.9, 1.1)})),
    "a reward of which success is unknown": ("", text({SUCCESS: flat(math.nan)})),
    "a reward that the prompt decides": ("no-signal", text(STUCK | {EQUAL: flat(1)})),
    "the same, of which all is a success": ("no-signal", text({EQUAL: flat(1), SUCCESS: flat(1)})),
    "the same, one answer to each problem": (
        "no-signal",
        text(STUCK | {EQUAL: flat(1), "train/entropy_loss": flat(-0.01)}),
    ),
    "one update of equal rewards by chance": ("", text({EQUAL: np.where(AT == 1, 1, 0.5)})),
    "no signal in three updates": ("no-signal", first(3, NEVER | {"time/episodes": 8 * AT})),
    "no signal, groups of one": ("no-signal", first(3, NEVER | {"rollout/group_size_min": flat(1)})),
    "no signal but a teacher": ("", first(30, NEVER | {"train/kl_teacher": line(1, 0.1)})),
    "three updates of groups that differ": ("", first(3, STUCK)),
    "three updates of control": (
        "",
        History({name: column[:4] for name, column in CONTROL.items()} | {SPREAD: np.zeros(4)}, MOUNTAIN),
    ),
    "rollouts that are equal": ("equal-groups", text(STUCK | {"rollout/group_size_min": flat(1), SPREAD: flat(0)})),
    "groups that get equal as problems are solved": ("", text({EQUAL: line(0.4, 1)})),
    "nothing right before training": ("hard-start", text(NEVER_RIGHT)),
    "wrong answers that earn a part": ("", text(NEVER_RIGHT | {"eval/mean_reward": sparse({0: 0.05})})),
    "no success before training in control": ("", History(CONTROL | NEVER_RIGHT, MOUNTAIN)),
    "a hard start that is overcome": ("", text({HELD_OUT: sparse({0: 0, 200: 0.9})})),
    "90 % cut off": ("cut-off", text({CUT: flat(0.9)})),
    "all cut off, which earn nothing": ("no-signal cut-off", text(NEVER | {CUT: flat(1)})),
    "90 % cut off, which earn a part": ("cut-off", text({REWARD: flat(0.1), SUCCESS: flat(0), CUT: flat(0.9)})),
    "ever more cut off, no more right": ("cut-off", text(STUCK | {CUT: shares(0.05, 0.4)})),
    "ever more cut off, more right": ("", text(right(0.3, 0.5) | {CUT: shares(0.05, 0.4)})),
    "fewer cut off, more right": ("", text(right(0.1, 0.3) | {CUT: shares(0.9, 0.6)})),
    "a fifth fewer cut off, more right": ("", text(right(0.1, 0.3) | {CUT: shares(0.73, 0.58)})),
    "fewer cut off, no more right": ("cut-off", text(STUCK | {CUT: shares(0.9, 0.6)})),
    "all cut off and right": ("", text(right(0.9, 0.98) | {CUT: shares(0.9, 0.9)})),
    "dialogues that run out": ("cut-off", text(STUCK | {CUT: flat(1), "rollout/turns": flat(2)})),
    "dialogues that run out and learn": ("", text({CUT: flat(1), "rollout/turns": flat(2)})),
    "20 % special tokens": ("special-tokens", text({"rollout/special_tokens": flat(0.2)})),
    "half a percent of special tokens": ("", text({"rollout/special_tokens": flat(0.005)})),
    "ever shorter answers": ("nothing-learned", text(STUCK | {LENGTH: line(5, 1)})),
    "ever shorter answers that earn more": ("reward-without-success", text({SUCCESS: flat(0.3), LENGTH: line(5, 1)})),
    "ever shorter answers that are right": ("", text({LENGTH: line(5, 1)})),
    "no entropy, no success": ("entropy-collapse", text(STUCK | {"train/entropy_loss": line(-0.3, 0)})),
    "no entropy, twice the reward in four log entries": ("", History(SMALL_TASK, MOUNTAIN, {})),
    "no entropy, success": ("", text({"train/entropy_loss": line(-0.3, 0)})),
    "KL of 3 nats to the anchor": ("kl-runaway", text({"train/kl_ref": line(0, 3)}, {"kl_coef": 0.01})),
    "every tenth update skipped": ("skipped-updates", text({"train/skipped_updates": line(0, 20)})),
    "one of 200 updates skipped": ("", text({"train/skipped_updates": flat(1)})),
    "memory of the training problems": ("held-out-falls-behind", text({HELD_OUT: sparse({0: 0.9, 200: 0.3})})),
    "a reward that is gamed": ("held-out-falls-behind", text({SUCCESS: line(0.9, 0.2)})),
    "chance in the default curve": ("", text(LUCKY)),
    "the same, of 2,000 episodes": ("held-out-falls-behind", text(LUCKY | {SUCCESS: flat(0.5)}, {"eval_every": 20})),
    "all success is lost": ("reward-collapse", text({REWARD: line(0.9, 0), SUCCESS: line(0.9, 0)})),
    "an easy problem among few prompts": ("", first(20, {SUCCESS: EASY, REWARD: EASY})),
    "a success of six updates": ("", text({"time/iterations": AT / 40, REWARD: line(0.2, 0), SUCCESS: line(0.2, 0)})),
    "worse at the end": ("worse-than-before", ends(evaluated(0.915, 0.915), evaluated(0.785, 0.785))),
    "worse at the end, perhaps": ("", ends(evaluated(0.915, 0.915), evaluated(0.885, 0.885))),
    "less reward without a success": ("worse-than-before", ends(evaluated(0.0, 0.5), evaluated(0.0, 0.3))),
    "less reward and more success": ("", ends(evaluated(0.3, 0.9), evaluated(0.6, 0.7))),
}


def names(history):
    return {finding.rule for finding in findings_of(history)}


@pytest.mark.parametrize("case", CASES)
def test_what_is_planted_is_found_by_its_rule_and_by_no_other(case):
    found, history = CASES[case]
    assert names(history) == {*found.split()}


def test_each_rule_is_planted():
    assert {rule for found, _ in CASES.values() for rule in found.split()} == rules.RULES.keys()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_no_alarm_when_it_is_over_nor_on_the_way(name):
    whole = HEALTHY[name]
    assert names(whole) == set()
    for end in range(10, 200, 10):
        columns = {column: values[: end + 1] for column, values in whole.columns.items()}
        assert names(History(columns, whole.config | {"timesteps": 1024 * 200})) == set()


def test_every_fix_names_options_that_exist():
    commands = [main.get_command(click.Context(main), name) for name in COMMANDS]
    flags = {flag for command in commands for option in command.params for flag in option.opts}
    for _, history in CASES.values():
        for finding in findings_of(history):
            assert set(re.findall(r"--[a-z][a-z-]+", finding.fix)) <= flags, finding
            assert finding.evidence and finding.title and finding.fix


def test_an_interval_of_a_difference_is_newcombes():
    before, after = ({"episodes": count, "success_rate": right / count} for right, count in ((48, 80), (56, 70)))
    interval = statistics.difference_interval(before, after, "success_rate")  # his table II (a), method 10
    assert interval == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


@pytest.mark.parametrize(
    ("case", "rule", "severity"),
    [("no reward ever", "no-signal", "error"), ("90 % cut off", "cut-off", "warning"), ("healthy", "", "")],
)
def test_the_command_prints_what_it_finds_and_its_exit_code_follows_the_gravest(case, rule, severity, tmp_path):
    healthy = write_run(tmp_path / "healthy", HEALTHY["text"])
    judged = write_run(tmp_path / "judged", CASES[case][1] if rule else HEALTHY["text"])
    said = run("doctor", judged, healthy).stdout
    assert f"{healthy}: nothing found" in said and ((f"{severity}: " in said and f"[{rule}]" in said) or not rule)
    found = result_of(run("doctor", judged, healthy, "--json"))
    assert [(each["rule"], each["severity"]) for each in found[str(judged)]] == [(rule, severity)] * bool(rule)
    codes = [run("doctor", healthy, judged, "--fail-on", level).exit_code for level in ("warning", "error")]
    assert codes == [bool(rule), severity == "error"]


def test_a_run_says_each_warning_once_in_its_options_and_as_soon_as_it_is_known(tmp_path):
    small = ["--episodes", 256, "--episodes-per-update", 64, "--eval-episodes", 8, "--sft-steps", 0]
    said = done("train", *small, "--agent", "grpo", "--log-interval", 1, "--log-dir", tmp_path / "run").stderr
    before, after = said.split("wrong answers alone teach nothing")
    assert "before:" in before and "after:" in after, "said before it trains"
    assert "up to update 3" in after, "and not after ten updates"
    assert "--sft-steps" in after and "rlenv.agents.warm_start" not in said
    named = re.findall(r"\[([a-z-]+)\]$", said, re.MULTILINE)
    assert "no-signal" in named and len(named) == len(set(named)) and set(named) >= names(read_run(tmp_path / "run"))
