"""`rlenv play`, as a transcript of what is printed for the lines that are typed."""

import builtins
import json
import re

import pytest
import torch
from _rlenv_scripts.main import main
from _rlenv_scripts.tools.play import screen
from click.testing import CliRunner
from inprocess import error_of, run
from PIL import Image

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Reinforce

PROBLEMS = [{"prompt": "12+34=", "answer": "46", "split": "test"}, {"prompt": "1+1=", "answer": "2", "split": "train"}]


def typed(*arguments, lines=()):
    """Return the result of a command that reads these lines."""
    return CliRunner().invoke(main, [str(each) for each in arguments], input="".join(f"{line}\n" for line in lines))


def transcript(outcome, code=0):
    assert outcome.exit_code == code, outcome.output
    assert outcome.stderr == ""
    return "\n".join(line.rstrip() for line in outcome.stdout.split("\n"))


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    """Return a run of an untrained policy with seeded weights, on one sum."""
    kwargs = {"verifier": "arith", "problems": PROBLEMS, "max_new_tokens": 3}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=kwargs, episodes_per_update=4, device="cpu", seed=0)
    folder = tmp_path_factory.mktemp("text")
    agent.save(folder / "checkpoint")
    return folder


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


def test_undo_takes_back_the_last_line(text_run):
    straight = transcript(typed("play", text_run, "--top", 3, "--episodes", 2, lines=["46", "/end", "a", "6", "/end"]))
    lines = ["a", "/undo", "/undo", "46", " /undo ", "46", "/end", "a", "4", "/undo", "/undo", "a", "6", "/end"]
    undone = transcript(typed("play", text_run, "--top", 3, "--episodes", 2, lines=lines))
    ends = [re.findall(r"^(?:prompt|answer|reward|\d+ episodes).*$", said, re.MULTILINE) for said in (straight, undone)]
    assert ends[0] == ends[1] and len(ends[0]) == 7
    assert undone.count("nothing to take back") == 1
    lists = [re.findall(r"^so far .*\n(?:    [abc] .*\n)*", said, re.MULTILINE) for said in (straight, undone)]
    assert set(lists[0]) <= set(lists[1])  # the policy, asked again, thinks the same


def test_undo_removes_the_picture_and_does_not_count_as_a_step(text_run, tmp_path):
    options = ["--episodes", 1, "--picture", tmp_path, "--json"]
    said = transcript(typed("play", text_run, *options, lines=["46", "/undo", "6", "/end"]))
    result = json.loads(said.splitlines()[-1])
    assert 'answer  "6" <eos>\n' in said and result["played"][0]["steps"] == 2
    with Image.open(result["played"][0]["picture"]) as picture:
        assert picture.n_frames == 3


def test_what_cannot_be_taken_back_says_so(pole_run):
    said = transcript(typed("play", pole_run, lines=["0", "/undo", "/quit"]))
    assert "  actions of this environment cannot be taken back" in said
    assert "/undo" not in said.splitlines()[0]


@pytest.mark.parametrize("command", ["/quit", "  /quit "])
def test_quitting_in_an_episode(text_run, command):
    said = transcript(typed("play", text_run, lines=["/help", "a", command]))
    assert said.count("Type tokens:") == 2
    assert said.endswith("\n0 episodes  (/quit)\n")


def test_ctrl_c_ends_with_a_summary_and_the_code_of_the_signal(text_run, monkeypatch):
    def interrupted(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr(builtins, "input", interrupted)
    said = transcript(run("play", text_run), code=130)
    assert said.endswith("\n0 episodes  (Ctrl-C)\n")


def test_a_text_cannot_control_the_terminal():
    assert screen.quoted('a"\x1b\x9b\u202e\n') == r'"a\"\u001b\x9b\u202e\n"'


def test_a_watched_policy_draws_by_the_seed(pole_run):
    def actions(*arguments):
        rows = transcript(typed("play", pole_run, "--watch", *arguments)).splitlines()
        return [row.split()[1] for row in rows if row[:6].strip().isdigit()]

    assert set(actions()) == {"1"}  # the likeliest
    drawn = actions("--stochastic", "--seed", 1)
    assert set(drawn) == {"0", "1"} and drawn == actions("--stochastic", "--seed", 1)


def test_episodes_become_animated_pictures(text_run, tmp_path):
    said = transcript(typed("play", text_run, "--watch", "--episodes", 2, "--picture", tmp_path / "pictures"))
    files = sorted((tmp_path / "pictures").iterdir())
    assert [file.name for file in files] == ["episode-1.gif", "episode-2.gif"]
    assert all(f"picture {file}" in said for file in files)
    with Image.open(files[0]) as picture:
        assert picture.format == "GIF" and 2 <= picture.n_frames <= 4  # the prompt, and a frame per token


def test_what_draws_no_pictures_says_so(pole_run, tmp_path, monkeypatch):
    import gymnasium as gym
    from gymnasium.envs.classic_control import CartPoleEnv

    def lacks(env):
        raise gym.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(CartPoleEnv, "render", lacks)
    line = error_of(run("play", pole_run, "--watch", "--picture", tmp_path))
    assert "pygame is not installed" in line and "pip install 'rlenv-lm[pictures]'" in line
    line = error_of(run("play", "--env", "Blackjack-v1", "--env-arg", "render_mode=human", "--picture", tmp_path))
    assert "Blackjack" in line or "pygame" in line
