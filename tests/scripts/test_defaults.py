"""An option that sets a constructor's argument is declared in one place; its default is shown."""

import inspect
import json
from typing import Literal

import click
import pytest
from click.testing import CliRunner
from loaded import loaded

from rlenv._scripts.config.arguments import agent_arguments
from rlenv._scripts.config.base import declared
from rlenv._scripts.config.command import Command
from rlenv._scripts.config.configs import TrainConfig
from rlenv._scripts.config.parameters import option_of
from rlenv.agents import AGENTS, GRPO, setting
from rlenv.agents.algorithms.options import SETTINGS


class Tilted(GRPO):
    """GRPO with options of its own."""

    tilt: float = setting(default=0.5, help="Of the advantages.", above=0, high=1, commands=("train",))
    side: Literal["left", "right"] = setting(default="left", help="Which side.", commands=("train", "sft"))
    soft: bool = setting(default=False, help="Softly.", commands=("sft",))


@pytest.fixture
def tilted(monkeypatch):
    """Have the commands know another agent."""
    for table in (SETTINGS, AGENTS):
        monkeypatch.setitem(table, "tilted", Tilted)
    declared.cache_clear()
    yield
    declared.cache_clear()


@pytest.mark.usefixtures("tilted")
def test_an_option_is_declared_in_one_place(tmp_path):
    """Signature, check, option with its default, config and page all come from the field."""
    seen = {}

    @click.command(cls=Command, config=TrainConfig)
    def made(config):
        seen.update(agent_arguments(config, Tilted, "tilted"))

    assert inspect.signature(Tilted).parameters["tilt"].default == 0.5
    with pytest.raises(ValueError, match="tilt must be a finite number above 0 and at most 1, got 2"):
        Tilted("MlpPolicy", "CartPole-v1", tilt=2)
    shown = " ".join(CliRunner().invoke(made, ["--help"]).stdout.split())
    assert "--tilt FLOAT Of the advantages. For tilted. [default: (0.5)]" in shown and "--soft" not in shown
    assert "--side TEXT Which side. For tilted: left, right. [default: (left)]" in shown
    (tmp_path / "own.json").write_text(json.dumps({"tilt": 0.25}))
    assert CliRunner().invoke(made, ["--config", str(tmp_path / "own.json")]).exit_code == 0 and seen["tilt"] == 0.25
    imitating = [one.opts + one.secondary_opts for one in map(option_of, declared("sft").values())]
    assert imitating[-2:] == [["--side"], ["--soft", "--no-soft"]]
    row = "| `tilt` | `tilted` | `float` | `0.5` | (0, 1] | Of the advantages. |"
    assert row in loaded("docs/make_settings.py").some().splitlines()
