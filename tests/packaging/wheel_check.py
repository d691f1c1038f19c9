"""Builds the wheel from a clean clone and tries it outside the repository, in an environment for each Python.

    python tests/packaging/wheel_check.py 3.11 3.12 3.13          # minutes: each environment gets torch
    python tests/packaging/wheel_check.py                         # builds and checks sdist and wheel, tries nothing

`make wheel-check PYTHONS="3.12 3.13"` and `make release-check` call it. It is not a test of the suite: pip must find
the dependencies.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--sft-steps", "20", "--sft-examples", "64", "--episodes", "512", "--episodes-per-update", "64"]
SMALL += ["--eval-episodes", "64", "--json"]
REWARD = "def shouts(prompts, completions, answer, **columns):\n"
REWARD += "    return [float(said == right) for said, right in zip(completions, answer)]\n"
PROBLEMS = "".join(json.dumps({"prompt": f"{n}>", "answer": str(n + 1)}) + "\n" for n in range(40))
PLACES = {"rlenv": "rlenv", "agents": "rlenv/agents", "verifiers": "rlenv/verifiers"}
PLACES |= {name: f"rlenv/_{name}" for name in ("scripts", "labs", "benchmarks")}
PACKED = (".py", ".html", ".css", ".md", ".svg", ".jsonl")  # package_data of setup.cfg
OUR_WARNING = re.compile(r"site-packages/rlenv/.*Warning")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", help="versions, such as 3.12, to try the wheel with")
    parser.add_argument("--folder", type=Path, help="keeps the environments and, in dist/, sdist and wheel")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlenv-wheel-") as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        pythons = {version: find_python(version) for version in given.pythons}
        wheel = build(next(iter(pythons.values()), sys.executable), folder)
        for version, python in pythons.items():
            try_wheel(version, environment(python, folder / f"env-{version}", wheel))
    tried = f"works on Python {', '.join(given.pythons)}" if given.pythons else "and its sdist can be uploaded"
    print(f"{wheel.name} {tried}")


def find_python(version):
    return shutil.which(f"python{version}") or sys.exit(f"found no python{version} on the path; install it")


def call(*command, cwd=None, code=0):
    """Run a command outside the repository; return its output."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables["PYTHONWARNINGS"] = "default"
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    ours = [line for line in done.stderr.splitlines() if OUR_WARNING.search(line)]
    if ours:
        sys.exit(f"warnings of ours: {' '.join(map(str, command))}\n" + "\n".join(ours))
    return done.stdout


def environment(python, folder, wheel):
    """Return the interpreter of an environment with the wheel and its dependencies."""
    inside = folder / "bin" / "python"
    if not inside.exists():
        print(f"{folder.name}: installing the dependencies", flush=True)
        call(python, "-m", "venv", folder)
    call(inside, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    call(inside, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel)
    return inside


def build(python, folder):
    """Build sdist and wheel, the wheel from the sdist, from a clean clone; check what they hold; return the wheel."""
    tools, source, made = folder / "tools", folder / "source", folder / "dist"
    for old in (source, made):
        shutil.rmtree(old, ignore_errors=True)
    if not tools.exists():
        call(python, "-m", "venv", tools)
        call(tools / "bin/python", "-m", "pip", "install", "--quiet", "build", "twine")
    call("git", "clone", "--quiet", "--no-hardlinks", ROOT, source)
    call(tools / "bin/python", "-m", "build", "--outdir", made, source)
    [wheel], [archive] = made.glob("*.whl"), made.glob("*.tar.gz")
    call(tools / "bin/python", "-m", "twine", "check", "--strict", wheel, archive)
    check_contents(source, wheel, archive)
    return wheel


def check_contents(source, wheel, archive):
    """Check that the wheel holds the packages, all below rlenv/, and nothing else, and the sdist no leftovers."""
    listed = call("git", "ls-files", cwd=source).split("\n")
    wanted = set()
    for path in map(Path, filter(None, listed)):
        if path.parts[0] in PLACES and (path.suffix in PACKED or path.name == "py.typed"):
            wanted.add("/".join([PLACES[path.parts[0]], *path.parts[1:]]))
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted, held ^ wanted
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "README.md", "setup.cfg", "setup.py", "pyproject.toml", "constraints.txt"} <= names
    top = {name.partition("/")[0] for name in names}
    assert not top & {"runs", ".venv", "tests", "build", "docs"}, top
    results = [name for name in names if name.endswith((".json", ".png", ".csv"))]
    assert not results, results


def try_wheel(version, python):
    """Do what a new user does, in an empty folder."""
    rlenv = python.with_name("rlenv")
    with tempfile.TemporaryDirectory(prefix="rlenv-empty-") as place:
        listed = json.loads(call(rlenv, "verifiers", "list", "--json", cwd=place))
        assert {row["name"]: row["missing"] for row in listed}["reasoning_gym"] == "reasoning-gym"
        said = json.loads(call(rlenv, "info", "--json", cwd=place))
        assert said["versions"]["Python"].startswith(version), said["versions"]
        assert call(rlenv, "--version", cwd=place).split()[-1] == said["versions"]["rlenv"]
        trained = json.loads(call(rlenv, "train", *SMALL, "--log-dir", "run", cwd=place))
        assert trained["updates"] == 8 and trained["eval"]["episodes"] == 64
        assert json.loads(call(rlenv, "evaluate", "run", "--episodes", "64", "--json", cwd=place)) == trained["eval"]
        call(rlenv, "export", "run", "exported", cwd=place)
        Path(place, "mine.py").write_text(REWARD)
        Path(place, "problems.jsonl").write_text(PROBLEMS)
        own = ["--verifier", "mine.py:shouts", "--problems", "problems.jsonl"]
        assert json.loads(call(rlenv, "train", *own, *SMALL, "--log-dir", "own", cwd=place))["updates"] == 8
        [*rows] = json.loads(call(rlenv, "verifiers", "show", own[1], *own[2:], "--json", cwd=place))
        assert {row["kind"]: row["reward"] for row in rows}["empty"] == 0
        call(rlenv, "train", "--env", "CartPole-v1", "--timesteps", "2000", "--log-dir", "pole", cwd=place)
        call(rlenv, "lab", cwd=place)
        call(python, "-c", "import rlenv.verifiers; from rlenv.agents import PPO", cwd=place)
    print(f"Python {version}: works", flush=True)


if __name__ == "__main__":
    main()
