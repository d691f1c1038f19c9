"""The example package, installed as a stranger would, offline and into a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "rlenv-verifier-palindrome"
RLENV = [sys.executable, "-c", "from _rlenv_scripts.main import main; main()", "verifiers"]
PLAY = """
import gymnasium as gym
import rlenv

env = gym.make("TextGen-v0", verifier="palindrome", verifier_kwargs={"longest": 5})
_, info = env.reset(seed=0)
task = env.unwrapped.task
problem = next(problem for problem in (task.stream[i] for i in range(99)) if problem.prompt == info["prompt"])
for token in task.demonstration(problem):
    _, reward, terminated, _, info = env.step(token)
assert (reward, terminated, info["is_success"]) == (1.0, True, True)
print(type(task.verifier).__module__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the environment variables under which the example is installed."""
    if not (find_spec("pip") and find_spec("setuptools")):
        pytest.skip("pip and setuptools install the example")
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build leaves files beside its sources
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(folder / "site"), os.getenv("PYTHONPATH")]))}


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_it_is_not_installed_here():
    done = subprocess.run([*RLENV, "list", "--json"], capture_output=True, text=True, check=True)
    assert "palindrome" not in done.stdout


def test_it_is_listed_with_the_package_it_comes_from(installed):
    listed = {row["name"]: row for row in json.loads(run([*RLENV, "list", "--json"], installed))}
    assert listed["palindrome"]["from"] == "rlenv-verifier-palindrome 1.0"
    assert listed["palindrome"]["summary"].startswith("A palindrome of a given length")
    assert listed["arith"]["from"] == "rlenv"


def test_it_is_shown(installed):
    rows = json.loads(run([*RLENV, "show", "palindrome", "-n", "2", "--json"], installed))
    rewards = {(row["kind"], row["reward"]) for row in rows}
    assert rewards == {("demonstration", 1.0), ("wrong", 0.0), ("empty", 0.0)}


def test_it_passes_lint(installed):
    [report] = json.loads(run([*RLENV, "lint", "palindrome", "--json"], installed))["verifiers"]
    assert report["passed"]
    assert report["attacks"] >= 200
    assert report["honest"] >= 200
    assert (report["false_accepts"], report["false_rejects"], report["without_demonstration"]) == (0, 0, 0)


def test_the_environment_makes_it_by_its_name(installed):
    assert run([sys.executable, "-c", PLAY], installed) == "rlenv_verifier_palindrome"
