"""rlenv sft: the supervised warm start alone."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from .options import adapter, common, environment, run_folder, text, warm_start


@click.command()
@environment
@text
@click.option(
    "--model",
    default="auto",
    show_default="tiny",
    help="Preset (tiny, small, base), model folder or id, or a run folder.",
)
@adapter
@warm_start
@click.option("--eval-episodes", type=click.IntRange(min=1), default=2000, help="Episodes of the evaluation.")
@run_folder
@common
def sft(**given: Any) -> None:
    """Train a language model on the verifier's demonstrations; `rlenv train --model RUN --sft-steps 0` continues."""
    from . import run_folder as folder
    from . import session, settings
    from .progress import Interrupt
    from .verifier_names import short_name

    if not settings.is_text(given["env_id"]):
        raise ValueError(f"{given['env_id']} has no demonstrations to learn from")
    agent = session.build_agent("reinforce", given)
    episodes = given["eval_episodes"]
    envs = session.evaluation_envs(given["env_id"], agent.origin["env_kwargs"], agent.device, episodes, "test")
    shown = session.demonstrations(agent, given)
    run_dir = folder.choose(given["log_dir"], given["overwrite"], f"sft-{short_name(given['verifier'])}")
    folder.create(run_dir, settings.resolved(given), given["overwrite"])
    started = time.perf_counter()
    with Interrupt() as interrupt:
        losses = [] if shown is None else session.Imitation(agent, shown, given).run(interrupt)
    seconds = time.perf_counter() - started
    agent.save(run_dir / folder.CHECKPOINT)
    figures, _ = session.run_evaluation(agent, envs, episodes, given["seed"])
    result = {
        "run_dir": str(run_dir),
        "env": given["env_id"],
        "seed": given["seed"],
        "steps": len(losses),
        "examples": given["sft_examples"],
        "loss": losses[-1] if losses else None,
        "seconds": round(seconds, 3),
        "eval": figures,
        "interrupted": bool(interrupt.asked),
    }
    folder.write_json(run_dir / folder.RESULT, result)
    click.echo(json.dumps(result) if given["as_json"] else f"{session.describe(figures)}\nRun folder: {run_dir}")
    if interrupt.asked:
        click.echo(f"Interrupted; checkpoint written to {run_dir / folder.CHECKPOINT}", err=True)
        sys.exit(128 + interrupt.asked)
