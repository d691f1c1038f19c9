"""Options that set a constructor's argument: the constructor's default is shown, and only what was given is passed."""

import json

from _rlenv_scripts.compare.command import compare
from _rlenv_scripts.setup.defaults import agent_settings
from _rlenv_scripts.setup.options import Setting
from _rlenv_scripts.setup.settings import agent_arguments, resolved
from _rlenv_scripts.training.command import train
from _rlenv_scripts.training.sft import sft

from agents import AGENTS, Reinforce
from agents.settings import declared_by

SETTINGS = {str(option.name): option for option in train.params if isinstance(option, Setting)}


def given(*arguments):
    return train.make_context("train", list(arguments)).params


def test_an_option_has_no_default_and_names_an_argument():
    known = set().union(*(agent_settings(cls) for cls in AGENTS.values()))
    assert {"gamma", "kl_coef", "max_failed_share"} <= SETTINGS.keys() & known
    assert all(value is None for name, value in given().items() if name in SETTINGS)


def test_only_what_was_given_is_passed():
    assert agent_arguments("reinforce", Reinforce, given("--gamma", "0.5")) == {
        "gamma": 0.5, "seed": 0, "device": "auto",
    }  # fmt: skip


def test_the_saved_options_hold_the_defaults_and_files_that_hold_them_give_the_same(tmp_path):
    saved = resolved(given())
    assert (saved["kl_coef"], saved["lr_schedule"], saved["vf_coef"]) == (0.0, "linear", 0.5)
    assert "baseline" not in saved and "test_fraction" not in saved
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert resolved(given("--config", str(tmp_path / "config.json"))) == saved


def test_an_option_comes_from_the_declaration():
    """Of every agent and command: the name, the type, the choices and the sentence."""
    kinds = {"int": "integer", "bool": "boolean", "other": "text"}
    for command, options in {"train": train, "compare": compare, "sft": sft}.items():
        shown = {str(one.name): one for one in options.params if isinstance(one, Setting)}
        for cls in AGENTS.values():
            for name, one in declared_by(cls).items():
                assert (command in one.commands) == (name in shown), (command, name)
                if command in one.commands and (command, name) != ("compare", "group_size"):
                    option = shown[name]
                    assert option.heading == ("Comparison" if command == "compare" else one.heading)
                    assert one.help[:-1] in option.help and all(choice in option.help for choice in one.choices or ())
                    assert option.opts == [f"--{name.replace('_', '-')}"]
                    assert bool(option.secondary_opts) == (one.kind == "bool")
                    assert option.type.name == kinds.get(one.kind, "float")
