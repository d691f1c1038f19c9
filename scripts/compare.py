"""rlenv compare: several agents, each with several seeds."""

from __future__ import annotations

import json
import sys

import click

from .config.command import Command
from .config.other_configs import CompareConfig


@click.command(
    cls=Command,
    config=CompareConfig,
    examples={
        "rlenv compare": "Every agent, five seeds each, on sums",
        "rlenv compare --agents reinforce,rloo,grpo --seeds 3 --model runs/warm": "Three agents from one checkpoint",
        "rlenv compare --agents grpo,sapo --agent-arg num_epochs=4": "Four passes over every rollout",
        "rlenv compare --env CartPole-v1 --agents a2c,ppo --jobs 2": "Two runs at a time",
    },
    often={
        "What is learned": ("env_id", "verifier", "problems", "max_new_tokens"),
        "Who is compared": ("agents", "settings", "seeds", "model"),
        "How much": ("episodes", "episodes_per_update", "group_size", "learning_rate"),
        "The runs": ("config_file", "log_dir", "jobs", "device"),
    },
)
def compare(config: CompareConfig) -> None:
    """Compare agents: each with several seeds, from one supervised checkpoint (text) or from scratch.

    Every run is an `rlenv train` in a separate process; if there are several GPUs, they share the runs. The folder gets
    the report (report.md, report.html, report.json). The same command again continues an interrupted comparison; it may
    add agents and seeds.
    """
    from .jobs import comparison

    try:
        compared = comparison.compare(config)
    except KeyboardInterrupt:
        click.echo("Interrupted; the same command continues from here.", err=True)
        sys.exit(130)
    page, *others = compared.files
    click.echo(json.dumps(compared.report) if config.as_json else page.read_text(encoding="utf-8"))
    click.echo(f"Report: {page}  (tensorboard --logdir {compared.folder})", err=True)
    click.echo(f"Also: {', '.join(map(str, others))}", err=True)
    sys.exit(1 if compared.failed else 0)
