"""Every recipe in configs/ is a configuration of rlenv train whose agent can be built."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from _rlenv_scripts import session
from _rlenv_scripts.train import train
from loaded import loaded
from tiny_models import write_chat_model

ROOT = Path(__file__).parents[2]
CONTROL_PAGE = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
REAL = sorted((ROOT / "configs").glob("smollm2-*.yaml"))
CONTROL = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if "\nenv:" in path.read_text(encoding="utf-8")]
RECIPES = sorted(set((ROOT / "configs").glob("*.yaml")) - {*REAL, *CONTROL})


@contextmanager
def built(path, *options):
    """Yield the settings of a recipe, which says how it is run, and its agent."""
    assert f"rlenv train --config configs/{path.name}" in path.read_text(encoding="utf-8")
    with train.make_context("train", ["--config", str(path), "--device", "cpu", *options]) as context:
        agent = session.build_agent(context.params["agent"], context.params)
        try:
            yield context.params, agent
        finally:
            agent.env.close()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_builds_its_agent(path):
    if "reasoning_gym" in path.read_text(encoding="utf-8"):
        pytest.importorskip("reasoning_gym")
    with built(path) as (given, agent):
        demonstrations = session.demonstrations(agent, {**given, "sft_examples": 8, "sft_batch_size": 8})
        prompt = agent.env.reset(seed=0)[0]["length"]
    assert given["sft_steps"] > 0 and given["episodes"] > 0
    assert demonstrations.mask.any(1).all() and int(prompt.min()) > 0


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_a_job_of_the_real_model_builds_its_agent(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # its verifier is a file of examples/
    write_chat_model(tmp_path, context=512)
    options = ["--model", str(tmp_path), "--lora-rank", "2"]
    if "make_problems.py" in path.read_text(encoding="utf-8"):
        command = ["make_problems.py", str(tmp_path / "problems.jsonl"), "--steps", "1", "--count", "100"]
        monkeypatch.setattr(sys, "argv", command)
        loaded("examples/word_problems/make_problems.py").main()
        options += ["--problems", command[1]]
    with built(path, *options) as (given, agent):
        prompt = agent.env.reset(seed=0)[0]
        told = agent.env.unwrapped.task.tokenizer.decode(prompt["tokens"][0, : prompt["length"][0]].tolist())
    assert not given["sft_steps"] and given["eval_episodes"] >= 200 and "user" in told


@pytest.mark.parametrize("path", CONTROL, ids=lambda path: path.stem)
def test_a_control_recipe_builds_its_agent(path):
    with built(path) as (given, agent):
        assert given["env_id"] == path.stem and given["timesteps"] > 0 and agent.normalize_rewards
    assert f"configs/{path.name}" in CONTROL_PAGE
