"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after; or the rest of a run."""

from __future__ import annotations

from typing import Any

import click

from .command import Command
from .options import adapter, common, environment, processes, run_folder, text, warm_start
from .train_options import agent_options, checkpoints, evaluation, sharding, update_options


@click.command(
    cls=Command,
    examples={
        "rlenv train": "A small language model learns two-digit addition",
        "rlenv train --env CartPole-v1 --timesteps 50000": "The same agent balances a pole",
        "rlenv train --model FOLDER_OR_ID --problems FILE --verifier rewards.py:f --agent grpo": "A model of your own, "
        "on your problems, with your reward",
        "rlenv train --resume runs/NAME": "Go on after Ctrl-C, SIGTERM or a kill",
    },
    often={
        "What is learned": ("env_id", "verifier", "verifier_args", "problems", "max_new_tokens"),
        "Who learns": ("agent", "model", "chat", "lora_rank", "learning_rate"),
        "How much": ("sft_steps", "episodes", "timesteps", "episodes_per_update", "group_size", "eval_every"),
        "The run": ("config", "log_dir", "seed", "device", "resume", "dry_run"),
    },
)
@environment
@text
@agent_options
@update_options
@adapter
@warm_start
@evaluation
@checkpoints
@run_folder
@sharding
@processes
@common
def train(**given: Any) -> None:
    """Train an agent.

    Without options, a small language model learns two-digit addition: a warm start on solved sums, then a verifier's
    reward.

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint; --resume RUN goes on from it.
    """
    from .training import run_training

    run_training(given)
