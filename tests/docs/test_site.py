"""The site builds without a warning and loads nothing from elsewhere; its generated pages are those of the code."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from loaded import loaded

from rlenv import agents, verifiers

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAKERS = [f"make_{page}" for page in ("api", "hooks", "notebooks", "performance", "settings", "verifiers", "walk")]
FIGURE = re.compile(r"-?\d+\.\d+")
URL = r"""["']?((?:https?:)?//[^"'\s>)]+)"""
FROM_ELSEWHERE = rf"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|srcset|href)={URL}|(?:url\(|@import)\s*{URL}"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra 'docs'")
def test_the_site(tmp_path):
    """A broken link, a page without a place in the navigation or an unknown object is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".css")]
    assert [path for path in files if re.search(FROM_ELSEWHERE, path.read_text(encoding="utf-8"))] == []


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).as_posix() not in listed] == []


def test_the_reference_names_every_public_object():
    module = loaded("docs/make_api.py")
    shown = {name.rpartition(".")[2] for text in module.pages().values() for name in module.NAMED.findall(text)}
    missing = {*agents.__all__, *verifiers._OWN} - shown - {"AGENTS"}  # a dictionary, in the text of its page
    assert not missing, f"add ::: rlenv.agents.NAME to a page of docs/api/, then python docs/make_api.py: {missing}"


@pytest.mark.parametrize("command", MAKERS)
def test_a_page_is_what_its_command_writes(command):
    module = loaded(f"docs/{command}.py")
    for path, text in module.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/{command}.py"


@pytest.mark.usefixtures("true_sizes")
def test_the_page_of_the_models_is_what_its_command_writes():
    text = (DOCS / "appendix" / "models.md").read_text(encoding="utf-8")
    assert text == loaded("docs/make_models.py").page(), "run python docs/make_models.py"


@pytest.mark.slow
def test_the_page_of_gradients_is_what_its_command_writes_but_for_the_last_digit():
    module = loaded("docs/make_gradients.py")
    kept, text = module.PAGE.read_text(encoding="utf-8"), module.page()
    assert FIGURE.sub("#", kept) == FIGURE.sub("#", text)
    assert [*map(float, FIGURE.findall(kept))] == pytest.approx([*map(float, FIGURE.findall(text))], abs=2e-4)
