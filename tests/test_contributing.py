"""The citation and the log of changes are of this version; what guides and the table of bugs name exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from rlenv.version import __version__

ROOT = Path(__file__).parent.parent


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["AGENTS.md", "CONTRIBUTING.md"])
def test_the_paths_in_a_guide_exist(page):
    paths = re.findall(r"`([a-z]+/[a-z_/.-]+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(paths) > 5 and [path for path in paths if not (ROOT / path).exists()] == []


def test_what_a_planted_bug_replaces_is_there_once():
    rows = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))["bug"]
    edits = [edit for row in rows for edit in (row, *row.get("also", ())) if "find" in edit]
    texts = {edit["file"]: (ROOT / edit["file"]).read_text(encoding="utf-8") for edit in edits}
    assert edits and [edit["find"] for edit in edits if texts[edit["file"]].count(edit["find"]) != 1] == []
