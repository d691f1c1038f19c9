"""An update at the shapes of users' tasks: a Qwen3-type model of 4.7 or 30 million random parameters, against TRL."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents import Agent, find_agent

from .floors import update_floor
from .gpu import text_envs
from .measure import Row
from .peers import SAME_LOSS, learned, require_trl, train_beside

STEPS = 3  # updates per turn
RATE = 5e-3  # so high that few updates show whether both sides learn equally well


@dataclass(frozen=True)
class Shape:
    """The size of an update, and how many `updates` each seed is trained for.

    An update has `groups` prompts of `prompt` tokens, each with `k` answers of up to `tokens` tokens.
    """

    prompt: int
    tokens: int
    groups: int
    k: int
    width: int = 256
    layers: int = 6
    updates: int = 2 * STEPS


SHAPES = {
    "trl-prompt": Shape(prompt=512, tokens=32, groups=2, k=16),
    "trl-balanced": Shape(prompt=256, tokens=64, groups=4, k=16),
    "trl-reasoning": Shape(prompt=64, tokens=128, groups=4, k=8, updates=3 * STEPS),
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


def surplus_of_even(tokens: int) -> Callable[..., list[float]]:
    """Return a reward: the share of words with an even number; each of `tokens` that is missing counts as half.

    The share of an answer that ends after a word or two would be a lottery, which teaches some seeds to end early.
    """

    def reward(completions: list[str], **rest: Any) -> list[float]:
        words = map(str.split, completions)
        signs = ([1 if word[-1] in "02468" else -1 for word in each] for each in words)
        return [0.5 + sum(each) / (2 * tokens) for each in signs]

    return reward


def our_agent(shape: Shape, model: PreTrainedModel, seed: int = 0) -> Agent:
    """Return our side: an agent that trains a copy of this model."""
    batch = shape.groups * shape.k
    envs = text_envs(model, batch, shape.prompt, shape.tokens, surplus_of_even(shape.tokens), group_size=shape.k)
    agent: Agent = find_agent("grpo")(
        copy.deepcopy(model), envs, learning_rate=RATE, lr_schedule="constant", episodes_per_update=batch,
        num_envs=batch, group_size=shape.k, seed=seed, device="cpu",
    )  # fmt: skip
    return agent


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for the shape of this name."""
    require_trl()
    return [compare(SHAPES[name], pairs)]


def compare(shape: Shape, seeds: int) -> Row:
    """Train ours and TRL with each seed: a few updates each in turn, from the same weights, on the same prompts."""
    model = qwen3(shape)
    each = [_train(shape, model, seed) for seed in range(seeds)]
    before, ours, theirs = ([seed[figure] for seed in each] for figure in ("before", "reward", "peer_reward"))
    own, peers = (statistics.mean(seed[figure] for seed in each) for figure in ("length", "peer_length"))
    gap = max(seed["gap"] for seed in each)
    seconds, their_seconds = ([seed[side] for seed in each] for side in ("ours", "peer"))
    quality = (
        f"{learned('reward', shape.updates - 1, before, ours, theirs)}; "
        f"mean length ours {own:.1f}, TRL {peers:.1f} tokens; "
        f"log-probabilities of acting and training differ by at most {gap:.1g}"
    )
    label = f"GRPO, {shape.groups} prompts of {shape.prompt} tokens x {shape.k} answers of {shape.tokens}"
    known: dict[str, Any] = {"reward": ours, "peer_reward": theirs, "length": [own, peers]}
    known["floor"] = statistics.median(seed["floor"] for seed in each)
    return Row.of(label, seconds, their_seconds, "s/update", quality, **known)


def _train(shape: Shape, model: PreTrainedModel, seed: int) -> dict[str, float]:
    """Return a seed's seconds per update after the first turn, and its mean rewards in our first and in both's last."""
    agent = our_agent(shape, model, seed)
    reward = surplus_of_even(shape.tokens)
    turns = shape.updates // STEPS
    times, kept, _ = train_beside("GRPO", agent, model, reward, STEPS, turns, logging_steps=1, **SAME_LOSS)
    return {
        "ours": statistics.mean(times.ours[1:]),
        "peer": statistics.mean(times.theirs[1:]),
        "before": kept.kept[0],  # of the rollout that the first update learns from
        "reward": kept.kept[-1],
        "peer_reward": times.rewards[-1],
        "length": statistics.mean(kept.lengths),
        "peer_length": statistics.mean(times.lengths),
        "gap": agent.last_metrics["train/logp_gap_max"],
        "floor": update_floor(agent, updates=2),
    }
