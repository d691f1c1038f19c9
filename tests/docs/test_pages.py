"""Every code block of README.md, the guides and docs/**/*.md runs, or could (see support/pages.py); links resolve.

The site builds without a warning and loads nothing from elsewhere; generated pages are those of the code.
"""

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from loaded import loaded
from pages import DIRECTIVE, MODEL, ROOT, blocks, check_rlenv, commands, run_command, run_page
from tiny_models import write_chat_model

from rlenv import agents, verifiers
from rlenv.agents import AGENTS
from rlenv.verifiers.plugins import registry

DOCS = ROOT / "docs"
GUIDES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")]
FILES = [*GUIDES, *sorted(DOCS.rglob("*.md"))]
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


def test_every_link_leads_to_a_file_and_every_test_that_is_named_exists():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for page in FILES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        named = [name for name in re.findall(r"tests/[\w/]*test_\w+\.py", text) if not (ROOT / name).exists()]
        named += [name for name in re.findall(r"`(test_\w{25,})`", text) if f"def {name}(" not in tests]
        assert [link for link in links if not (page.parent / link).exists()] == [], page
        assert named == [], page


def test_a_block_that_a_notebook_does_not_run_keeps_its_indentation():
    """What notebooks run is compared with those in docs/tutorials, as the other generated pages."""
    page = "# A page\n\n```python\na = 1\n```\n\n    rlenv doctor RUN\n"
    assert json.loads(MAKER.notebook("a-tool", page))["cells"][-1]["source"] == ["    rlenv doctor RUN"]


# The site, and the pages that commands write.

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
