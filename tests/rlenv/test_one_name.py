"""One import name: what an import registers and what it leaves alone, from a checkout's root and beside strangers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from anew import run_anew

from rlenv._scripts import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]


def in_a_new_python(code, cwd, **variables):
    """Run code in a new Python; return what it prints."""
    given = {**os.environ, "PYTHONSAFEPATH": "", **variables}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=given, capture_output=True, text=True)


HEAVY = {"torch", "transformers", "numpy", "gymnasium", "sympy", "httpx", "click", "rlenv.verifiers.builtin"}


@pytest.mark.parametrize("first", ["gymnasium", "rlenv.verifiers"])
def test_the_environment_is_registered_whichever_is_imported_first(first, tmp_path):
    """And the verifiers import nothing heavy, nor the built-in ones, which are there as soon as somebody asks."""
    code = f"import {first}, sys\nheavy = {HEAVY} & set(sys.modules)\nimport rlenv, gymnasium\n"
    code += "print('TextGen-v0' in gymnasium.registry, len(gymnasium.registry) > 10, 'torch' in sys.modules)\n"
    code += "from rlenv.verifiers import *\nprint(heavy)\nprint(Arith().sample)"
    registered, heavy, sample = in_a_new_python(code, tmp_path).stdout.splitlines()
    assert registered == "True True False" and "Arith" in sample
    assert first == "gymnasium" or heavy == "set()"


FROM_THE_ROOT = """
import sys
sys.path.insert(0, root)
import agents, verifiers
from agents import RLOO
from verifiers import Arith, Verifier
import rlenv.agents, rlenv.verifiers.builtin
assert RLOO is rlenv.agents.RLOO and Verifier is rlenv.verifiers.Verifier and Arith is rlenv.verifiers.builtin.Arith
assert agents.exact is rlenv.agents.exact
found = []
for name in "agents.exact", "agents.algorithms.rloo", "verifiers.builtin":
    try:
        __import__(name)
    except ModuleNotFoundError:
        found.append(name)
twice = [name for name in sys.modules if name.startswith(("agents.", "verifiers."))]
found = [len(found), twice]
"""


def test_from_the_root_of_a_checkout_the_folders_are_no_second_copies():
    assert run_anew(FROM_THE_ROOT, root=str(ROOT)) == [3, []]


def test_another_distribution_that_has_overwritten_ours_is_named_with_the_way_out(tmp_path):
    """`rlenv` on PyPI has other files, and ours are left beside them."""
    package = tmp_path / "rlenv"
    package.mkdir()
    (package / "__init__.py").write_text("class Runner: ...\n")
    for ours in (ROOT / "rlenv").iterdir():
        if ours.name != "__init__.py":
            (package / ours.name).symlink_to(ours)
    done = in_a_new_python("from rlenv._scripts.main import main; main(['info'])", tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(package / "__init__.py") in line and f"--no-deps {DISTRIBUTION}" in line
