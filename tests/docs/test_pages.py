"""Every code block of README.md, the guides and docs/**/*.md runs, or could (see support/pages.py); links resolve."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from loaded import loaded
from pages import DIRECTIVE, MODEL, ROOT, blocks, check_rlenv, commands, run_command, run_page
from tiny_models import write_chat_model

from rlenv.agents import AGENTS
from rlenv.verifiers.plugins import registry

GUIDES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")]
FILES = [*GUIDES, *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in FILES}
EXTRAS = set(re.findall(r"^([\w-]+) =$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE))
MAKER = loaded("docs/make_notebooks.py")
RUN = [name for name, text in PAGES.items() if any(block.runs(slow=True) for block in blocks(text))]
REAL = {"docs/tutorials/teach-a-real-model.md"}  # as it is printed, it needs SmolLM2: tests/real/test_smollm2.py
SMALLER = [n for n in RUN if any({"slow", "in tests"} & set(block.directives) for block in blocks(PAGES[n]))]
LONG = {  # more than half a second each; their commands and their Python are checked all the same
    "docs/bring-your-agent.md",
    "docs/environments.md",
    "docs/stable-baselines3.md",
    "docs/tutorials/a-tool.md",
    "docs/tutorials/a-whole-job-in-python.md",
    "docs/tutorials/from-reinforce-to-grpo.md",
    "docs/tutorials/reading-the-curves.md",
    "docs/tutorials/teach-a-real-model.md",
    "docs/tutorials/your-own-algorithm.md",
    "docs/tutorials/your-own-model-and-data.md",
}


@pytest.fixture
def page_folder(monkeypatch, tmp_path):
    """A folder of its own, and registries that forget what a page adds: other tests list all there are."""
    monkeypatch.setattr("rlenv.verifiers.plugins.registry._REGISTRY", dict(registry._REGISTRY))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a session of Python
    known = [(names, set(names)) for names in (AGENTS, gym.registry)]
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):  # thousands of modules: no Path of each
            del sys.modules[name]
    for names, before in known:
        for name in set(names) - before:
            del names[name]


@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in RUN])
def test_the_blocks_of_the_page_run(name):
    assert run_page(PAGES[name], name, slow=False) or "slow: " in PAGES[name]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("name", [name for name in SMALLER if name not in REAL])
def test_the_page_runs_as_it_is_printed(name):
    assert run_page(PAGES[name], name, slow=True)


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_the_page_could_run_and_its_comments_are_known(name):
    targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for block in blocks(PAGES[name]):
        smaller = block.source(slow=False)
        if block.language == "python":
            ast.parse(smaller)
        for words in commands(block):
            program, line = Path(words[0]).name, shlex.join(words)
            named = re.findall(r"\[([\w,-]+)\]", line) if program == "pip" else []
            assert set(",".join(named).split(",")) <= {"", *EXTRAS}, line
            assert program != "make" or {word for word in words[1:] if "=" not in word} <= {*targets}, line
            assert not (program == "python" and words[1].count("/")) or (ROOT / words[1]).exists(), line
            if program == "rlenv" or "rlenv" in words[1:]:
                check_rlenv(words[words.index("rlenv" if "rlenv" in words else words[0]) + 1 :])
    near = re.findall(r"^ *<!-- (?:not run|slow|in test|warns|file|run|output).*", PAGES[name], re.MULTILINE)
    assert all(map(DIRECTIVE.fullmatch, near))
    assert len(near) == sum(len(block.directives) for block in blocks(PAGES[name])), "each stands over a block"


@pytest.mark.slow
@pytest.mark.usefixtures("page_folder")
def test_the_commands_of_the_readme_train_a_model_folder_on_a_file_with_a_reward_function():
    (block,) = [each for each in blocks(PAGES["README.md"]) if "--problems mine.jsonl" in each.text]
    write_chat_model(MODEL, context=256)
    Path("rewards.py").write_text("def f(completions, **columns):\n  return [len(each) / 8 for each in completions]\n")
    Path("mine.jsonl").write_text("".join(f'{{"prompt": "{n} + 1 =", "answer": "{n + 1}"}}\n' for n in range(40)))
    for words in commands(block._replace(text=block.text.replace("ID", str(MODEL)))):
        smaller = ["--episodes", "64", "--max-new-tokens", "4"] if "train" in words else []
        run_command(words + smaller, "README.md", 0)
    assert Path("my-model/config.json").is_file()


def test_every_link_leads_to_a_file():
    for page in FILES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_a_block_that_a_notebook_does_not_run_keeps_its_indentation():
    """What notebooks run, test_site.py compares with those in docs/tutorials."""
    page = "# A page\n\n```python\na = 1\n```\n\n    rlenv doctor RUN\n"
    assert json.loads(MAKER.notebook("a-tool", page))["cells"][-1]["source"] == ["    rlenv doctor RUN"]
