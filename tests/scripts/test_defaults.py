"""Options that set a constructor's argument: its default is shown, and only what was given is passed and repeated."""

import inspect
import json
from pathlib import Path

import click
import pytest
from _rlenv_scripts.agent_names import resume_command
from _rlenv_scripts.command import Command
from _rlenv_scripts.defaults import agent_settings
from _rlenv_scripts.options import Setting, common, declared
from _rlenv_scripts.settings import agent_arguments, resolved
from _rlenv_scripts.train import train
from click.testing import CliRunner
from loaded import loaded

from agents import AGENTS, GRPO, Reinforce, setting
from agents.algorithms import SETTINGS

OPTIONS = {str(option.name): option for option in train.params if isinstance(option, Setting)}


def given(*arguments):
    return train.make_context("train", list(arguments)).params


def test_an_option_has_no_default_and_names_an_argument():
    known = set().union(*(agent_settings(cls) for cls in AGENTS.values()))
    assert {"gamma", "kl_coef", "max_failed_share"} <= OPTIONS.keys() & known
    assert all(value is None for name, value in given().items() if name in OPTIONS)
    taken = {"gamma": 0.5, "seed": 0, "device": "auto"}
    assert agent_arguments("reinforce", Reinforce, given("--gamma", "0.5")) == taken, "only what was given is passed"


def test_the_saved_options_hold_the_defaults_and_files_that_hold_them_give_the_same(tmp_path):
    saved = resolved(given())
    assert (saved["kl_coef"], saved["lr_schedule"], saved["vf_coef"]) == (0.0, "linear", 0.5)
    assert "baseline" not in saved and "test_fraction" not in saved
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert resolved(given("--config", str(tmp_path / "config.json"))) == saved


class Tilted(GRPO):
    """GRPO with options of its own."""

    tilt: float = setting(0.5, "Of the advantages.", above=0, high=1, commands=("train",))
    side: str = setting("left", "Which side.", one_of=("left", "right"), commands=("train", "sft"))
    soft: bool = setting(False, "Softly.", commands=("sft",))


def test_an_option_is_declared_in_one_place(monkeypatch, tmp_path):
    """Signature, check, option with its default, config and page all come from the field."""
    monkeypatch.setitem(SETTINGS, "tilted", Tilted)
    monkeypatch.setitem(AGENTS, "tilted", Tilted)
    seen = {}

    @click.command(cls=Command)
    @declared("train")
    @common
    def made(**given):
        seen.update(agent_arguments("tilted", Tilted, given))

    assert inspect.signature(Tilted).parameters["tilt"].default == 0.5
    with pytest.raises(ValueError, match="tilt must be a finite number above 0 and at most 1, got 2"):
        Tilted("MlpPolicy", "CartPole-v1", tilt=2)
    shown = " ".join(CliRunner().invoke(made, ["--help"]).stdout.split())
    assert "--tilt FLOAT Of the advantages. For tilted. [default: (0.5)]" in shown and "--soft" not in shown
    assert "--side TEXT Which side. For tilted: left, right. [default: (left)]" in shown
    (tmp_path / "own.json").write_text(json.dumps({"tilt": 0.25}))
    assert CliRunner().invoke(made, ["--config", str(tmp_path / "own.json")]).exit_code == 0 and seen["tilt"] == 0.25
    imitating = click.command()(declared("sft")(lambda: None)).params
    assert [one.opts + one.secondary_opts for one in imitating][:2] == [["--side"], ["--soft", "--no-soft"]]
    row = "| `tilt` | `tilted` | `float` | `0.5` | (0, 1] | Of the advantages. |"
    assert row in loaded("docs/make_settings.py").some().splitlines()


# The command that continues a run asks for trust exactly if it imports a module of the user's.


IMPORTING = [
    {"env_id": "corridor:Corridor-v0"},
    {"agent": "/home/me/mine.py:Mine"},
    {"verifier": "arith,/home/me/rewards.py:f=0.5"},
    {"tools": ["/home/me/tools.py:f"]},
    {"verifier": "code", "unsafe_local_exec": True},
]
OURS = [{}, {"env_id": "rlenv:TextGen-v0"}, {"verifier": "regex:[0-9]+"}, {"tools": ["calculator"]}]


@pytest.mark.parametrize("options", [*IMPORTING, *OURS], ids=str)
def test_the_command_that_continues_asks_for_trust_if_it_imports(options):
    command = resume_command(Path("runs/NAME"), {"agent": "grpo", "verifier": "arith", **options})
    assert command == "rlenv train --resume runs/NAME" + " --trust" * (options in IMPORTING)
