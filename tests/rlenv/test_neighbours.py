import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _rlenv_scripts import DISTRIBUTION

import rlenv
from rlenv._neighbours import _OURS, check_neighbours


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A package of somebody else, first on the path, which has no other folder of installed packages."""
    package = tmp_path / "rlenv_test_foreign"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('never import a stranger to look at it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "-packages" not in place])
    importlib.invalidate_caches()
    return package / "__init__.py"


def test_a_foreign_package_is_named_by_its_file_without_importing_it(foreign):
    message = f"needs its own package 'rlenv_test_foreign', but Python finds {re.escape(str(foreign))}"
    with pytest.raises(ImportError, match=message):
        check_neighbours("verifiers", "rlenv_test_foreign")
    assert "rlenv_test_foreign" not in sys.modules


# The whole way: from Python and from the command line.


def site_of_a_stranger(folder, name, ours):
    """Make a site folder with a package of the name `name`; if `ours`, its files lie over those of ours."""
    package = folder / name
    if ours:
        shutil.copytree(Path(rlenv.__file__).parents[1] / name, package, ignore=shutil.ignore_patterns("__pycache__"))
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("from .agent import Runner\n")
    (package / "agent.py").write_text("class Runner: ...\n")
    distribution = folder / "stranger-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (distribution / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/agent.py,,\n")


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("name", "ours", "commands"),
    [
        pytest.param("agents", False, ["lab"], id="agents is shadowed", marks=pytest.mark.slow),
        pytest.param("verifiers", True, ["train"], id="verifiers was overwritten"),
    ],
)
def test_a_foreign_neighbour_is_named_with_the_way_out(tmp_path, name, ours, commands):
    site_of_a_stranger(tmp_path, name, ours)
    message = (
        f"rlenv needs its own package {name!r}, but Python finds {tmp_path / name / '__init__.py'} (owner: stranger)"
    )

    imported = python(tmp_path, "-c", "import rlenv")
    assert imported.returncode == 1
    assert f"ImportError: {message}" in imported.stderr

    command = "from _rlenv_scripts.main import main; main()"
    done = python(tmp_path, "-c", command, *commands)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"Error: {message}")
    assert "pip uninstall stranger" in line


def test_a_foreign_package_without_a_distribution_is_to_be_renamed(foreign):
    with pytest.raises(ImportError, match=r"\(not an installed package\); rename it"):
        check_neighbours("rlenv_test_foreign")


def test_the_distribution_has_one_name():
    assert DISTRIBUTION == _OURS == "rlenv-lm", "on PyPI, `rlenv` is somebody else's"
