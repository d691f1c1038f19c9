"""Every recipe in configs/ is a configuration of rlenv train whose agent can be built, and has its row in the docs."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
from _rlenv_scripts import session
from _rlenv_scripts.train import train

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_builds_its_agent(path):
    if "reasoning_gym" in path.read_text(encoding="utf-8"):
        pytest.importorskip("reasoning_gym")
    with train.make_context("train", ["--config", str(path), "--device", "cpu"]) as context:
        given = context.params
        agent = session.build_agent(given["agent"], given)
        try:
            demonstrations = session.demonstrations(agent, {**given, "sft_examples": 8, "sft_batch_size": 8})
            prompt = agent.env.reset(seed=0)[0]["length"]
        finally:
            agent.env.close()
    assert given["sft_steps"] > 0 and given["episodes"] > 0
    assert demonstrations.mask.any(1).all() and int(prompt.min()) > 0


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_its_command_and_its_figures(path):
    head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith("#"))
    assert f"rlenv train --config configs/{path.name}" in head
    assert re.search(r"Success .* seed", head), "a figure with its seeds"
    assert f"configs/{path.name}" in PAGE


def test_the_page_names_no_other_recipe():
    assert set(re.findall(r"configs/([\w-]+\.yaml)", PAGE)) == {path.name for path in RECIPES}
    assert len(RECIPES) == 5


def test_the_table_is_that_of_the_results():
    spec = importlib.util.spec_from_file_location("make_recipes", ROOT / "docs" / "make_recipes.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.page(PAGE) == PAGE
    results = json.loads((ROOT / "docs" / "recipes.json").read_text(encoding="utf-8"))
    assert set(results) == {path.stem for path in RECIPES} and all(results.values())
