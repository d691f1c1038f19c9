"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after; or the rest of a run."""

from __future__ import annotations

import sys

import click

from .config.command import Command
from .config.configs import TrainConfig


@click.command(
    cls=Command,
    config=TrainConfig,
    examples={
        "rlenv train": "A small language model learns two-digit addition",
        "rlenv train --env CartPole-v1 --timesteps 50000": "The same agent balances a pole",
        "rlenv train --model FOLDER_OR_ID --problems FILE --verifier rewards.py:f --agent grpo": "A model of your own, "
        "on your problems, with your reward",
        "rlenv train --resume runs/NAME": "Go on after Ctrl-C, SIGTERM or a kill",
    },
    often={
        "What is learned": ("env_id", "task", "verifier", "verifier_kwargs", "problems", "max_new_tokens"),
        "Who learns": ("agent", "model", "chat", "lora_rank", "learning_rate"),
        "How much": ("sft_steps", "episodes", "timesteps", "episodes_per_update", "group_size", "eval_every"),
        "The run": ("config_file", "log_dir", "seed", "device", "resume", "dry_run", "plan_processes", "plan_memory"),
    },
)
def train(config: TrainConfig) -> None:
    """Train an agent.

    Without options, a small language model learns two-digit addition: a warm start on solved sums, then a verifier's
    reward. From Python: rlenv.train(rlenv.TrainConfig(...)).

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint; --resume RUN goes on from it.
    """
    from rlenv.agents import DivergedError, EngineError, VerifierError

    from .jobs import resume, training

    if config.dry_run:
        training.plan(config)
        return
    try:
        run = training.train(config)
    except (VerifierError, DivergedError, EngineError) as error:
        if not getattr(error, "__notes__", None):
            raise
        click.echo(f"Stopped: {error}. {' '.join(error.__notes__)}", err=True)
        sys.exit(1)
    training.show(run, config.as_json)
    if run.signal:
        resume.end_interrupted(run.folder, run.signal)
