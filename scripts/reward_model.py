"""rlenv reward-model: a reward model from preference pairs."""

from __future__ import annotations

import sys

import click

from .config.command import Command
from .config.other_configs import RewardModelConfig


@click.command(
    "reward-model",
    cls=Command,
    config=RewardModelConfig,
    examples={
        "rlenv reward-model --pairs FILE --log-dir runs/judge": "Learn from the columns prompt, chosen and rejected",
        "rlenv reward-model --pairs FILE --model runs/warm": "Start from the network of an rlenv sft run",
        "rlenv reward-model --pairs FILE --model smollm2 --lora-rank 16": "An adapter on a pretrained model",
        "rlenv train --verifier reward_model:runs/judge --problems FILE": "Use it as the reward",
    },
    often={
        "What is learned": ("pairs", "columns", "test_fraction"),
        "Who learns": ("model", "lora_rank", "learning_rate"),
        "How much": ("epochs", "steps", "batch_size"),
        "The run": ("config_file", "log_dir", "seed", "device"),
    },
)
def reward_model(config: RewardModelConfig) -> None:
    """Train a reward model on preference pairs; `rlenv train --verifier reward_model:RUN` then learns from it.

    The model reads prompt and completion as one text, a conversation as the chat template renders it, and returns one
    number. With --lora-rank, an adapter and the head are trained and saved. The loss is that of Bradley and Terry:
    the chosen completion of a pair should have the higher number. Figures are those of held-out pairs.
    """
    from .jobs.reward_model import show, train_on_pairs

    model, result, signal = train_on_pairs(config)
    show(result, config.as_json)
    if signal:
        click.echo(f"Interrupted; model written to {model}", err=True)
        sys.exit(128 + signal)
