"""Every code block of README.md, the guides and docs/**/*.md runs, or could (see support/pages.py); links resolve."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from pages import DIRECTIVE, ROOT, blocks, check_rlenv, commands, run_page

from agents import AGENTS
from verifiers.plugins import registry

GUIDES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")]
FILES = [*GUIDES, *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in FILES}
RUN = [name for name, text in PAGES.items() if any(block.runs(slow=True) for block in blocks(text))]
REAL = {"docs/tutorials/teach-a-real-model.md"}  # as it is printed, it needs SmolLM2: tests/real/test_real_policy.py
SMALLER = [n for n in RUN if any({"slow", "in tests"} & set(block.directives) for block in blocks(PAGES[n]))]
LONG = {  # more than half a second each; their commands and their Python are checked all the same
    "docs/environments.md",
    "docs/stable-baselines3.md",
    "docs/tutorials/a-tool.md",
    "docs/tutorials/from-reinforce-to-grpo.md",
    "docs/tutorials/reading-the-curves.md",
    "docs/tutorials/teach-a-real-model.md",
    "docs/tutorials/your-own-algorithm.md",
    "docs/tutorials/your-own-model-and-data.md",
    "docs/writing-verifiers.md",
}


@pytest.fixture
def page_folder(monkeypatch, tmp_path):
    """A folder of its own, and registries that forget what a page adds: other tests list all there are."""
    monkeypatch.setattr("verifiers.plugins.registry._REGISTRY", dict(registry._REGISTRY))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a session of Python
    known = dict(AGENTS)
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):  # thousands of modules: no Path of each
            del sys.modules[name]
    for name in set(AGENTS) - set(known):
        del AGENTS[name]


@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in RUN])
def test_the_blocks_of_the_page_run(name):
    assert run_page(PAGES[name], name, slow=False) or "slow: " in PAGES[name]


@pytest.mark.slow
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("name", [name for name in SMALLER if name not in REAL])
def test_the_page_runs_as_it_is_printed(name):
    assert run_page(PAGES[name], name, slow=True)


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_the_page_could_run_and_its_comments_are_known(name):
    targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    extras = re.findall(r"^([\w-]+) =$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    for block in blocks(PAGES[name]):
        if block.language == "python":
            ast.parse(block.text)
        for words in commands(block):
            program, line = Path(words[0]).name, shlex.join(words)
            named = re.findall(r"\[([\w,-]+)\]", line) if program == "pip" else []
            assert set(",".join(named).split(",")) <= {"", *extras}, line
            assert program != "make" or {*words[1:]} <= {*targets}, line
            assert not (program == "python" and words[1].count("/")) or (ROOT / words[1]).exists(), line
            if program == "rlenv" or "rlenv" in words[1:]:
                check_rlenv(words[words.index("rlenv" if "rlenv" in words else words[0]) + 1 :])
    near = re.findall(r"^ *<!-- (?:not run|slow|in test|file|run|output).*", PAGES[name], re.MULTILINE)
    assert all(map(DIRECTIVE.fullmatch, near))
    assert len(near) == sum(len(block.directives) for block in blocks(PAGES[name])), "each stands over a block"


def test_every_link_leads_to_a_file():
    for page in FILES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_the_cells_of_the_notebook_run_with_fewer_updates(monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("RLENV_TUTORIAL_UPDATES", "2")
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (ROOT / "docs" / "tutorials" / "first-run.ipynb").read_text(encoding="utf-8")
    scope = {"__name__": "notebook"}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
    assert len(scope["history"]) == 2
    assert capsys.readouterr().out.count("\nw>  ") == 2  # samples before and after
