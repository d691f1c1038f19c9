"""The citation and the log of changes are of this version; what guides, workflows and the table of bugs name exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from rlenv.version import __version__

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMESPACES = "sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0"


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["AGENTS.md", "CONTRIBUTING.md"])
def test_the_paths_in_a_guide_exist(page):
    paths = re.findall(r"`([a-z]+/[a-z_/.-]+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(paths) > 5 and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([\w-]+):", makefile, re.MULTILINE)
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    run = {step["run"] for step in steps if "run" in step} - {NAMESPACES}
    assert run and run <= {f"make {target}" for target in targets}
    for step in steps:
        assert "run" in step or re.fullmatch(r"[\w/-]+@(release/)?v\d+", step["uses"]), "a pinned major version"
    for job in jobs:
        if "strategy" in job:
            pythons = " ".join(job["strategy"]["matrix"]["python"])
            assert f"PYTHONS ?= {pythons}\n" in makefile


def test_what_a_planted_bug_replaces_is_there_once():
    rows = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))["bug"]
    edits = [edit for row in rows for edit in (row, *row.get("also", ())) if "find" in edit]
    texts = {edit["file"]: (ROOT / edit["file"]).read_text(encoding="utf-8") for edit in edits}
    assert edits and [edit["find"] for edit in edits if texts[edit["file"]].count(edit["find"]) != 1] == []
