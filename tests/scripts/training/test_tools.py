"""Tools on the command line: found again from anywhere, counted, and imported for whoever trusts them."""

import sys

import pytest
from inprocess import error_of, result_of, run

SMALL = ["--sft-steps", 0, "--episodes", 4, "--eval-episodes", 2, "--eval-every", 0, "--episodes-per-update", 4]
SHORT = [
    "--max-new-tokens",
    8,
    "--max-reply-tokens",
    30,
    "--max-turns",
    2,
    "--verifier-workers",
    0,
    "--agent",
    "reinforce",
]
DOUBLE = "from pathlib import Path\nPath('imported').touch()\n\n\ndef double(x: int) -> int:\n    return 2 * x\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a tool of a file in its folder."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "my_tools.py").write_text(DOUBLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        tools = ["--tool", "my_tools.py:double", "--tool", "calculator"]
        result_of(run("train", *SMALL, *SHORT, *tools, "--log-interval", 1, "--log-dir", "run", "--json"))
    yield folder
    for name in [name for name in sys.modules if name.startswith("my_tools")]:
        del sys.modules[name]


@pytest.fixture
def elsewhere(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("my_tools")]:
        monkeypatch.delitem(sys.modules, name)
    return trained / "run"


def test_tools_that_a_checkpoint_names_need_trust(elsewhere, tmp_path):
    asked = f"the checkpoint names the tool '{elsewhere.parent}/my_tools.py:double'"
    for command in (
        ["evaluate", elsewhere, "--episodes", 2],
        ["evaluate", elsewhere, "--episodes", 2, "--verifier", "arith"],
        ["play", elsewhere, "--watch"],
        ["train", "--resume", elsewhere, "--episodes", 8],
    ):
        line = error_of(run(*command))
        assert asked in line and "pass --trust" in line, command
    assert not (tmp_path / "imported").exists()
    assert result_of(run("evaluate", elsewhere, "--episodes", 2, "--trust", "--json"))["episodes"] == 2
    assert (tmp_path / "imported").exists()
    assert result_of(run("train", "--resume", elsewhere, "--episodes", 8, "--trust", "--json"))["episodes"] >= 8


def test_tools_of_the_command_line_replace_those_of_a_checkpoint(elsewhere, tmp_path):
    given = ["--tool", "calculator", "--verifier", "arith", "--episodes", 2, "--json"]
    assert result_of(run("evaluate", elsewhere, *given))["episodes"] == 2
    assert not (tmp_path / "imported").exists()
