"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after; or the rest of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlenv.agents.algorithms import SETTINGS

from .config.command import Command
from .config.config_file import read_run
from .config.names import Name
from .config.options import (  # fmt: skip
    COUNT,
    FROM_ZERO,
    MODEL,
    adapter,
    agent_arg,
    common,
    declared,
    engine,
    environment,
    processes,
    run_folder,
    text,
    warm_start,
)
from .config.parameters import KeyValue, Size, group, option

agent_options = group(
    "Agent, policy and budget",
    option("--agent", Name(SETTINGS.keys), "Algorithm: rloo, grpo, ppo, ... or file.py:MyAgent.", "reinforce-baseline"),
    *agent_arg,
    option("--model", str, MODEL, "auto", "tiny; control: MlpPolicy"),
    option("--policy-arg policy_args", KeyValue(), "Argument of the policy, such as critic=separate.", multiple=True),
    option("--timesteps", COUNT, "Steps of the environment; for text: all tokens sampled.", shown="the policy's"),
    option("--episodes", COUNT, "Episodes, instead of --timesteps."),
)
evaluation = group(
    "Evaluation and logs",
    option("--eval-episodes", FROM_ZERO, "Per evaluation; 0 for none.", shown="2000 for text, 100 for control"),
    option("--eval-every", FROM_ZERO, "Updates between evaluations; the best is kept.", shown="10 in all; control: 0"),
    option("--stop-reward", float, "Stop at this mean reward of an evaluation, minus two standard errors."),
    option("--log-interval", COUNT, "Updates between two log entries.", 10),
    option("--track", click.Choice(["wandb", "trackio", "mlflow"]), "Also send metrics, samples and result there."),
    option(
        "--report/--no-report", bool, "Write report.html at the end; see rlenv report.", True, envvar="RLENV_REPORT"
    ),
    option("--log-kl", bool, "Log the KL to the policy that training starts from (rollout/kl_start).", False),
    option("--dry-run", bool, "Say whether the run fits in memory; train nothing.", False),
    option("--plan-processes", COUNT, "With --dry-run: plan for so many processes of torchrun.", shown="those here"),
    option("--plan-memory", Size(), "With --dry-run: the memory of each one's GPU.", shown="what is free here"),
)
checkpoints = group(
    "Run folder and checkpoints",
    option(
        "--resume",
        click.Path(exists=True, file_okay=False, path_type=Path),
        "Continue the run in this folder, with its own options; after a kill, from its last checkpoint.",
        is_eager=True,
        callback=read_run,
    ),
    option("--save-every", click.FloatRange(min=0), "Minutes between two checkpoints.", 10.0),
    option("--save-every-updates", COUNT, "Updates between two checkpoints, instead of --save-every."),
    option("--keep", COUNT, "Checkpoints that are kept, besides the best.", 2),
    option("--trust trust_checkpoint", bool, "With --resume: import your modules that the checkpoint names.", False),
)


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
        "What is learned": ("env_id", "task", "verifier", "verifier_args", "problems", "max_new_tokens"),
        "Who learns": ("agent", "model", "chat", "lora_rank", "learning_rate"),
        "How much": ("sft_steps", "episodes", "timesteps", "episodes_per_update", "group_size", "eval_every"),
        "The run": ("config", "log_dir", "seed", "device", "resume", "dry_run", "plan_processes", "plan_memory"),
    },
)
@environment
@text
@agent_options
@declared("train")
@adapter
@warm_start
@engine
@evaluation
@checkpoints
@run_folder
@declared("train", "Every run")
@processes
@common
def train(**given: Any) -> None:
    """Train an agent.

    Without options, a small language model learns two-digit addition: a warm start on solved sums, then a verifier's
    reward.

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint; --resume RUN goes on from it.
    """
    from .jobs.training import run_training

    run_training(given)
