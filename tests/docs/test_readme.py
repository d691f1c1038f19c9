"""The README stays short, and what it says of links, agents and its verifier is true; test_pages.py runs its blocks."""

import json
import re
from pathlib import Path

import pytest

from verifiers.plugins import registry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(autouse=True)
def registry_of_its_own(monkeypatch):
    """Forget the verifiers that the pages register: other tests list all there are."""
    monkeypatch.setattr("verifiers.plugins.registry._REGISTRY", dict(registry._REGISTRY))


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 130


def test_the_figures_below_the_picture_are_those_of_its_run():
    run = json.loads((ROOT / "docs" / "picture.json").read_text(encoding="utf-8"))
    assert f"{100 * run['before']:.0f} to {100 * run['after']:.0f} % right" in README


def test_every_link_of_the_pages_leads_to_a_file():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
        missing = [link for link in links if not (page.parent / link).exists()]
        assert not missing, f"{page.name}: {missing}"


def test_the_table_of_algorithms_begins_with_the_first_agents_and_says_where_the_others_are():
    from agents import AGENTS

    rows = re.findall(r"^\| `(\w+)` \|", README.split("## A verifier")[0], re.MULTILINE)
    assert rows == [cls.__name__ for cls in AGENTS.values()][: len(rows)] and len(rows) >= 11
    assert "[More agents](docs/algorithms.md)" in README


def test_the_readmes_verifier_can_be_used():
    import gymnasium as gym

    import rlenv  # noqa: F401

    (source,) = [block for block in BLOCKS if "register_verifier" in block]
    exec(compile(source, "README.md", "exec"), {"__name__": "page"})
    env = gym.make("TextGen-v0", verifier="shout")
    _, info = env.reset(seed=0)
    tokenizer = env.unwrapped.task.tokenizer
    for token in [*tokenizer(info["prompt"][:3].upper())["input_ids"], tokenizer.eos_token_id]:
        _, reward, terminated, _, info = env.step(token)
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)
