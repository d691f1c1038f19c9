"""The site builds without a warning and loads nothing from elsewhere; its generated pages are those of the code."""

import importlib.util
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest
from loaded import loaded

import agents
import verifiers

ROOT = Path(__file__).parents[2]
RESOURCE = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|srcset|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
FROM_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra 'docs'")
def test_the_site(tmp_path):
    """A broken link, a page without a place in the navigation or an unknown object is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    loads = {path: RESOURCE.findall(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    loads |= {path: FROM_STYLE.findall(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.css")}
    assert {path: urls for path, urls in loads.items() if urls} == {}


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in listed] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("*.md")), ids=lambda path: path.stem)
def test_the_objects_of_a_page_of_the_reference_exist(page):
    named = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert named or page.stem == "index"
    assert [name for name in named if pydoc.locate(name) is None] == []


@pytest.mark.parametrize("command", ["make_api", "make_settings", "make_performance", "make_verifiers", "make_walk"])
def test_a_page_is_what_its_command_writes(command):
    module = loaded(f"docs/{command}.py")
    pages = {ROOT / "README.md": module.page()} if command == "make_performance" else module.pages()
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/{command}.py"


def test_the_reference_has_every_public_name():
    module = loaded("docs/make_api.py")
    shown = {name.rpartition(".")[2] for text in module.pages().values() for name in module.NAMED.findall(text)}
    assert {*agents.__all__, *verifiers._OWN} - shown == {"AGENTS"}  # a dictionary, in the text of its page
