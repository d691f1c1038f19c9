"""Every code block of README.md and docs/**/*.md runs, or could: see support/pages.py."""

import ast
import re
import sys

import click
import pytest
from pages import DIRECTIVE, PYTHON, ROOT, blocks, check_command, commands, pages, run_page

from agents import AGENTS
from verifiers.plugins import registry

PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages()}
RUN = [name for name, text in PAGES.items() if any(block.runs(slow=True) for block in blocks(text))]
REAL = {"docs/tutorials/teach-a-real-model.md"}  # as it is printed, it needs SmolLM2: tests/real/test_real_tutorial.py
SLOW = [
    name
    for name in RUN
    if any({"slow", "in tests"} & set(block.directives) for block in blocks(PAGES[name])) and name not in REAL
]
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
    run_page(PAGES[name], name, slow=False)


@pytest.mark.slow
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("name", SLOW)
def test_the_page_runs_as_it_is_printed(name):
    assert run_page(PAGES[name], name, slow=True)


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_could_run(name):
    for block in blocks(PAGES[name]):
        if block.language in PYTHON:
            ast.parse(block.text)
        for words in commands(block):
            try:
                check_command(words)
            except (click.ClickException, AssertionError) as error:
                pytest.fail(f"{name}, line {block.line}: {' '.join(words)}: {error}")


@pytest.mark.parametrize("name", PAGES)
def test_the_comments_over_the_blocks_are_known(name):
    lines = PAGES[name].splitlines()
    near = [line.strip() for line in lines if re.match(r"\s*<!-- (not run|slow|in test|file|run|output)", line)]
    assert not [line for line in near if not DIRECTIVE.fullmatch(line)]
    assert len(near) == sum(len(block.directives) for block in blocks(PAGES[name]))  # each stands over a block
    reasons = [block.directives.get(kind) for block in blocks(PAGES[name]) for kind in ("not run", "slow")]
    assert all(reason is None or len(reason) > 10 for reason in reasons), "say why"


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_every_link_leads_to_a_file(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
    assert not [link for link in links if not (page.parent / link).exists()]
