"""`rlenv play`, as a transcript of what is printed for the lines that are typed."""

import builtins
import json
import re
from pathlib import Path

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


TEXT = """\
Type tokens: a letter chooses from the list, Enter takes the first, other lines are text.
"a is the text a, #17 is token 17, /end the end token.
/undo takes back the last line, /quit stops, /help repeats this.

episode 1
prompt  "12+34="
        at most 3 tokens
    a  "="   0.108  ##
    b  "3"   0.090  ##
    c  "8"   0.085  ##
> ab
  answer 'ab' has characters outside the tokenizer's alphabet: ['a', 'b']
> d
  "d" is not a letter of the list; allowed: a to c
> a
  "=" had the probability 0.108
so far  "="
    a  "="   0.109  ##
    b  "0"   0.089  ##
    c  "7"   0.089  ##
> 6
  "6" had the probability 0.070
so far  "=" "6"
    a  "6"   0.189  ####
    b  "2"   0.090  ##
    c  "8"   0.090  ##
>
  "6" had the probability 0.189
answer  "=" "6" "6"  (cut: no token is left)
reward  0  not solved
right   "46"
play again? (Enter for yes, n for no) n

1 episode, mean reward 0, solved 0%  (no more)
"""


def test_the_transcript_of_text(text_run):
    lines = ["ab", "d", "a", "6", "", "n"]
    assert transcript(typed("play", text_run, "--top", 3, lines=lines)) == TEXT


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


CARTPOLE = """\
Type an action, 0 to 1 (0 pushes left, 1 right), or several in a line. /quit stops, /help repeats this.

episode 1
                              |
                               |
                               |
                               |
                               |
                               |
                              [=]
---------------------------------------------------------------
step 0  observation +0.014 -0.023 -0.046 -0.048
policy  0 0.250  1 0.750
> left
  "left" is not an action; allowed: 0 to 1
> 2
  "2" is not an action; allowed: 0 to 1
>
                              |
                               |
                               |
                               |
                               |
                               |
                              [=]
---------------------------------------------------------------
step 1  observation +0.013 +0.173 -0.047 -0.355
policy  0 0.250  1 0.750
> 0 0 0 0 0 0 0 0 0 0 0 0
over    after 13 steps
return  13
play again? (Enter for yes, n for no)

1 episode, mean reward 13  (the input has ended)
"""


def test_the_transcript_of_cartpole(pole_run):
    lines = ["left", "2", "", "0 0 0 0 0 0 0 0 0 0 0 0"]
    assert transcript(typed("play", pole_run, lines=lines)) == CARTPOLE


WATCHED = """\

episode 1
prompt  "12+34="
        at most 3 tokens
  step  action       probability  entropy (nats)  instead
     1  "="                0.156           2.529  "3" 0.107  "8" 0.095  "7" 0.091
     2  "="                0.157           2.516  "0" 0.105  "7" 0.104  "3" 0.098
     3  "="                0.153           2.509  "0" 0.115  "7" 0.111  "8" 0.097
answer  "=" "=" "="  (cut: no token is left)
reward  0  not solved
right   "46"

1 episode, mean reward 0, solved 0%  (all episodes played)
"""


def test_the_transcript_of_a_watched_policy(text_run):
    assert transcript(typed("play", text_run, "--watch", "--temperature", 0.5)) == WATCHED


def test_the_page_shows_what_happens(capsys):
    page = (Path(__file__).parents[3] / "docs" / "play.md").read_text(encoding="utf-8")
    shown = re.findall(r"```text\n\$ rlenv (.*?)\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 2
    for command, output in shown:
        lines = re.findall(r"^> (.*)$", output, re.MULTILINE)
        assert transcript(typed(*command.split(), lines=lines)) == output
    [code] = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "play.md", "exec"), {})
    assert capsys.readouterr().out.count("(") >= 3


def test_a_digit_is_text_with_a_list_and_without(text_run):
    for run_or_not in ([text_run, "--top", 8], []):
        assert '"7"' in shown_answer(*run_or_not, lines=["7", "/end"])
    assert '"="' in shown_answer(text_run, lines=["a", "/end"])


def shown_answer(*arguments, lines):
    [answer] = re.findall(
        "^answer  .*$", transcript(typed("play", *arguments, "--episodes", 1, lines=lines)), re.MULTILINE
    )
    return answer


def test_without_a_policy_digits_are_text_and_a_right_answer_is_rewarded(text_run, tmp_path):
    (tmp_path / "sums.jsonl").write_text(json.dumps(PROBLEMS[0]) + "\n")
    outcome = typed("play", "--problems", tmp_path / "sums.jsonl", "--episodes", 2, "--json", lines=["46", "/end"])
    said = transcript(outcome).splitlines()
    assert "reward  1  solved" in said and said[-2] == "1 episode, mean reward 1, solved 100%  (the input has ended)"
    result = json.loads(said[-1])
    assert (result["episodes"], result["mean_reward"], result["ended"]) == (1, 1.0, "the input has ended")
    assert result["played"] == [
        {"reward": 1.0, "steps": 3, "is_success": True, "truncated": False, "picture": None}
    ]  # fmt: skip


def test_a_line_that_is_longer_than_the_answer_may_be_is_cut(text_run):
    said = transcript(typed("play", text_run, "--episodes", 1, lines=["+++++"]))
    assert 'answer  "+" "+" "+"  (cut: no token is left)' in said


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


def test_no_color_where_it_is_not_wanted(text_run, monkeypatch):
    arguments = ["play", str(text_run), "--watch"]
    assert "\x1b[" in CliRunner().invoke(main, arguments, color=True).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in CliRunner().invoke(main, arguments, color=True).stdout


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


def test_environments_with_a_text_of_their_own_show_it():
    said = transcript(typed("play", "--env", "FrozenLake-v1", "--env-arg", "is_slippery=false", lines=["2"]))
    assert "SFFF\nFHFH\nFFFH\nHFFG\n> 2\n  (Right)\nSFFF" in said


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
