"""What contributors are told is true: files exist, forms and metadata are valid, hooks call what `make lint` calls."""

import functools
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from _rlenv_scripts.main import COMMANDS
from hypothesis import given
from hypothesis import strategies as st

from rlenv.version import __version__

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FOLDERS = ("agents", "rlenv", "verifiers", "scripts", "labs", "benchmarks", "examples", "tests", "docs")


def read(*parts):
    return yaml.safe_load(ROOT.joinpath(*parts).read_text(encoding="utf-8"))


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


def test_every_package_of_the_house_is_on_the_map():
    block = PAGE.partition("## The house")[2].partition("```")[0]
    assert set(FOLDERS) - {"docs"} <= set(re.findall(r"^    (\w+)/", block, re.MULTILINE))


def test_every_target_that_the_page_names_is_in_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]+)", PAGE)) <= targets
    makers = re.findall(r"python (docs/make_\w+\.py)", PAGE + MAKEFILE)
    assert makers and all((ROOT / maker).is_file() for maker in makers)


@pytest.mark.parametrize("path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem)
def test_a_form_is_one_that_can_be_filled_in(path):
    form = read(path)
    assert form["name"] and form["description"] and form["labels"]
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_form_for_bugs_asks_for_what_a_command_prints():
    fields = {field["id"]: field for field in read(".github", "ISSUE_TEMPLATE", "bug.yml")["body"]}
    assert "rlenv info" in fields["info"]["attributes"]["label"] and "info" in COMMANDS
    assert fields["info"]["validations"]["required"] is True
    assert {path.stem for path in FORMS} == {"bug", "feature", "question", "config"}


def test_the_citation_is_valid_and_of_this_version():
    cited = read("CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license", "version"} <= cited.keys()
    assert str(cited["version"]) == __version__
    assert all("name" in author or "family-names" in author for author in cited["authors"])
    assert cited["type"] in ("software", "dataset")


def test_hooks_are_local_and_call_what_make_lint_calls():
    [repository] = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local", "nothing is downloaded"
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *arguments = shlex.split(hook["entry"])
        assert " ".join([program, *arguments[:1]]) in recipe
    assert len(repository["hooks"]) == recipe.count(".venv/bin/")


def test_what_security_says_about_options_is_what_the_commands_take():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    from _rlenv_scripts.training.command import train

    flags = {flag for option in train.params for flag in option.opts}
    assert set(re.findall(r"`?(--[a-z][a-z-]+)", page)) <= flags


def test_property_tests_draw_the_same_examples_unless_asked_for_random_ones(request):
    def examples():
        seen = []

        @given(st.integers())
        def look(number):
            seen.append(number)

        look()
        return seen

    at_random = request.config.getoption("--hypothesis-profile") == "random"
    assert (examples() == examples()) is not at_random
