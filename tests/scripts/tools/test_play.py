"""`rlenv play`, as a transcript of what is printed for the lines that are typed."""

import builtins

import pytest
import torch
from _rlenv_scripts.main import main
from _rlenv_scripts.tools.play.games import quoted
from click.testing import CliRunner
from inprocess import run

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
