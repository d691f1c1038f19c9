"""rlenv evaluate: measure the checkpoint of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import common, problem_file


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
@click.option("--deterministic/--stochastic", default=True, help="Take the most likely action, or sample.")
@click.option(
    "--trust",
    is_flag=True,
    help="Import the environment or the verifier that the checkpoint names, module:Name; this runs their code.",
)
@problem_file
@common
def evaluate(
    run: Path, episodes: int | None, split: str, deterministic: bool, trust: bool, seed: int, device: str,
    as_json: bool, **file: Any,
) -> None:  # fmt: skip
    """Evaluate RUN, a run folder or a checkpoint folder, on the problems it was trained for or on --problems."""
    from agents import Agent
    from agents.checkpoint import read_facts
    from agents.envs import named_by_checkpoint

    from . import run_folder, session, settings

    path = run_folder.checkpoint_of(run)
    saved = read_facts(path)
    if saved["env"] is None:
        raise ValueError(f"{str(path)!r} does not name its environment: it was trained on an object")
    env_kwargs = named_by_checkpoint(saved["env"], saved["env_kwargs"], trust)
    text = settings.is_text(saved["env"])
    if text and (path / "policy" / "model" / "tokenizer_config.json").is_file():
        env_kwargs["tokenizer"] = str(path / "policy" / "model")  # the folder that the run was made with may have moved
    others = settings.problem_file_arguments(file)
    if others["problems"] is not None:
        if not text:
            raise ValueError(f"--problems has no meaning for {saved['env']}")
        env_kwargs |= others
    if text:
        env_kwargs["split"] = split  # the training split may be empty
    count = episodes or session.evaluation_episodes(text)
    agent: Any = Agent.load(path, device=device, env_kwargs=env_kwargs, trust=trust)
    envs = session.evaluation_envs(saved["env"], env_kwargs, agent.device, count, split)
    figures, rollout = session.run_evaluation(agent, envs, count, seed, deterministic)
    if as_json:
        click.echo(json.dumps(figures))
        return
    if text:
        session.print_samples(session.sample_rows(session.task_of(envs), rollout), split)
    click.echo(session.describe(figures))
