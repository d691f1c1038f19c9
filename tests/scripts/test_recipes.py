"""Every recipe in configs/ is a configuration of rlenv train whose agent can be built, without a warning."""

import sys
from pathlib import Path

import pytest
from loaded import loaded
from tiny_models import write_chat_model

from rlenv._scripts.config.arguments import build_agent
from rlenv._scripts.evaluate import evaluate
from rlenv._scripts.sft import sft
from rlenv._scripts.train import train

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_builds_its_agent(path, tmp_path, monkeypatch):
    text = path.read_text(encoding="utf-8")
    assert f"rlenv train --config configs/{path.name}" in text
    options = ["--config", str(path), "--device", "cpu"]
    monkeypatch.chdir(ROOT)  # a verifier may be a file of examples/
    if "smollm2" in path.name:
        write_chat_model(tmp_path, context=512)
        options += ["--model", str(tmp_path), "--lora-rank", "2"]
    if "make_problems.py" in text:
        problems = str(tmp_path / "problems.jsonl")
        monkeypatch.setattr(sys, "argv", ["make_problems.py", problems, "--count", "100"])
        loaded("examples/word_problems/make_problems.py").main()
        options += ["--problems", problems]
    with train.make_context("train", options) as context:
        config = context.params["config"]
        agent = build_agent(config.agent, config)
        first = agent.env.reset(seed=0)[0]
        agent.env.close()
    assert config.episodes or config.timesteps
    if "\nenv:" in text:
        assert config.env_id == path.stem and agent.normalize_rewards
    else:
        assert int(first["length"].min()) > 0


STAGES = {  # of GSM8K: a config, the command it is for, and what stands before its options
    "evaluate": (evaluate, ["runs/gsm8k-sft"]),
    "sft": (sft, []),
    "grpo": (train, []),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_of_gsm8k_is_read_and_all_of_them_pose_the_same_prompts(name):
    command, before = STAGES[name]
    path = ROOT / "configs" / "gsm8k" / f"{name}.yaml"
    assert f"rlenv {command.name} " in path.read_text(encoding="utf-8")
    with command.make_context(command.name, [*before, "--config", str(path)]) as context:
        posed = context.params["config"]
    assert (posed.verifier, Path(posed.problems).name) == ("numeric", "gsm8k.jsonl")
    assert posed.chat and not posed.ask
