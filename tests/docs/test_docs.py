"""What docs/algorithms.md shows is true."""

import json
import re
from pathlib import Path

import pytest
import torch
from _rlenv_scripts.main import main
from click.testing import CliRunner

from agents import AGENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "algorithms.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]


@pytest.fixture
def imitator(monkeypatch):
    """Return the class of the example, registered by one entry."""
    scope = {"__name__": "self_imitation"}
    exec(compile(EXAMPLE, "algorithms.md", "exec"), scope)
    monkeypatch.setitem(AGENTS, "self-imitation", scope["SelfImitation"])
    return scope["SelfImitation"]


def test_the_example_imitates_what_did_better_than_the_others(imitator):
    agent = imitator("tiny", "rlenv:TextGen-v0", env_kwargs={"verifier": "arith"}, episodes_per_update=8, device="cpu")
    rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    rollout.rewards[torch.arange(8), rollout.lengths - 1] = torch.tensor([0, 3, 0, 3, 1, 1, 1, 1.0])
    credit = agent.advantages(rollout)
    assert credit[:, 0].tolist() == [0, 2, 0, 2, 0, 0, 0, 0]
    assert torch.equal(credit, credit[:, :1].expand_as(credit))


def test_one_line_makes_it_known_to_the_commands(imitator, tmp_path):
    small = ["--env", "CartPole-v1", "--timesteps", "200", "--eval-episodes", "4", "--log-dir", str(tmp_path / "run")]
    outcome = CliRunner().invoke(main, ["train", "--agent", "self-imitation", "--json", *small])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout.splitlines()[-1])["agent"] == "self-imitation"
    assert type(imitator.load(tmp_path / "run" / "checkpoint")) is imitator
