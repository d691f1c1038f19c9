"""An agent of the user's in a file: trained, resumed, evaluated, watched and compared like ours; with trust alone."""

import json
import re
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from inprocess import error_of, result_of, run
from undrawn import not_drawn

from agents import Agent

CODE = """
from agents import Reinforce
from neighbour import FACTOR

class Halved(Reinforce):
    \"\"\"REINFORCE with half the advantages.\"\"\"

    def __init__(self, policy, env, *, factor: float = FACTOR, **settings):
        self.factor = factor
        super().__init__(policy, env, **settings)

    def advantages(self, rollout):
        return self.factor * super().advantages(rollout)

def no_class():
    pass
"""
SMALL = ["--env", "CartPole-v1", "--episodes-per-update", 4, "--num-envs", 2, "--eval-episodes", 2, "--no-report"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "my_agent.py").write_text(CODE)
    yield tmp_path / "my_agent.py"
    for name in [name for name in sys.modules if name.startswith(("my_agent", "neighbour"))]:
        del sys.modules[name]


ENV = """
from __future__ import annotations
from dataclasses import dataclass
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from neighbour import FACTOR

@dataclass
class Size:
    liters: float = FACTOR

class Tank(CartPoleEnv):
    pass

gym.register("Tank-v0", Tank)
"""


@pytest.mark.parametrize("name", ["tank:Tank-v0", "tank.py:Tank-v0", "tank.py:Tank"])
def test_an_environment_in_a_file(file, tmp_path, monkeypatch, name):
    (tmp_path / "tank.py").write_text(ENV)
    options = [*SMALL, "--agent", "reinforce", "--env", name]
    folder = Path(result_of(run("train", *options, "--episodes", 8, "--json"))["run_dir"]).absolute()
    assert folder.name.startswith("tank")
    forget_tank()  # another process would not know it
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "tank.py:Tank" in (line := error_of(run("evaluate", folder))) and "--trust" in line
    assert result_of(run("evaluate", folder, "--episodes", 2, "--trust", "--json"))["episodes"] == 2
    assert result_of(run("train", "--resume", folder, "--episodes", 16, "--trust", "--json"))["episodes"] == 16
    assert run("play", "--watch", folder, "--episodes", 1, "--trust").exit_code == 0
    forget_tank()


def forget_tank():
    gym.registry.pop("Tank-v0")
    for name in [name for name in sys.modules if name.endswith("tank.py")]:
        del sys.modules[name]


def test_a_class_in_a_file_has_the_life_of_our_agents(file, tmp_path):
    own = ["--agent", "my_agent.py:Halved", "--agent-arg", "factor=0.25"]
    trained = result_of(run("train", *SMALL, *own, "--episodes", 8, "--json"))
    folder = Path(trained["run_dir"])
    assert folder.name == "cartpole-v1-my_agent.halved"
    assert trained["agent"] == f"{file}:Halved"
    facts = json.loads((folder / "checkpoint" / "agent.json").read_text())
    assert facts["agent"] == f"{file}:Halved" and facts["settings"]["factor"] == 0.25
    assert list(folder.glob("my_agent.Halved-seed-0/events*"))

    for command in (["train", "--resume", folder], ["evaluate", folder], ["play", "--watch", folder, "--episodes", 1]):
        line = error_of(run(*command))
        assert re.search(r"names the agent '.*my_agent\.py:Halved' and may run any code; .* pass --trust", line), line
    longer = result_of(run("train", "--resume", folder, "--episodes", 16, "--trust", "--json"))
    assert (longer["episodes"], longer["updates"]) == (16, 4)
    assert result_of(run("evaluate", folder, "--episodes", 2, "--trust", "--json"))["episodes"] == 2
    assert run("play", "--watch", folder, "--episodes", 1, "--trust").exit_code == 0
    with pytest.raises(ValueError, match=r"class of your own, '.*my_agent.py:Halved': call that class's load"):
        Agent.load(folder / "checkpoint")


def test_it_is_compared(file, tmp_path, monkeypatch):
    not_drawn(monkeypatch)
    names = f"reinforce,{file}:Halved"
    given = ["--env", "CartPole-v1", "--episodes", 4, "--episodes-per-update", 4, "--num-envs", 4, "--eval-episodes", 2]
    outcome = run(
        "compare",
        "--agents",
        names,
        "--seeds",
        2,
        "--vectorize-seeds",
        *given,
        "--no-figures",
        "--log-dir",
        "study",
        "--json",
    )
    report = result_of(outcome)
    assert [row["agent"] for row in report["rows"]] == ["reinforce", "my_agent.Halved"]
    assert (tmp_path / "study" / "my_agent.Halved" / "seed-1" / "result.json").is_file()
    assert run("report", "study").exit_code == 0


def test_a_module_of_this_directory_is_named_by_its_file(file):
    trained = result_of(run("train", *SMALL, "--agent", "my_agent:Halved", "--episodes", 4, "--json"))
    assert trained["agent"] == f"{file}:Halved"
    trained = result_of(run("train", *SMALL, "--agent", "agents.algorithms.rloo:RLOO", "--episodes", 4, "--json"))
    assert trained["agent"] == "agents.algorithms.rloo:RLOO"
