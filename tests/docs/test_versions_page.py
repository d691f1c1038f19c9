import configparser
import re
from pathlib import Path

import pytest

from agents.checkpoints.checkpoint import FORMAT
from rlenv.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
SETUP = configparser.ConfigParser(interpolation=None)
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([\w-]+) \| (\d[^|]*\| \d[^|]*) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", ["torch", "transformers", "gymnasium", "stable-baselines3"])
def test_the_page_has_the_bounds_of_setup_cfg_and_the_versions_of_the_constraints(name):
    required = re.search(rf"^{name}>=([\d.]+)(?:,<(\d+))?$", SETUP["options"]["install_requires"], re.MULTILINE)
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("_", "-")
    [tested] = re.findall(rf"^{name}==(\S+)$", pinned, re.MULTILINE)
    bounds = required[1] + (f", below {required[2]}" if required[2] else "")
    assert ROWS[name] == f"{bounds} | {tested}"


def test_the_page_has_the_versions_of_python():
    listed = re.findall(r"Python :: (3\.\d+)", SETUP["metadata"]["classifiers"])
    assert ROWS["Python"] == f"{SETUP['options']['python_requires'].removeprefix('>=')} | {', '.join(listed)}"


def test_the_page_names_the_format_of_checkpoints_and_the_version():
    assert f"writes format {FORMAT} and reads 2 and {FORMAT}" in PAGE
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
