"""`--help`: quick, grouped, and with examples that the real commands accept."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from _rlenv_benchmarks import BENCHMARKS
from _rlenv_labs import LABS
from _rlenv_scripts.console.completions import FILE
from _rlenv_scripts.main import COMMANDS, main
from _rlenv_scripts.setup.options import Setting
from inprocess import error_of, run
from loaded import loaded

import rlenv  # noqa: F401
from agents import AGENTS
from agents.rollouts.envs.registered import find_spec
from verifiers import list_verifiers, make_verifier

DOCS = Path(__file__).parents[3] / "docs"
GROUP = click.Context(main, info_name="rlenv")


def commands():
    """Return {words: command} of the group, its commands and their subcommands."""
    found = {("rlenv",): main}
    for name in COMMANDS:
        command = found["rlenv", name] = main.get_command(GROUP, name)
        for sub, subcommand in getattr(command, "commands", {}).items():
            found["rlenv", name, sub] = subcommand
    return found


ALL = commands()
EXAMPLES = [(words, line) for words, command in ALL.items() for line in command.examples]


def parsed(line, folder):
    """Return the context of an example as the real command parses it, in a folder with what it names."""
    for name in ("NAME", "A", "B", "warm", "judge"):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "config.json").write_text("{}")
    line = line.removeprefix('eval "$(').removesuffix(')"').partition(" > ")[0]
    program, *arguments = shlex.split(line)
    assert program == "rlenv"
    context = GROUP
    while isinstance(context.command, click.Group):
        name, *arguments = arguments
        command = context.command.get_command(context, name)
        assert command is not None, line
        if isinstance(command, click.Group) or arguments == ["--help"]:
            context = click.Context(command, parent=context, info_name=name)
        else:
            context = command.make_context(name, arguments, parent=context)
    return context


def own(name):
    """Tell whether a verifier is one of the reader's."""
    return name.partition(":")[0] not in list_verifiers() or name.startswith("reward_model:")


@pytest.mark.parametrize(("words", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_is_accepted_by_the_command(words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = parsed(line, tmp_path)
    given = {name: value for name, value in context.params.items() if value not in (None, (), False)}
    of_verifiers = words[1:2] == ("verifiers",)
    named = [*given.get("names", ()), given.get("name" if of_verifiers else "verifier")]
    assert set(given.get("agents", "all").split(",")) <= {"all", *AGENTS}
    assert given.get("agent", "grpo") in AGENTS
    assert find_spec(given.get("env_id", "CartPole-v1")) is not None
    for name in filter(None, named):
        assert own(name) or make_verifier(name, **dict(given.get("verifier_args", ())))
    if context.command.name in ("lab", "bench"):
        assert given.get("name", "kl") in LABS or given["name"] in BENCHMARKS


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_examples_and_shows_them_as_they_are(words):
    assert 1 <= len(ALL[words].examples) <= 4
    outcome = run(*words[1:], "--help")
    assert outcome.exit_code == 0 and len(outcome.stdout.splitlines()) <= 90
    for line, about in ALL[words].examples.items():
        assert f"  # {about}\n  {line}\n" in outcome.stdout
        assert len(line) <= 98


LONG = {words: command for words, command in ALL.items() if getattr(command, "often", None)}


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_help_fits_on_a_screen_where_there_is_more(words):
    command, shown = LONG[words], run(*words[1:], "--help").stdout
    assert len(shown.splitlines()) <= 60
    names = [name for names in command.often.values() for name in names]
    assert set(names) <= {option.name for option in command.params} and len(names) == len(set(names))
    headings = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [*command.often, "Examples"]
    assert f"Show all {len(command.params) + 1} options" in " ".join(shown.split())


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_all_help_says_what_each_option_does(words):
    shown = run(*words[1:], "--help-all").stdout.splitlines()
    for option in LONG[words].params:
        if isinstance(option, click.Option):
            assert option.help and [line for line in shown if line.split()[:1] == [option.opts[-1]]], option.name


def test_long_help_has_headings_and_every_option_once():
    shown = run("train", "--help-all").stdout
    headings = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[:3] == ["Environment:", "Verifier (text):", "Problems (text):"]
    assert headings[-2:] == ["Every run:", "Examples:"] or headings[-2:] == ["Options:", "Examples:"]
    for option in ALL["rlenv", "train"].params:
        lines = [line for line in shown.splitlines() if line.startswith(f"  {option.opts[-1]}")]
        assert len([line for line in lines if line.split()[0] == option.opts[-1]]) == 1, option.name


def test_the_list_of_commands_is_that_of_the_commands():
    shown = run("--help").stdout
    listed = [line.split()[0] for line in shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
    assert all(command.name == words[-1] for words, command in ALL.items() if len(words) > 1)
    assert "did you mean 'train'?" in error_of(run("trian"))
    assert "rlenv --help lists them" in error_of(run("zzzz"))


def test_what_is_known_without_the_packages_is_what_they_say():
    module = loaded("docs/make_known.py")
    assert FILE.read_text(encoding="utf-8") == module.content(), "run python docs/make_known.py"
    for path, text in module.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python docs/make_known.py"


def test_settings_show_a_default_that_is_known():
    known = json.loads(FILE.read_text(encoding="utf-8"))["settings"]
    shown = {one.name: one.show_default for one in ALL["rlenv", "train"].params if isinstance(one, Setting)}
    assert len(known) > 20 and shown["test_fraction"] == "0.2" and shown["long_prompts"] == "error"
    assert {name: shown[name] for name in known} == {name: facts["default"] for name, facts in known.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--help"], marks=pytest.mark.slow),
        pytest.param(["--version"], marks=pytest.mark.slow),
        ["train", "--help"],
        pytest.param(["compare", "--help"], marks=pytest.mark.slow),
        pytest.param(["completion", "zsh"], marks=pytest.mark.slow),
        pytest.param(["lab"], marks=pytest.mark.slow),
        pytest.param(["bench", "--list"], marks=pytest.mark.slow),
        pytest.param(["train", "--epsiodes"], marks=pytest.mark.slow),
        pytest.param([], marks=pytest.mark.slow),
    ],
)
def test_help_imports_nothing_that_takes_seconds(arguments):
    say_without_heavy_imports([arguments])


def test_no_help_imports_anything_that_takes_seconds():
    """One process for all, as what one of them imports is there for the others, too."""
    say_without_heavy_imports([["--help"], ["--version"], ["bench", "--list"], ["train", "--epsiodes"], []])


def say_without_heavy_imports(commands):
    command = f"""import sys
from _rlenv_scripts.main import main
for arguments in {commands}:
    try:
        main(arguments, prog_name="rlenv")
    except SystemExit as end:
        assert end.code in (0, 2)
"""
    command += "print({'torch', 'transformers', 'gymnasium', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
