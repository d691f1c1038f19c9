"""The site builds without a warning or a broken link and loads nothing from elsewhere; the papers are right."""

import importlib.util
import inspect
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
from agents import AGENTS

ROOT = Path(__file__).parents[2]
PAPERS = "\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("papers.md", "papers-later.md"))
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAPERS, re.DOTALL | re.MULTILINE))
RESOURCE = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|srcset|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
FROM_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
SIGNS = {
    r"\sum": "Σ", r"\pi": "π", r"\gamma": "γ", r"\lambda": "λ", r"\delta": "δ", r"\alpha": "α", r"\beta": "β",
    r"\varepsilon": "ε", r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ", r"\mu": "μ", r"\ge": "≥", r"\le ": "≤",
    r"\ne": "≠", r"\ni": "∋", r"\in ": "in", "∈": "in", r"\pm": "±",
    "Â": "A", "²": "^2", "1e-": "10^-",
}  # fmt: skip
SHOWN = ["papers.md", "tutorials/first-run.md", "readme.md", "settings-agents.md", "api/agents.md", "api/algorithms.md"]
SHOWN += ["source/tests/agents/algorithms/test_exact_family.py.md"]
BUILD = """
import re
import sys

from mkdocs.commands import build
from mkdocs.config import load_config

config = load_config("mkdocs.yml", site_dir=sys.argv[1], strict=True)
config.mdx_configs["pymdownx.highlight"] = {"use_pygments": False}  # colors take a third of the time
shown, write = sys.argv[2:], build._build_page


def without_most_objects(markdown, page, **rest):
    if page.file.src_uri.startswith("api/"):
        markdown = re.sub(r"\\[(`\\w+`)\\]\\(#[\\w.]+\\)", r"\\1", markdown)  # links to them
        return re.sub(r"^::: (?!agents\\.(RLOO|DAPO)$).*\\n(\\n|    .*\\n)*", "", markdown, flags=re.MULTILINE)
    if page.file.src_uri.startswith("source/") and page.file.src_uri not in shown:
        return "# A file"


if shown:
    config.plugins.events["page_markdown"].append(without_most_objects)
    build._build_page = lambda page, *rest, **more: page.file.src_uri in shown and write(page, *rest, **more)
build.build(config)
"""


@pytest.mark.slow  # a few pages of it: test_some_pages_of_the_site
def test_the_site(tmp_path):
    """One test, so that the site is built once however the tests are spread over processes."""
    build(tmp_path)
    check_that_every_page_is_there(tmp_path)
    check_what_pages_show(tmp_path)


def test_some_pages_of_the_site(tmp_path):
    """Every page is read, with its links and its place in the navigation; a few are shown, with one class."""
    build(tmp_path, *SHOWN)
    assert [page for page in SHOWN if not (tmp_path / page).with_suffix(".html").is_file()] == []
    check_what_pages_show(tmp_path)


