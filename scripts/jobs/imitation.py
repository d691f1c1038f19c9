"""Imitation of demonstrations: the warm start of a run, and `rlenv sft` from its options to its result."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from rlenv.agents import Agent, Rollout, processes
from rlenv.agents.checks import check_count
from rlenv.agents.training.supervised import WarmStart, demonstration_loss
from rlenv.stream import EmptySplitError

from ..config.arguments import is_text, resolved
from ..config.names import short_name
from ..config.parameters import given_by_user, typed
from ..process.progress import Interrupt, progress_bar, say
from ..process.torchrun import join
from ..run.folder import CHECKPOINT, RESULT, Run, choose, own_run
from . import model_defaults, session

HELD_OUT = 500  # demonstrations of the test split, at most, for eval_loss


def warm_start(agent: Agent, demonstrations: Rollout, options: dict[str, Any], in_passes: bool = False) -> WarmStart:
    """Return the loop of a warm start on demonstrations, drawn with the run's seed."""
    rate = options["sft_learning_rate"]
    return WarmStart(
        agent.policy,
        demonstrations,
        options["sft_steps"],
        options["sft_batch_size"],
        agent.usual("sft_learning_rate") if rate is None else rate,
        micro_batch_size=agent.micro_batch_size,
        micro_batch_tokens=agent.micro_batch_tokens,
        seed=options["seed"],
        in_passes=in_passes,
    )


def imitate(loop: WarmStart, interrupt: Interrupt, on_step: Callable[[int, float], None] | None = None) -> list[float]:
    """Take the steps that are left, until a signal comes; return all losses."""
    with progress_bar("warm start", loop.steps, len(loop.losses)) as show:

        def each(step: int, loss: float) -> bool:
            show(step + 1, f"loss {loss:.3f}")
            if on_step is not None:
                on_step(step, loss)
            return not interrupt.asked

        return loop.run(each)


def run_imitation(given: dict[str, Any]) -> None:
    """Imitate as the options say; exit with 128 and the number of a signal, if one came."""
    if not is_text(given["env_id"]):
        raise ValueError(f"{given['env_id']} has no demonstrations to learn from")
    judged = given["problems"] is None or given_by_user("verifier")
    given = given if judged else {**given, "verifier": "exact"}
    given["sft_steps"] = model_defaults.STEPS if given["sft_steps"] is None else given["sft_steps"]
    agent = _agent(given)
    stream = session.task_of(agent.env).stream
    given |= _amount(given, len(stream.listed))
    demonstrations = session.demonstrations(agent, given)
    envs, episodes = None, given["eval_episodes"]
    if episodes is None:
        episodes = session.evaluation_episodes(True, stream.sizes)
    if judged and episodes:
        envs = session.held_out_envs(given["env_id"], session.arguments_of(agent), agent.device, episodes)
    held_out = None if demonstrations is None else _held_out(agent, given)
    source = short_name(given["verifier"]) if judged else Path(re.sub("@[0-9a-f]{40}$", "", given["problems"])).stem
    place = processes.on_main(lambda: choose(given["log_dir"], given["overwrite"], f"sft-{source}"))
    run, given = own_run(Run(place), given)
    run.create(resolved(given), given["overwrite"])
    started, before = time.perf_counter(), _loss(agent, held_out, given)
    with Interrupt() as interrupt:
        losses = []
        if demonstrations is not None:
            losses = imitate(warm_start(agent, demonstrations, given, given["epochs"] is not None), interrupt)
    seconds = time.perf_counter() - started
    agent.save(run.path / CHECKPOINT)
    result = {
        "run_dir": str(run.path),
        "env": given["env_id"],
        "seed": given["seed"],
        "steps": len(losses),
        "examples": given["sft_examples"],
        "loss": losses[-1] if losses else None,
        "initial_eval_loss": before,
        "eval_loss": _loss(agent, held_out, given),
        "seconds": round(seconds, 3),
        "eval": None if envs is None else session.run_evaluation(agent, envs, episodes, given["seed"])[0],
        "interrupted": bool(interrupt.asked),
    }
    _show(run, result, 0 if held_out is None else len(held_out), given["as_json"])
    if interrupt.asked:
        click.echo(f"Interrupted; checkpoint written to {run.path / CHECKPOINT}", err=True)
        sys.exit(128 + interrupt.asked)


def _agent(given: dict[str, Any]) -> Agent:
    """Return an agent with the model that the options describe; it is never asked to learn from rewards.

    Raises:
        ValueError: if there are fewer episodes to evaluate than processes.
    """
    device = join(given["device"], given["process_timeout"])
    if given["eval_episodes"]:
        check_count("eval_episodes", given["eval_episodes"], low=processes.size())
    given["micro_batch_tokens"] = model_defaults.passes_of_imitation(given)
    with processes.alone():  # its share of the episodes of an update does not matter: there are none
        agent = session.build_agent("reinforce", given | {"device": device})
    processes.same_start(agent.policy)
    model_defaults.announce(agent, given)
    return agent


def _show(run: Run, result: dict[str, Any], held_out: int, as_json: bool) -> None:
    """Write the result into the run folder, and print it."""
    run.write(RESULT, result)
    if held_out:
        before, after = result["initial_eval_loss"], result["eval_loss"]
        say(f"loss on {held_out} held-out answers: {before:.3f} before, {after:.3f} after, in nats per token")
    if as_json:
        click.echo(json.dumps(result))
    else:
        said = "" if result["eval"] is None else f"{session.describe(result['eval'])}\n"
        if line := (result["eval"] or {}).get("few_problems"):
            say(line)
        click.echo(f"{said}Run folder: {result['run_dir']}")


def _amount(given: dict[str, Any], listed: int) -> dict[str, Any]:
    """Return how many examples and steps there are: of a file, all its training problems, in epochs if asked for.

    Raises:
        ValueError: for --epochs without a file, or together with --sft-steps.
    """
    if given["problems"] is None:
        if given["epochs"] is not None:
            raise ValueError("--epochs counts passes over a file: pass --problems, or --sft-steps instead")
        return {}
    examples = min(given["sft_examples"], listed) if given_by_user("sft_examples") else listed
    if given["epochs"] is None:
        return {"sft_examples": examples}
    if typed("sft_steps"):
        raise ValueError("--epochs and --sft-steps exclude each other")
    return {"sft_examples": examples, "sft_steps": given["epochs"] * -(-examples // max(given["sft_batch_size"], 1))}


def _held_out(agent: Agent, given: dict[str, Any]) -> Rollout | None:
    """Return demonstrations of problems in the test split; None if it is empty."""
    try:
        envs = session.evaluation_envs(given["env_id"], session.arguments_of(agent), agent.device, 1, "test")
    except EmptySplitError:
        return None
    with closing(envs):
        task = session.task_of(envs)
        count = min(len(task.stream.listed) or HELD_OUT, HELD_OUT)
        return session.first_demonstrations(task, count, given["seed"], agent.device)


def _loss(agent: Agent, held_out: Rollout | None, given: dict[str, Any]) -> float | None:
    """Return the loss on held-out demonstrations; None without any."""
    if held_out is None:
        return None
    return demonstration_loss(agent.policy, held_out, given["sft_batch_size"], agent.micro_batch_tokens)
