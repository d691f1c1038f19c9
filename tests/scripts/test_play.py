"""`rlenv play`, as a transcript of what is printed for the lines that are typed; and what is shown of dialogues."""

import builtins
import json
import re

import pytest
from click.testing import CliRunner
from inprocess import done, run

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._scripts.jobs.games import quoted
from rlenv._scripts.main import main
from rlenv._scripts.reports.page import tokens_of
from rlenv._scripts.run.folder import completion_of


def transcript(*arguments, lines=(), code=0):
    """Return what a command prints that reads these lines."""
    outcome = CliRunner().invoke(main, ["play", *map(str, arguments)], input="".join(f"{line}\n" for line in lines))
    assert (outcome.exit_code, outcome.stderr) == (code, ""), outcome.output
    return outcome.stdout


def test_a_session_ends_at_quit_at_ctrl_c_or_with_the_input(monkeypatch):
    shown = transcript(lines=["/help", "1", "  /quit "])
    assert shown.count("/help repeats this") == 2 and shown.endswith("\n0 episodes  (/quit)\n")
    assert transcript(lines=["1"]).endswith("\n0 episodes  (the input has ended)\n")

    def interrupted(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr(builtins, "input", interrupted)
    assert transcript(code=130).endswith("\n0 episodes  (Ctrl-C)\n")


def test_tokens_are_typed_as_numbers_and_texts_and_others_are_explained(text_run):
    shown = transcript(text_run, "--top", 2, "--episodes", 1, lines=["#999", "7", "/end"])
    assert len(re.findall("^    #", shown, re.MULTILINE)) == 4  # two tokens, before each choice
    assert '"999" is not an action; allowed: 0 to' in shown
    assert shown.count("had the probability") == 2 and 'answer  "7" <eos>' in shown
    assert '"" is not an action' in transcript("--episodes", 1, lines=["", "/end"])


def test_a_text_cannot_control_the_terminal():
    assert quoted('a"\x1b\x9b\u202e\n') == r'"a\"\u001b\x9b\u202e\n"'


def test_a_watched_policy_draws_by_the_seed(text_run):
    def tokens(*arguments):
        rows = transcript(text_run, "--watch", *arguments).splitlines()
        return [row.split()[1] for row in rows if row[:6].strip().isdigit()]

    first, again, other = (tokens("--stochastic", "--temperature", 9, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_game_is_played_turn_by_turn():
    asked = ["--verifier", "guess", "--verifier-arg", "largest=9", "--max-turns", "3", "--episodes", "1"]
    shown = transcript(*asked, lines=["0", "/end", "8", "/end", "12"])
    told = re.findall(r"^(turn|reply|turns|answer|reward) +(\S+)", shown, re.MULTILINE)
    assert told[:4] == [("turn", '"0"'), ("reply", '"?"'), ("turn", '"8"'), ("reply", '">"')]
    assert told[4:] == [("turns", "3"), ("answer", '"1"'), ("reward", "0")]


# Dialogues for people: a run of `guess` as evaluate, the samples and the report show it.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guess") / "run"
    few = ["--sft-steps", 10, "--sft-examples", 16, "--sft-batch-size", 16, "--episodes", 16, "--group-size", 4]
    few += ["--episodes-per-update", 8, "--eval-episodes", 8, "--device", "cpu"]
    game = ["--verifier", "guess", "--verifier-arg", "largest=9", "--verifier-arg", "turns=3"]
    done("train", *game, *few, "--log-dir", folder, "--report")
    return folder, [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_samples_have_the_turns_and_the_report_shows_each_reply_and_reward_behind_its_turn(trained):
    folder, rows = trained
    for row in rows:
        assert sum(turn["tokens"] for turn in row["dialogue"]) == len(row["tokens"])
        assert sum(turn["reward"] for turn in row["dialogue"]) == row["reward"]
        assert row["completion"] == row["dialogue"][-1]["text"]
        assert all(turn["reply"] in ("<", ">", "?") for turn in row["dialogue"][:-1])
    row = next(row for row in rows if len(row["dialogue"]) > 1)
    first, *others = row["dialogue"]
    assert completion_of(row).startswith(f"{first['text']} [{first['reply']}]")
    assert '<span class="reply"' in (folder / "report.html").read_text()
    tokens = tokens_of(row | {"dialogue": [first | {"reward": 0.5}, *others]})
    assert [token.shade for token in tokens].index("reply") == first["tokens"]
    assert tokens[first["tokens"]].text == f"{first['reply']} (+0.5)"
    assert len(tokens) == len(row["tokens"]) + len(others)


def test_an_evaluation_has_success_by_turns_and_all_that_was_said(trained, tmp_path):
    folder, _ = trained
    out, asked = tmp_path / "said.jsonl", ("evaluate", folder, "--episodes", 6, "--device", "cpu")
    shown = run(*asked, "--samples", 2, "--out", out)
    assert "| mean turns" in shown.stdout and "| success in " in shown.stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 18
    for row in rows:
        assert row["turns"] == len(row["dialogue"]) and row["completion"] == row["dialogue"][-1]["text"]
        assert bool(row["success"]) == (row["completion"].strip() == row["answer"])
    assert "mean turns" in run(*asked).stdout
