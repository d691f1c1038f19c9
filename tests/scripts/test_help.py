"""`--help`: quick, grouped, and with examples that the real commands accept."""

import gc
import shlex
import subprocess
import sys
from contextlib import suppress

import click
import pytest
from inprocess import run
from pages import check_rlenv

import rlenv  # noqa: F401
from rlenv._scripts.main import COMMANDS, main
from rlenv._scripts.process.imports import without_collector
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
