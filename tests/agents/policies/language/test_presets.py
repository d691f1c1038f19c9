"""Presets: models made for an environment's spaces, of documented sizes."""

import re
from pathlib import Path

import pytest
import torch
from identity_checks import ROUNDING, check_acting_equals_training
from tiny_models import text_envs
from transformers import AutoModelForCausalLM

from agents import LanguageModelPolicy, Reinforce
from agents.policies.language.models.loading import load_model
from agents.policies.language.models.presets import PRESETS, SIZES, preset_config

VOCABULARY = 2000
PAGE = Path(__file__).parents[4] / "docs" / "models.md"
MILLIONS = {"tiny": (0.6, 0.8), "small": (4.5, 5.5), "base": (28.0, 32.0)}  # with embeddings


def count(name, vocab_size=VOCABULARY, max_length=64):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(preset_config(name, vocab_size, max_length))
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_number_of_parameters_that_the_page_says(name):
    total = count(name)
    low, high = MILLIONS[name]
    assert low * 1e6 < total < high * 1e6
    row = re.search(rf"\| `{name}` \| ([\d,]+) \| ([\d,]+) \|", PAGE.read_text(encoding="utf-8"))
    assert row is not None, f"docs/models.md has no row of {name!r}: run python docs/make_models.py --pages"
    without, whole = (int(group.replace(",", "")) for group in row.groups())
    assert whole == total
    assert without == total - VOCABULARY * SIZES[name]["hidden_size"], "the head is tied to the embedding"


def test_a_saved_preset_fits_an_environment_with_longer_texts(tmp_path):
    """A warm start on short answers is no reason to refuse longer ones later."""
    envs = text_envs(4, group_size=4)
    Reinforce("tiny", envs, episodes_per_update=4, device="cpu").policy.save(tmp_path)
    longer = text_envs(4, group_size=4, max_new_tokens=200)
    assert Reinforce(tmp_path / "model", longer, episodes_per_update=4, device="cpu").policy.max_length == 208
    assert load_model("tiny", 10, 5000, None).config.max_position_embeddings == 5000


@pytest.mark.parametrize("name", ["small", pytest.param("base", marks=pytest.mark.slow)])
def test_a_preset_acts_as_it_is_trained_and_takes_an_update(name):
    envs = text_envs(8, group_size=4)
    agent = Reinforce(name, envs, episodes_per_update=8, device="cpu", seed=0)
    assert isinstance(agent.policy, LanguageModelPolicy)
    check_acting_equals_training(agent.policy, envs, ROUNDING, episodes=8)
    before = [weight.detach().clone() for weight in agent.policy.parameters()]
    agent.learn(total_episodes=8)
    pairs = zip(agent.policy.parameters(), before, strict=True)
    assert all(not torch.equal(now, old) for now, old in pairs)
