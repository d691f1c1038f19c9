import importlib
import os
import re
import subprocess
import sys

import pytest

from rlenv._neighbours import check_neighbours


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A package of somebody else, first on the path."""
    package = tmp_path / "rlenv_test_foreign"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('never import a stranger to look at it')\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return package / "__init__.py"


def test_our_own_packages_pass():
    check_neighbours("agents", "verifiers")


def test_a_foreign_package_is_named_by_its_file_without_importing_it(foreign):
    message = f"needs its own package 'rlenv_test_foreign', but Python finds {re.escape(str(foreign))}"
    with pytest.raises(ImportError, match=message):
        check_neighbours("verifiers", "rlenv_test_foreign")
    assert "rlenv_test_foreign" not in sys.modules


def test_the_owner_of_a_foreign_package_is_named(foreign):
    distribution = foreign.parent.parent / "stranger-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (distribution / "top_level.txt").write_text("rlenv_test_foreign\n")
    with pytest.raises(ImportError, match=r"\(owner: stranger\); install rlenv into a clean virtual environment"):
        check_neighbours("rlenv_test_foreign")


def test_a_foreign_package_without_a_distribution_has_an_unknown_owner(foreign):
    with pytest.raises(ImportError, match="owner: an unknown owner"):
        check_neighbours("rlenv_test_foreign")


def test_a_folder_without_code_is_foreign_too(tmp_path, monkeypatch):
    (tmp_path / "rlenv_test_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="needs its own package 'rlenv_test_folder'"):
        check_neighbours("rlenv_test_folder")


def test_a_foreign_module_that_is_no_text_is_named(tmp_path, monkeypatch):
    binary = tmp_path / f"rlenv_test_binary{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    binary.write_bytes(b"\x7fELF\xff\xfe\x00\x80")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=f"Python finds {re.escape(str(binary))}"):
        check_neighbours("rlenv_test_binary")


def test_a_package_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(ImportError, match="needs its own package 'rlenv_test_missing', but Python finds none"):
        check_neighbours("rlenv_test_missing")


@pytest.mark.parametrize("name", ["agents", "verifiers"])
def test_importing_rlenv_beside_a_foreign_neighbour_names_its_file(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import rlenv"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert f"ImportError: rlenv needs its own package '{name}'" in done.stderr
    assert str(tmp_path / f"{name}.py") in done.stderr
