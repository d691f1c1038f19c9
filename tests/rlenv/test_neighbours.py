"""A package of somebody else in the place of ours: it is named with its owner and the way out, and not imported."""

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


def test_a_foreign_package_is_named_by_its_file_without_importing_it(tmp_path, monkeypatch):
    """It is first on the path, which has no other folder of installed packages."""
    file = tmp_path / "rlenv_test_foreign/__init__.py"
    file.parent.mkdir()
    file.write_text("raise RuntimeError('never import a stranger to look at it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "-packages" not in place])
    importlib.invalidate_caches()
    message = f"needs its own package 'rlenv_test_foreign', but Python finds {re.escape(str(file))}"
    with pytest.raises(ImportError, match=rf"{message} \(not an installed package\); rename it"):
        check_neighbours("verifiers", "rlenv_test_foreign")
    assert "rlenv_test_foreign" not in sys.modules


@pytest.mark.parametrize(
    ("name", "ours", "command"),
    [
        pytest.param("agents", False, "lab", id="agents is shadowed", marks=pytest.mark.slow),
        pytest.param("verifiers", True, "train", id="verifiers was overwritten"),
    ],
)
def test_a_foreign_neighbour_is_named_with_the_way_out(tmp_path, name, ours, command):
    """From Python and from the command line; if `ours`, the stranger's files lie over those of ours."""
    package, distribution = tmp_path / name, tmp_path / "stranger-1.0.dist-info"
    if ours:
        shutil.copytree(Path(rlenv.__file__).parents[1] / name, package, ignore=shutil.ignore_patterns("__pycache__"))
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("class Runner: ...\n")
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (distribution / "RECORD").write_text(f"{name}/__init__.py,,\n")
    message = f"rlenv needs its own package {name!r}, but Python finds {package / '__init__.py'} (owner: stranger)"

    def python(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    imported = python("-c", "import rlenv")
    assert imported.returncode == 1 and f"ImportError: {message}" in imported.stderr
    done = python("-c", "from _rlenv_scripts.main import main; main()", command)
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith(f"Error: {message}") and "pip uninstall stranger" in line


def test_the_distribution_has_one_name():
    assert DISTRIBUTION == _OURS == "rlenv-lm", "on PyPI, `rlenv` is somebody else's"
