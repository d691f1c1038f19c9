"""An update at the shapes of users' tasks: a Qwen3-type model of 4.7 or 30 million random parameters, against TRL."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents import Agent, find_agent

from .floors import update_floor
from .gpu import even_words, text_envs
from .measure import Row
from .peers import SAME_LOSS, require_trl, train_beside

STEPS, RATE = 2, 1e-6  # updates per turn; at this rate the rewards stay where they are, so all turns do the same work


@dataclass(frozen=True)
class Shape:
    """The size of an update: `groups` prompts of `prompt` tokens, each with `k` answers of up to `tokens` tokens."""

    prompt: int
    tokens: int
    groups: int
    k: int
    width: int = 256
    layers: int = 6


SHAPES = {
    "trl-prompt": Shape(prompt=512, tokens=32, groups=2, k=16),
    "trl-balanced": Shape(prompt=256, tokens=64, groups=4, k=16),
    "trl-reasoning": Shape(prompt=64, tokens=128, groups=4, k=8),
    "trl-30m": Shape(prompt=128, tokens=64, groups=4, k=8, width=512, layers=10),
}


def qwen3(shape: Shape) -> PreTrainedModel:
    """Return a model with random weights; its 512 words make an early end token rare."""
    config = Qwen3Config(
        vocab_size=512, hidden_size=shape.width, intermediate_size=shape.width * 23 // 8,
        num_hidden_layers=shape.layers, num_attention_heads=4, num_key_value_heads=2, head_dim=shape.width // 4,
        max_position_embeddings=shape.prompt + shape.tokens, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config).eval()


def our_agent(shape: Shape, model: PreTrainedModel) -> Agent:
    """Return our side: an agent that trains this model."""
    batch = shape.groups * shape.k
    envs = text_envs(model, batch, shape.prompt, shape.tokens, even_words, group_size=shape.k)
    agent: Agent = find_agent("grpo")(
        model, envs, learning_rate=RATE, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
        group_size=shape.k, device="cpu",
    )  # fmt: skip
    return agent


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for the shape of this name."""
    require_trl()
    return [compare(SHAPES[name], pairs)]


def compare(shape: Shape, pairs: int) -> Row:
    """Measure ours and TRL in turn, from the same weights, on the same prompts, with the same loss."""
    turns = pairs + 1  # the first turn is for warming up
    model = qwen3(shape)
    agent = our_agent(shape, copy.deepcopy(model))
    times, kept, _ = train_beside("GRPO", agent, model, even_words, STEPS, turns, **SAME_LOSS)
    rewards, lengths = ([sum(x) / len(x) for x in each] for each in (
        (kept.kept, times.rewards), (kept.lengths, times.lengths)
    ))  # fmt: skip
    gap = agent.last_metrics["train/logp_gap_max"]
    quality = (
        f"mean reward ours {rewards[0]:.3f}, TRL {rewards[1]:.3f}; mean length ours {lengths[0]:.1f}, "
        f"TRL {lengths[1]:.1f} tokens; log-probabilities of acting and training differ by at most {gap:.1g}"
    )
    label = f"GRPO, {shape.groups} prompts of {shape.prompt} tokens x {shape.k} answers of {shape.tokens}"
    known: dict[str, Any] = {"reward": rewards, "length": lengths, "floor": update_floor(agent)}
    return Row.of(label, times.ours[1:], times.theirs[1:], "s/update", quality, **known)
