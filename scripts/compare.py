"""rlenv compare: several agents, each with several seeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from agents.algorithms import SETTINGS

from .command import Command
from .names import Name, agent_class, short_name
from .options import COUNT, adapter, agent_arg, common, declared, environment, one_budget, text, warm_start
from .parameters import group, option

EPISODES, TIMESTEPS, GROUP = 60_000, 1_000_000, 4

compare_options = group(
    "Comparison",
    option("--agents", Name(SETTINGS.keys), "all, or names, such as reinforce,file.py:MyAgent.", "all"),
    *agent_arg,
    option("--seeds", COUNT, "Runs per agent; the first seed is --seed.", 5),
    option("--jobs", COUNT, "Runs at a time, in each process.", shown="the number of cores; under torchrun 1"),
    option("--model", str, "Preset, MlpPolicy, folder, id, GGUF file or run.", "auto", "tiny; control: MlpPolicy"),
    option("--episodes", COUNT, "Episodes of each run.", shown=f"{EPISODES} for text"),
    option("--timesteps", COUNT, "Steps of each run, instead of --episodes.", shown=f"{TIMESTEPS} for control"),
    option("--stop-reward", float, "A run stops when it reaches this; see train.", shown="the environment's, if any"),
    *declared(
        "compare",
        group_size={
            "shown": f"{GROUP}, if the environment has groups",
            "about": "Episodes that share a prompt, for all agents.",
        },
    ),
    option("--eval-episodes", COUNT, "Episodes of each evaluation.", shown="2000 for text, 100 for control"),
    option("--log-interval", COUNT, "Updates between points of a curve.", 5),
    option("--figures/--no-figures", bool, "Write report.html.", True),
    option("--log-dir", click.Path(file_okay=False, path_type=Path), "An old one goes on.", shown="runs/compare-NAME"),
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

    Every run is an `rlenv train` in a separate process; the processes of torchrun share the runs. The folder gets
    report.md, report.json and report.html. The same command again continues an interrupted comparison; it
    may add agents and seeds.
    """
    from agents import processes

    from .study import Study
    from .torchrun import join

    agents = _agents(given["agents"])
    device = join(given["device"], limit=None)  # one may have a run more than the others
    given = _with_defaults(given)
    with processes.alone():
        warm = _check(agents, given | {"device": device})
    if given["sft_steps"] and not warm:
        given["sft_steps"] = 0
    study = Study(given, agents, device)
    try:
        failed = study.run_missing()
    except KeyboardInterrupt:
        click.echo("Interrupted; the same command continues from here.", err=True)
        sys.exit(130)
    report = processes.on_main(lambda: study.report(failed))
    if processes.is_main():
        page = study.folder / "report.md"
        click.echo(json.dumps(report) if given["as_json"] else page.read_text(encoding="utf-8"))
        click.echo(f"Report: {page}  (tensorboard --logdir {study.folder})", err=True)
    sys.exit(1 if failed else 0)


def _agents(names: str) -> list[str]:
    """Return the agents of a comma-separated list.

    Raises:
        ValueError: for an unknown name, with the closest match, or a repeated one.
    """
    from agents import AGENTS

    if names.strip() == "all":
        return [name for name, cls in AGENTS.items() if not cls.needs_teacher]
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        agent_class(name)
        if asked.count(name) > 1:
            raise ValueError(f"--agents names {name!r} {asked.count(name)} times; name each agent once")
    return asked


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what depends on the environment filled in."""
    from agents.rollouts.envs import find_spec, traits_of

    from .model_defaults import warm_start_steps
    from .settings import is_text

    given = one_budget(given)
    text = is_text(given["env_id"])
    filled = dict(given)
    if given["timesteps"] is None and given["episodes"] is None:
        filled |= {"episodes": EPISODES} if text else {"timesteps": TIMESTEPS}
    if text:
        filled["sft_steps"] = warm_start_steps(given)
    if given["group_size"] is None and "group_size" in traits_of(given["env_id"]).agent_settings:
        filled["group_size"] = GROUP
    if given["stop_reward"] is None and not text:
        filled["stop_reward"] = find_spec(given["env_id"]).reward_threshold
    world = [given["env_id"].split(":")[-1], *([short_name(given["verifier"])] if text else [])]
    filled["log_dir"] = given["log_dir"] or Path("runs", "-".join(["compare", *world]).lower())
    return filled


def _check(agents: list[str], given: dict[str, Any]) -> bool:
    """Make what every run will make, so that bad input is an error before the first run starts.

    Returns:
        Whether there is a warm start.
    """
    from agents.rollouts.envs import resolve_device

    from . import session, settings

    resolve_device(given["device"], given["env_id"])
    for name in agents:
        agent = session.build_agent(name, {**given, "device": "cpu"})
        if agent.needs_teacher:
            raise ValueError(f"--agents names {name!r}, which needs a --teacher, and compare has none: use rlenv train")
    session.held_out_envs(given["env_id"], agent.origin["env_kwargs"], "cpu", 1)
    return settings.is_text(given["env_id"]) and session.warm_start(agent, given) is not None
