"""The citation and the log of changes are of this version."""

from pathlib import Path

import yaml

from rlenv.version import __version__

ROOT = Path(__file__).parent.parent


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
