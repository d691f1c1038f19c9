"""What contributors are told is true: files, targets and options exist."""

import functools
import os
import re
from pathlib import Path

import yaml
from _rlenv_scripts.training.command import train

from rlenv.version import __version__

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FOLDERS = ("agents", "rlenv", "verifiers", "scripts", "labs", "benchmarks", "examples", "tests", "docs")


@functools.cache
def below(folder):
    """Return all paths in a folder, each with a slash before it."""
    return [
        f"/{os.path.relpath(parent, folder)}/{name}"
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]


def test_every_file_that_the_page_names_exists():
    """A bare name is a file in a folder that the same line names, or in one below or above it."""
    for line in PAGE.splitlines():
        named = re.findall(r"`([\w./-]+(?:\.(?:py|md|txt|cfg|json)|/))`", line)
        places = [path for path in map(ROOT.joinpath, named) if path.exists()]
        near = {folder for path in places for folder in (path, *list(path.parents)[:2]) if folder.is_dir()}
        if ROOT.parent in near:  # the line names a file or folder of the root
            near |= set(map(ROOT.joinpath, FOLDERS))
        for name in named:
            found = (ROOT / name).exists() or any(
                path.endswith(f"/{name.rstrip('/')}") for folder in near - {ROOT, ROOT.parent} for path in below(folder)
            )
            assert found, f"{name} in {line!r}"


def test_every_target_that_the_page_names_is_in_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]+)", PAGE)) <= targets
    makers = re.findall(r"python (docs/make_\w+\.py)", PAGE + MAKEFILE)
    assert makers and all((ROOT / maker).is_file() for maker in makers)


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_security_says_about_options_is_what_the_commands_take():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    flags = {flag for option in train.params for flag in option.opts}
    assert set(re.findall(r"`?(--[a-z][a-z-]+)", page)) <= flags
