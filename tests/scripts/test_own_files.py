"""Functions, tools, agents and environments in files of the user's: found again from anywhere, with trust alone."""

import json
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from click.testing import CliRunner
from inprocess import done, error_of, result_of, run
from refused import refusal

from rlenv._scripts.main import main
from rlenv.agents import Agent

MINE = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
import gymnasium as gym
from rlenv.agents import Reinforce
from gymnasium.envs.classic_control import CartPoleEnv
from neighbour import FACTOR

Path("imported").touch()

@dataclass
class Size:
    liters: float = FACTOR

class Tank(CartPoleEnv):
    pass

gym.register("Tank-v0", Tank, max_episode_steps=30)

class Halved(Reinforce):
    def __init__(self, policy, env, *, factor: float = FACTOR, **settings):
        self.factor = factor
        super().__init__(policy, env, **settings)
    def advantages(self, rollout):
        return self.factor * super().advantages(rollout)

def right(prompts, completions, solution, **kwargs):
    return [float(said == wanted) for said, wanted in zip(completions, solution)]

def double(x: int) -> int:
    return 2 * x

def solve(problem, client):
    messages = [{"role": "user", "content": problem.text}]
    answer = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "sure?"}]
    sure = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    return (answer == problem.answer) + 0.125 * (answer == sure), {"said": float(len(answer))}
"""
SMALL = "--episodes 4 --episodes-per-update 4 --eval-episodes 2 --eval-every 0 --no-report --device cpu --json"
POLE = "--env CartPole-v1 --num-envs 2"
SUMS = "--problems sums.jsonl --column prompt=question --column answer=solution --sft-steps 0"
TEXT = f"{SUMS} --max-new-tokens 3"
TOOL = "--tool calculator --verifier-workers 0 --sft-steps 0 --max-turns 2 --max-new-tokens 8 --max-reply-tokens 30"
EVALUATE = ["evaluate", "--episodes", 2, "--device", "cpu"]
PLAY, RESUME = ["play", "--watch", "--episodes", 1], ["train", "--episodes", 8, "--resume"]
PROGRAM = f"{SUMS} --verifier program:mine.py:solve --max-turns 2 --max-reply-tokens 8 --agent grpo --group-size 2"
PROGRAM += " --verifier-workers 0"
KINDS = {  # options, the name under which the file is refused elsewhere, and the command that reads it there
    "a function": (f"{TEXT} --verifier mine.py:right", "mine.py:right", EVALUATE),
    "a tool": (f"{TOOL} --tool mine.py:double", "mine.py:double", PLAY),
    "an agent": (f"{POLE} --agent mine.py:Halved --agent-arg factor=0.25", "mine.py:Halved", RESUME),
    "an environment": ("--env mine.py:Tank --num-envs 2", "mine.py:Tank", EVALUATE),
    "an id in a file": ("--env mine.py:Tank-v0 --num-envs 2", "mine.py:Tank-v0", RESUME),
}


def forget(folder):
    """Forget the modules of a folder, as another process would not know them."""
    gym.registry.pop("Tank-v0", None)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def home(tmp_path, monkeypatch):
    rows = [{"question": f"{a}+{b}=", "solution": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "neighbour.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    forget(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_elsewhere_it_needs_trust(kind, home, monkeypatch):
    options, named, reader = KINDS[kind]
    folder = Path(result_of(run("train", *options.split(), *SMALL.split()))["run_dir"]).absolute()
    if kind == "an agent":
        assert json.loads((folder / "checkpoint" / "agent.json").read_text())["settings"]["factor"] == 0.25
        refusal(lambda: Agent.load(folder / "checkpoint"), "mine.py:Halved': call that class's load")
    forget(home)
    monkeypatch.chdir(home / "elsewhere")
    line = error_of(run(*reader, folder))
    assert f"{home / named}'" in line and "--trust" in line
    if kind == "a tool":  # others that are named take the place of the checkpoint's
        given = ["--tool", "calculator", "--verifier", "arith", "--episodes", 2, "--json"]
        assert result_of(run("evaluate", folder, *given))["episodes"] == 2
    assert not Path("imported").exists()
    done(*reader, folder, "--trust")
    assert Path("imported").exists()


WORLD = """
import gymnasium as gym
from gymnasium import spaces

class Short(gym.Env):
    observation_space = action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 0, 1.0, True

class Unmade(Short):
    def __init__(self):
        self.lines = {}["first"]

class Fallen(Short):
    def step(self, action):
        return 1 / 0
"""
WORLDS = {  # class: its line that raises an exception, and what the last line of the output has
    "Short": ("", ("step: Expected `Env.step` to return", "(observation, reward, terminated, truncated, info)")),
    "Unmade": ('self.lines = {}["first"]', ("__init__ raised KeyError", "'first'")),
    "Fallen": ("return 1 / 0", ("step raised ZeroDivisionError", "division by zero")),
}


@pytest.mark.parametrize("name", WORLDS)
def test_an_environment_that_is_broken_is_one_line_after_the_traceback_of_its_own_code(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("world.py").write_text(WORLD)
    line, said = WORLDS[name]
    ended = run("train", "--env", f"world.py:{name}", *SMALL.split(), "--log-dir", "run")
    *before, last = ended.stderr.splitlines()
    assert ended.exit_code == 2 and all(word in last for word in (f"Error: environment {name}", *said)), ended.output
    assert (line in map(str.strip, before)) if line else not before
    files = [each.split('"')[1] for each in before if each.startswith("  File ")]
    assert {Path(each).name for each in files} <= {"world.py"}, "frames of Gymnasium or of ours"


# A program that calls a chat API.


def test_a_program_is_trained_evaluated_and_played(home):
    result_of(run("train", *PROGRAM.split(), *SMALL.split(), "--log-dir", "run"))
    evaluated = result_of(run("evaluate", "run", "--trust", "--json", "--episodes", 4))
    assert (evaluated["mean_turns"], evaluated["episodes"]) == (2, 4)
    played = CliRunner().invoke(main, ["play", "run", "--trust", "--episodes", "1"], "1\n/end\n1\n/end\n")
    assert played.exit_code == 0 and "sure?" in played.stdout, played.output
    assert "sure?" in (home / "run" / "samples.jsonl").read_text()


@pytest.mark.slow
def test_two_processes_train_a_program(home, jobs):
    code, _, errors = jobs.run("train", *PROGRAM.split(), *SMALL.split(), "--log-dir", "run")
    assert code == 0, errors
    assert Agent.load(home / "run" / "checkpoint", device="cpu", trust=True).num_episodes == 4
