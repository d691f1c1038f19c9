"""rlenv evaluate: measure the checkpoint of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import common


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=None,
    show_default="2000 for text, 100 for control",
    help="Episodes to play.",
)
@click.option("--split", default="test", help="Split of the problems: train, test. Text only.")
@click.option("--deterministic/--stochastic", default=True, help="Take the likeliest action, or sample.")
@common
def evaluate(
    run: Path, episodes: int | None, split: str, deterministic: bool, seed: int, device: str, as_json: bool
) -> None:  # fmt: skip
    """Evaluate RUN, a run folder or a checkpoint folder."""
    from agents import Agent

    from . import run_folder, session

    path = run_folder.checkpoint_of(run)
    saved = json.loads((path / "agent.json").read_text(encoding="utf-8"))
    text = session.is_text(saved["env"])
    count = episodes or (2000 if text else 100)
    agent: Any = Agent.load(path, device=device)
    envs = session.evaluation_envs(saved["env"], saved["env_kwargs"], agent.device, count, split)
    figures, rollout = session.run_evaluation(agent, envs, count, seed, deterministic)
    if as_json:
        click.echo(json.dumps(figures))
        return
    if text:
        session.print_samples(session.sample_rows(session.task_of(envs), rollout))
    click.echo(session.describe(figures))
