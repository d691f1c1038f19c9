"""A package of somebody else in the place of ours: it is named with its owner and the way out, and not imported."""

import importlib
import os
import re
import subprocess
import sys

import pytest
from _rlenv_scripts import DISTRIBUTION

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


def test_a_foreign_neighbour_is_named_with_the_way_out(tmp_path):
    """From Python and from the command line."""
    files = {
        "verifiers/__init__.py": "class Runner: ...\n",
        "stranger-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n",
        "stranger-1.0.dist-info/RECORD": "verifiers/__init__.py,,\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    file = tmp_path / "verifiers/__init__.py"
    message = f"rlenv needs its own package 'verifiers', but Python finds {file} (owner: stranger)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for code, start in (("import rlenv", "ImportError"), ("from _rlenv_scripts.main import main; main()", "Error")):
        command = [sys.executable, "-c", code, "train"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        line = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and line.startswith(f"{start}: {message}")
        assert "pip uninstall stranger" in line and (start == "ImportError" or done.stderr.count("\n") == 1)


def test_the_distribution_has_one_name():
    assert DISTRIBUTION == _OURS == "rlenv-lm", "on PyPI, `rlenv` is somebody else's"