def build(site, *shown):
    """Build these pages of the site, or all; a broken link, a page without a place or an unknown object is an error."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("the extra 'docs' is not installed")
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-c", BUILD, str(site), *shown]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def check_what_pages_show(site):
    assert "learning_rate" in (site / "readme.html").read_text(encoding="utf-8")
    check_that_links_into_the_repository_lead_to_pages_that_show_the_files(site)
    check_that_docstrings_are_there(site)
    check_that_equations_are_set(site)
    check_that_the_notebook_shows_its_outputs(site)
    check_that_nothing_is_loaded_from_another_host(site)
    check_that_the_search_works_from_disk(site)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("*.md")), ids=lambda path: path.stem)
def test_the_objects_of_a_page_of_the_reference_exist(page):
    named = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert named or page.stem == "index"
    assert [name for name in named if pydoc.locate(name) is None] == []


def test_the_reference_has_every_public_name_and_its_tables_are_those_of_the_docstrings():
    module, shown = loaded("docs/make_api.py"), set()
    for path, text in module.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/make_api.py"
        shown |= {name.rpartition(".")[2] for name in module.NAMED.findall(text)}
    assert {*agents.__all__, *verifiers._OWN} - shown == {"AGENTS"}  # a dictionary, in the text of its page


def check_that_every_page_is_there(site):
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (site / page).is_file()] == []


def check_that_links_into_the_repository_lead_to_pages_that_show_the_files(site):
    text = (site / "papers.html").read_text(encoding="utf-8")
    assert 'href="source/tests/agents/algorithms/test_exact_family.py.html"' in text
    shown = site / "source" / "tests" / "agents" / "algorithms" / "test_exact_family.py.html"
    assert "test_rloo_is_exact" in shown.read_text(encoding="utf-8")


def check_that_docstrings_are_there(site):
    text = re.sub(r"<[^>]+>", "", (site / "api" / "algorithms.html").read_text(encoding="utf-8"))
    assert "A_i = R_i - 1/(K-1) Σ_{j≠i} R_j" in text
    assert re.search(r"mask_truncated\s+\(\s*bool\s*\)\s+–\s+Leave episodes[^–]*Default: False", text)
    assert "Keyword Args" not in text  # a class without settings of its own has no section for them
    text = re.sub(r"<[^>]+>", "", (site / "settings-agents.html").read_text(encoding="utf-8"))
    assert "Which standard deviation the advantages are divided by" in text


def check_that_equations_are_set(site):
    assert (site / "papers.html").read_text(encoding="utf-8").count("<math ") > 10
    pages = [path for path in site.rglob("*.html") if "source" not in path.parts]
    left = {path: re.sub(r"<code.*?</code>", "", path.read_text(encoding="utf-8")) for path in pages}
    assert [path for path, text in left.items() if re.search(r"arithmatex|\$\$|\\frac", text)] == []


def check_that_the_notebook_shows_its_outputs(site):
    text = (site / "tutorials" / "first-run.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in text and "steps that the pole stands" in re.sub(r"<[^>]+>", "", text)


def check_that_nothing_is_loaded_from_another_host(site):
    found = {}
    for path in site.rglob("*.html"):
        found[str(path)] = RESOURCE.findall(path.read_text(encoding="utf-8"))
    for path in site.rglob("*.css"):
        found[str(path)] = FROM_STYLE.findall(path.read_text(encoding="utf-8"))
    assert {name: urls for name, urls in found.items() if urls} == {}


def check_that_the_search_works_from_disk(site):
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index")
    assert '<script src="../iframe-worker.js">' in (site / "api" / "agents.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", ['<script src="https://a.b/c.js">', "<link rel=x href=//a.b/c.css>", "<img src='http://a'"]
)
def test_a_resource_of_another_host_is_seen(text):
    assert RESOURCE.search(text)
    assert not RESOURCE.search('<a href="https://a.b">') and not RESOURCE.search('<script src="assets/a.js">')
    assert FROM_STYLE.search("url(https://a.b/c.woff)") and FROM_STYLE.search('@import "//a.b/c.css"')


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_a_page_has_at_most_1500_words(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    words = [word for word in prose.split() if re.search(r"\w", word)]
    assert len(words) <= 1500, f"{path.name}: make it two pages"


def test_every_agent_has_its_paper():
    assert list(SECTIONS) == [cls.__name__ for cls in AGENTS.values()]


def symbols(equation):
    """Return what an equation says, in LaTeX or in Unicode, without the signs that only lay it out."""
    for latex, sign in SIGNS.items():
        equation = equation.replace(latex, sign)
    equation = re.sub(r"\\(frac|text|operatorname|left|right|qquad|hat)", "", equation)
    return re.sub(r"[\s{}()/;,\\]", "", equation)


@pytest.mark.parametrize("cls", AGENTS.values(), ids=list(AGENTS))
def test_the_papers_page_shows_the_equation_the_file_and_tests_that_exist(cls):
    section = SECTIONS[cls.__name__]
    [equations] = re.findall(r"^\$\$\n(.*?)^\$\$", section, re.DOTALL | re.MULTILINE)
    in_code = {symbols(line) for line in inspect.getdoc(cls).splitlines()}
    lines = re.sub(r"\\(begin|end)\{gathered\}", "", equations).replace("\\\\\n", "\n").strip().splitlines()
    assert lines and [line for line in lines if symbols(line) not in in_code] == []
    assert f"File: `{Path(inspect.getfile(cls)).relative_to(ROOT.resolve())}`" in section.replace("\n", " ")
    places = [(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\((\.\./tests/[^)]+)\)", section)]
    defined = "".join(place.read_text(encoding="utf-8") for place in places)
    tests = re.findall(r"`(test_\w+)`", section)
    assert tests and all(f"def {test}(" in defined for test in tests)
    assert re.search(r"\]\(https?://", section)
