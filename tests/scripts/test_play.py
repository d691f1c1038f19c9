"""`rlenv play`, as a transcript of what is printed for the lines that are typed; and what is shown of dialogues."""

import builtins
import json
import re

import pytest
import torch
from _rlenv_scripts.games import quoted
from _rlenv_scripts.main import main
from _rlenv_scripts.reports.collect import _checked
from _rlenv_scripts.reports.tokens import sample_of
from _rlenv_scripts.run import said
from _rlenv_scripts.samples import Segment, segments
from click.testing import CliRunner
from inprocess import result_of, run

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Reinforce


def typed(*arguments, lines=()):
    """Return the result of a command that reads these lines."""
    return CliRunner().invoke(main, [str(each) for each in arguments], input="".join(f"{line}\n" for line in lines))


def transcript(outcome, code=0):
    assert outcome.exit_code == code, outcome.output
    assert outcome.stderr == ""
    return "\n".join(line.rstrip() for line in outcome.stdout.split("\n"))


@pytest.fixture(scope="module")
def pole_run(tmp_path_factory):
    """Return a run of a policy that pushes right with the probability 0.75, whatever it sees."""
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=4, device="cpu", seed=0)
    with torch.no_grad():
        agent.policy.net.action_net.weight.zero_()
        agent.policy.net.action_net.bias.copy_(torch.tensor([0.25, 0.75]).log())
    folder = tmp_path_factory.mktemp("pole")
    agent.save(folder / "checkpoint")
    return folder


@pytest.mark.parametrize("command", ["/quit", "  /quit "])
def test_quitting_in_an_episode(text_run, command):
    said = transcript(typed("play", text_run, lines=["/help", "1", command]))
    assert said.count("Type tokens:") == 2
    assert said.endswith("\n0 episodes  (/quit)\n")


def test_ctrl_c_ends_with_a_summary_and_the_code_of_the_signal(text_run, monkeypatch):
    def interrupted(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr(builtins, "input", interrupted)
    said = transcript(run("play", text_run), code=130)
    assert said.endswith("\n0 episodes  (Ctrl-C)\n")


def test_a_text_cannot_control_the_terminal():
    assert quoted('a"\x1b\x9b\u202e\n') == r'"a\"\u001b\x9b\u202e\n"'


def test_a_watched_policy_draws_by_the_seed(pole_run):
    def actions(*arguments):
        rows = transcript(typed("play", pole_run, "--watch", *arguments)).splitlines()
        return [row.split()[1] for row in rows if row[:6].strip().isdigit()]

    assert set(actions()) == {"1"}  # the likeliest
    drawn = actions("--stochastic", "--seed", 1)
    assert set(drawn) == {"0", "1"} and drawn == actions("--stochastic", "--seed", 1)


# Dialogues for people: a run of `guess` as play, evaluate, the samples and the report show it.


SMALL = ["--sft-steps", 30, "--sft-examples", 64, "--sft-batch-size", 16, "--episodes", 16, "--episodes-per-update", 8]
SMALL += ["--group-size", 4, "--eval-episodes", 8, "--device", "cpu", "--verifier-arg", "largest=9"]
SMALL += ["--verifier-arg", "turns=3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guess") / "run"
    shown = run("train", "--verifier", "guess", *SMALL, "--log-dir", folder, "--report", "--json")
    return folder, result_of(shown)


@pytest.mark.parametrize(
    ("columns", "context", "end", "parts"),
    [
        ([1, 2, 5, 6, 7, 8], [9, 5, 1, 7, 7, 6, 1, 4, 1], [1], [(0, 2, [7, 7]), (2, 4, []), (4, 6, [])]),
        ([1, 2], [9, 5, 1, 7, 7, 6, 1, 4, 1], [1], [(0, 2, [])]),
        (
            [1, 2, 3, 4, 5, 6],
            [9, 7, 7, 7, 5, 7, 7],
            [7, 7],
            [(0, 2, []), (2, 6, [])],
        ),  # stops are not across turns
    ],
)
def test_turns_end_at_gaps_and_where_the_model_ended_them(columns, context, end, parts):
    assert segments(columns, context, lambda turn: list(turn[-len(end) :]) == end) == [Segment(*part) for part in parts]


def test_samples_have_the_turns_with_their_replies_and_rewards(trained):
    folder, _ = trained
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    long = [row for row in rows if len(row["dialogue"]) > 1]
    assert long
    for row in rows:
        assert sum(turn["tokens"] for turn in row["dialogue"]) == len(row["tokens"])
        assert sum(turn["reward"] for turn in row["dialogue"]) == row["reward"]
        assert row["completion"] == row["dialogue"][-1]["text"]
        assert all(turn["reply"] in ("<", ">", "?") for turn in row["dialogue"][:-1])
    assert said(long[0]).startswith(f"{long[0]['dialogue'][0]['text']} [{long[0]['dialogue'][0]['reply']}]")


def test_the_report_shows_each_reply_behind_its_turn_and_the_reward_of_the_turn(trained):
    folder, _ = trained
    assert '<span class="reply"' in (folder / "report.html").read_text()
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    row = next(row for row in rows if len(row["dialogue"]) > 1)
    first = row["dialogue"][0]
    tokens = sample_of(_checked(row | {"dialogue": [first | {"reward": 0.5}, *row["dialogue"][1:]]}), "").tokens
    assert [token.kind for token in tokens].index("reply") == first["tokens"]
    assert tokens[first["tokens"]].text == first["reply"] and tokens[first["tokens"]].paid == "+0.5"
    replies = len(row["dialogue"]) - 1
    assert len(tokens) == len(row["tokens"]) + replies
    assert not any(token.kind == "reply" for token in sample_of(_checked(row | {"dialogue": []}), "").tokens)


def test_an_evaluation_has_success_by_turns_and_all_that_was_said(trained, tmp_path):
    folder, _ = trained
    out = tmp_path / "said.jsonl"
    asked = ("evaluate", folder, "--episodes", 6, "--samples", 2, "--out", out, "--device", "cpu")
    shown = run(*asked)
    assert "| mean turns" in shown.stdout and "| success in " in shown.stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 18
    for row in rows:
        assert row["turns"] == len(row["dialogue"]) and row["completion"] == row["dialogue"][-1]["text"]
        assert bool(row["success"]) == (row["completion"].strip() == row["answer"])
    assert "mean turns" in run("evaluate", folder, "--episodes", 6, "--device", "cpu").stdout


def test_a_game_is_played_turn_by_turn():
    asked = ["play", "--verifier", "guess", "--verifier-arg", "largest=9", "--max-turns", "3", "--episodes", "1"]
    shown = CliRunner().invoke(main, asked, input="0\n/end\n8\n/end\n12\n").stdout
    told = re.findall(r"^(turn|reply|turns|answer|reward) +(\S+)", shown, re.MULTILINE)
    assert told[:4] == [("turn", '"0"'), ("reply", '"?"'), ("turn", '"8"'), ("reply", '">"')]
    assert told[4:] == [("turns", "3"), ("answer", '"1"'), ("reward", "0")]
