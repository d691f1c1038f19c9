"""The example package, installed as a stranger would, offline and into a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from verifiers import list_verifiers

pytestmark = pytest.mark.slow  # a package is installed
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "rlenv-verifier-palindrome"
SCRIPT = """
import json

import gymnasium as gym
from click.testing import CliRunner

import rlenv
from _rlenv_scripts.main import main

def rlenv_verifiers(*arguments):
    outcome = CliRunner().invoke(main, ["verifiers", *arguments, "--json"])
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)

said = {
    "list": rlenv_verifiers("list"),
    "show": rlenv_verifiers("show", "palindrome", "-n", "2"),
    "lint": rlenv_verifiers("lint", "palindrome"),
}
env = gym.make("TextGen-v0", verifier="palindrome", verifier_kwargs={"longest": 5})
_, info = env.reset(seed=0)
task = env.unwrapped.task
problem = next(problem for problem in (task.stream[i] for i in range(99)) if problem.prompt == info["prompt"])
for token in task.demonstration(problem):
    _, reward, terminated, _, info = env.step(token)
assert (reward, terminated, info["is_success"]) == (1.0, True, True)
print(json.dumps({**said, "module": type(task.verifier).__module__}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what the commands and the environment say where the example is installed."""
    if not (find_spec("pip") and find_spec("setuptools")):
        pytest.skip("pip and setuptools install the example")
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build leaves files beside its sources
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    path = os.pathsep.join(filter(None, [str(folder / "site"), os.getenv("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_not_installed_here():
    assert "palindrome" not in list_verifiers()


def test_it_is_listed_with_the_package_it_comes_from(said):
    listed = {row["name"]: row for row in said["list"]}
    assert listed["palindrome"]["from"] == "rlenv-verifier-palindrome 1.0"
    assert listed["palindrome"]["summary"].startswith("A palindrome of a given length")
    assert listed["arith"]["from"] == "rlenv"


def test_it_is_shown(said):
    rewards = {(row["kind"], row["reward"]) for row in said["show"]}
    assert rewards == {("demonstration", 1.0), ("wrong", 0.0), ("empty", 0.0)}


def test_it_passes_lint(said):
    [report] = said["lint"]["verifiers"]
    assert report["passed"]
    assert report["attacks"] >= 200
    assert report["honest"] >= 200
    assert (report["false_accepts"], report["false_rejects"], report["without_demonstration"]) == (0, 0, 0)


def test_the_environment_makes_it_by_its_name(said):
    assert said["module"] == "rlenv_verifier_palindrome"
