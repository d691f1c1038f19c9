"""rlenv compare: several agents, each with several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlenv.agents.algorithms import SETTINGS

from .config.command import Command
from .config.defaults import EPISODES, GROUP, TIMESTEPS
from .config.names import Name
from .config.options import COUNT, MODEL, adapter, agent_arg, common, declared, environment, text, warm_start
from .config.parameters import group, option

compare_options = group(
    "Comparison",
    option("--agents", Name(SETTINGS.keys), "all, or names: reinforce,rloo,file.py:MyAgent.", "all"),
    *agent_arg,
    option("--seeds", COUNT, "Runs per agent; the first seed is --seed.", 5),
    option("--jobs", COUNT, "Runs at a time.", shown="one per GPU; without any, one per core"),
    option("--model", str, MODEL, "auto", "tiny; control: MlpPolicy"),
    option("--episodes", COUNT, "Episodes of each run.", shown=f"{EPISODES} for text"),
    option("--timesteps", COUNT, "Steps of each run, instead of --episodes.", shown=f"{TIMESTEPS} for control"),
    option("--stop-reward", float, "A run stops when it reaches this; see train.", shown="the environment's, if any"),
    *declared("compare").without("group_size"),
    option("--group-size", int, "Episodes that share a prompt.", shown=f"{GROUP}, if the environment has groups"),
    option("--eval-episodes", COUNT, "Episodes of each evaluation.", shown="2000 for text, 100 for control"),
    option("--log-interval", COUNT, "Updates between points of a curve.", 5),
    option("--figures/--no-figures", bool, "Write report.html, curve.svg and curve.png.", True),
    option(
        "--log-dir",
        click.Path(file_okay=False, path_type=Path),
        "Folder of the comparison; an existing one is continued.",
        shown="runs/compare-NAME",
    ),
    option("--overwrite", bool, "Delete an existing comparison and start again.", False),
)


@click.command(
    cls=Command,
    examples={
        "rlenv compare": "Every agent, five seeds each, on sums",
        "rlenv compare --agents reinforce,rloo,grpo --seeds 3 --model runs/warm": "Three agents from one checkpoint",
        "rlenv compare --agents grpo,sapo --agent-arg num_epochs=4": "Four passes over every rollout",
        "rlenv compare --env CartPole-v1 --agents a2c,ppo --jobs 2": "Two runs at a time",
    },
    often={
        "What is learned": ("env_id", "verifier", "problems", "max_new_tokens"),
        "Who is compared": ("agents", "agent_args", "seeds", "model"),
        "How much": ("episodes", "episodes_per_update", "group_size", "learning_rate"),
        "The runs": ("config", "log_dir", "jobs", "device"),
    },
)
@environment
@text
@compare_options
@adapter
@warm_start
@common
def compare(**given: Any) -> None:  # fmt: skip
    """Compare agents: each with several seeds, from one supervised checkpoint (text) or from scratch.

    Every run is an `rlenv train` in a separate process; if there are several GPUs, they share the runs. The folder gets
    the report (report.md, report.html), its table (report.csv, report.json) and the learning curve (curve.svg,
    curve.png). The same command again continues an interrupted comparison; it may add agents and seeds.
    """
    from .study import run_comparison

    run_comparison(given)
