"""`--help`: quick, grouped, and with examples that the real commands accept."""

import gc
import json
import re
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from inprocess import done, run
from loaded import loaded
from pages import check_rlenv

import rlenv  # noqa: F401
from rlenv._scripts.config.arguments import agent_arguments
from rlenv._scripts.config.base import declared
from rlenv._scripts.config.command import Command
from rlenv._scripts.config.configs import TrainConfig
from rlenv._scripts.config.parameters import option_of
from rlenv._scripts.jobs.model_defaults import STEPS
from rlenv._scripts.main import COMMANDS, main
from rlenv._scripts.process.imports import without_collector
from rlenv.agents import AGENTS, GRPO, setting
from rlenv.agents.algorithms.options import SETTINGS
from rlenv.agents.policies.control import ControlPolicy
from rlenv.agents.policies.presets import PRESETS
from rlenv.verifiers import list_verifiers, make_verifier

ALL = {("rlenv",): main}
for name in COMMANDS:
    command = ALL["rlenv", name] = main.get_command(click.Context(main, info_name="rlenv"), name)
    ALL |= {("rlenv", name, sub): subcommand for sub, subcommand in getattr(command, "commands", {}).items()}
EXAMPLES = [(words, line) for words, command in ALL.items() for line in command.examples]


@pytest.mark.parametrize(("words", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_is_accepted_by_the_command(words, line):
    program, *arguments = shlex.split(line.removeprefix('eval "$(').removesuffix(')"').partition(" > ")[0])
    _, given = check_rlenv(arguments)
    assert program == "rlenv"
    named = [*given.get("names", ()), given.get("name" if words[1:2] == ("verifiers",) else "verifier")]
    for name in filter(None, named):
        own = name.partition(":")[0] not in list_verifiers() or name.startswith("reward_model:")
        assert own or make_verifier(name, **dict(given.get("verifier_kwargs", ())))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_shows_the_examples_and_what_each_option_does(words):
    shown = run(*words[1:], "--help-all" if getattr(ALL[words], "often", None) else "--help").stdout
    assert 1 <= len(ALL[words].examples) <= 4 and all(f"\n  {line}\n" in shown for line in ALL[words].examples)
    for option in ALL[words].params:
        if isinstance(option, click.Option):
            assert option.help and f" {option.opts[-1]}" in shown, option.name
    if words == ("rlenv",):
        assert all(f"\n  {name} " in shown for name in COMMANDS)


def test_help_names_the_defaults_of_the_code():
    shown = " ".join(run("train", "--help-all").stdout.split())
    assert f"{ControlPolicy.defaults['total_timesteps']:,} for control" in shown
    assert f"[default: ({STEPS} for a preset and in rlenv sft, else 0)]" in shown
    assert f"Preset ({', '.join(PRESETS)}), smollm2" in shown and "--plan-memory SIZE" in shown


def test_what_needs_no_model_is_answered_without_libraries_that_take_seconds(tmp_path):
    """One process for all, as what one of them imports is there for the others, too."""
    (tmp_path / "one.jsonl").write_text('{"question": "How much is 2 plus 2?", "answer": "#### 4", "split": "train"}\n')
    program = f"""import sys
from rlenv._scripts.main import COMMANDS, main
from rlenv._scripts.process.imports import without_collector
from click import Context
models = {{'torch', 'transformers', 'stable_baselines3'}}
def answered(*lines):
    codes = []
    for line in lines:
        try:
            main(line.split(), prog_name="rlenv")
        except SystemExit as end:
            codes.append(end.code)
    return codes
print(answered("train --help"), {{'rich.console', 'yaml'}} & set(sys.modules))
print(answered("--help", "--version", "bench --list", "train --epsiodes", "verifiers lint length", ""))
print((models | {{'gymnasium', 'numpy'}}) & set(sys.modules))
for name in COMMANDS:
    command = main.get_command(Context(main), name)
    for one in (command, *getattr(command, "commands", {{}}).values()):
        for option in one.params:
            option.shell_complete(Context(one), "")
rows = "tasks gsm8k --problems {tmp_path / "one.jsonl"}"
print(answered("tasks", "tasks gsm8", rows, "serve --verifier arit", "verifiers list"), models & set(sys.modules))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for said in ("[0] set()", "[0, 0, 0, 2, 0, 2]\nset()", "[0, 2, 0, 2, 0] set()"):
        assert f"{said}\n" in done.stdout, done.stdout
    assert "humaneval" in done.stdout and "did you mean 'gsm8k'" in done.stderr
    assert "How much is 2 plus 2?\nReason step by step. Put" in done.stdout and "did you mean 'arith'" in done.stderr


# The start of a command.


@pytest.mark.parametrize("fault", [None, ImportError("no such module")])
def test_the_collector_pauses_for_imports_of_a_new_process_alone(fault, monkeypatch):
    def states():
        with suppress(ImportError), without_collector():
            seen = gc.isenabled()
            if fault is not None:
                raise fault
        return seen, gc.isenabled()

    frozen = gc.get_freeze_count()
    assert "torch" in sys.modules and states() == (True, True) and gc.get_freeze_count() == frozen
    monkeypatch.delitem(sys.modules, "torch")
    assert states() == (False, True) and gc.get_freeze_count() > frozen
    gc.unfreeze()


# Shell completion: commands, options, agents and verifiers.


def completed(*words):
    """Return what completes the last of these words, each with its kind."""
    *before, last = words
    found = ShellComplete(main, {}, "rlenv", "_RLENV_COMPLETE").get_completions(before, last)
    return [(item.value, item.type) for item in found]


NAMES = """
tr | train
verifiers l | lint list
train --kl-c | --kl-coef
train --agent gr | grpo
compare --agents rloo,gr | rloo,grpo
train --verifier arith,countd | arith,countdown
verifiers lint arith countd | countdown
train --task math | math math500
train --task gsm --ask --verifier countd | countdown
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_a_name_is_completed(line):
    typed, expected = line.split(" | ")
    assert completed(*typed.split()) == [(name, "plain") for name in expected.split()]


# What a bug report needs.


def test_versions_and_devices_are_shown_and_no_path_no_name_and_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef")
    outcome = run("info", "--json")
    private = [str(Path.home()), str(Path.cwd()), socket.gethostname(), "abcdef"]
    for text in (done("info").output, outcome.output):
        assert not [each for each in private if each in text]
        assert not re.search(r"(?<![\w.])/\w+", text)


# An option that sets a constructor's argument is declared in one place.


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
    """Help, config and page come from the field; tests/agents/test_settings.py has its signature and its check."""
    seen = {}

    @click.command(cls=Command, config=TrainConfig)
    def made(config):
        seen.update(agent_arguments(config, Tilted, "tilted"))

    shown = " ".join(CliRunner().invoke(made, ["--help"]).stdout.split())
    assert "--tilt FLOAT Of the advantages. For tilted. [default: (0.5)]" in shown and "--soft" not in shown
    assert "--side TEXT Which side. For tilted: left, right. [default: (left)]" in shown
    (tmp_path / "own.json").write_text(json.dumps({"tilt": 0.25}))
    assert CliRunner().invoke(made, ["--config", str(tmp_path / "own.json")]).exit_code == 0 and seen["tilt"] == 0.25
    imitating = [one.opts + one.secondary_opts for one in map(option_of, declared("sft").values())]
    assert imitating[-2:] == [["--side"], ["--soft", "--no-soft"]]
    row = "| `tilt` | `tilted` | `float` | `0.5` | (0, 1] | Of the advantages. |"
    assert row in loaded("docs/make_settings.py").some().splitlines()
