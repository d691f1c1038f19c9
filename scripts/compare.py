"""rlenv compare: agents against each other, over several seeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from .options import common, environment, one_budget, options, text, warm_start

EPISODES, TIMESTEPS, GROUP = 60_000, 1_000_000, 4

compare_options = options(
    click.option("--agents", default="all", help="all, or names with commas between them, such as reinforce,rloo."),
    click.option("--seeds", type=click.IntRange(min=1), default=5, help="Runs of each agent; they count from --seed."),
    click.option(
        "--jobs", type=click.IntRange(min=1), default=None, show_default="the number of cores", help="Runs at a time."
    ),
    click.option(
        "--model", default="auto", show_default="tiny for text, MlpPolicy for control",
        help="Preset, policy class, model folder or id; or a run folder, to start from without a warm start.",
    ),
    click.option(
        "--episodes", type=click.IntRange(min=1), default=None, show_default=f"{EPISODES} for text",
        help="Episodes of each run.",
    ),
    click.option(
        "--timesteps", type=click.IntRange(min=1), default=None, show_default=f"{TIMESTEPS} for control",
        help="Steps of each run, instead.",
    ),
    click.option(
        "--stop-reward", type=float, default=None, show_default="the environment's registered threshold, if any",
        help="Each run stops once it reaches this; see train.",
    ),
    click.option(
        "--group-size", type=int, default=None, show_default=f"{GROUP}, where the environment knows groups",
        help="Episodes that share a prompt, for all agents.",
    ),
    click.option(
        "--episodes-per-update", type=int, default=None, show_default="the policy's", help="Episodes per rollout."
    ),
    click.option("--num-envs", type=int, default=None, show_default="the policy's", help="Slots of the environment."),
    click.option("--learning-rate", type=float, default=None, show_default="the agent's", help="Of Adam."),
    click.option("--kl-coef", type=float, default=0.0, help="KL anchor to the policy that training starts from."),
    click.option(
        "--eval-episodes", type=click.IntRange(min=1), default=None, show_default="2000 for text, 100 for control",
        help="Episodes of each evaluation.",
    ),
    click.option("--log-interval", type=click.IntRange(min=1), default=5, help="Updates between points of a curve."),
    click.option("--figures/--no-figures", default=True, help="Whether to draw curves.png; needs matplotlib."),
    click.option(
        "--log-dir", type=click.Path(file_okay=False, path_type=Path), default=None, show_default="runs/compare-NAME",
        help="Folder of the comparison; one that is there already is continued.",
    ),
    click.option("--overwrite", is_flag=True, help="Start an existing comparison anew."),
)  # fmt: skip


@click.command()
@environment
@text
@compare_options
@warm_start
@common
def compare(**given: Any) -> None:  # fmt: skip
    """Compare agents: each with several seeds, from one supervised checkpoint (text) or from scratch.

    Every run is an `rlenv train` of its own, in a process of its own. The folder gets report.md, report.json and
    curves.png. The same command again goes on where an earlier one ended; more agents and more seeds may be asked for.
    """
    from .plots import require_matplotlib
    from .study import Study

    if given["figures"]:
        require_matplotlib()
    agents = _agents(given["agents"])
    given = _settle(given)
    _check(agents, given)
    study = Study.open(given, agents)
    with study.lock:
        try:
            failed = study.run_missing(agents)
        except KeyboardInterrupt:
            click.echo("Interrupted; the same command goes on from here.", err=True)
            sys.exit(130)
        report = study.report(failed)
    click.echo(json.dumps(report) if given["as_json"] else (study.folder / "report.md").read_text(encoding="utf-8"))
    click.echo(f"Report: {study.folder / 'report.md'}  (tensorboard --logdir {study.folder})", err=True)
    sys.exit(1 if failed else 0)


def _agents(names: str) -> list[str]:
    """Return the agents of a list with commas.

    Raises:
        ValueError: for an unknown name, with the closest match, or one that is there twice.
    """
    from agents import AGENTS, find_agent

    if names.strip() == "all":
        return list(AGENTS)
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        find_agent(name)
        if asked.count(name) > 1:
            raise ValueError(f"--agents names {name!r} {asked.count(name)} times; an agent has one row")
    return asked


def _settle(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what depends on the environment filled in."""
    from agents.envs import agent_settings, find_spec

    from . import session

    given = one_budget(given)
    text = session.is_text(given["env_id"])
    settled = dict(given)
    if given["timesteps"] is None and given["episodes"] is None:
        settled |= {"episodes": EPISODES} if text else {"timesteps": TIMESTEPS}
    if given["group_size"] is None and "group_size" in agent_settings(given["env_id"]):
        settled["group_size"] = GROUP
    if given["stop_reward"] is None and not text:
        settled["stop_reward"] = find_spec(given["env_id"]).reward_threshold
    world = [given["env_id"].split(":")[-1], *([given["verifier"].replace(":", ".")] if text else [])]
    settled["log_dir"] = given["log_dir"] or Path("runs", "-".join(["compare", *world]).lower())
    return settled


def _check(agents: list[str], given: dict[str, Any]) -> None:
    """Make what every run is going to make, so that bad input is found before the first of them.

    Raises:
        ValueError: as the agents, the environment and the warm start say.
    """
    from agents.checks import check_number
    from agents.envs import resolve_device

    from . import session

    resolve_device(given["device"], given["env_id"])
    if given["stop_reward"] is not None:
        check_number("stop_reward", given["stop_reward"])
    for name in agents:
        agent = session.build_agent(name, {**given, "device": "cpu"})
    session.evaluation_envs(given["env_id"], agent.origin["env_kwargs"], "cpu", 1, "test")
    if session.is_text(given["env_id"]):
        session.demonstrations(agent, given)
