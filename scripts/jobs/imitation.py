"""Supervised training on demonstrations, from its config to its result."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rlenv.agents import Agent, Rollout, processes
from rlenv.agents.errors import reading
from rlenv.agents.training.supervised import demonstration_loss
from rlenv.stream import EmptySplitError
from rlenv.verifiers.plugins.registry import trusting

from ..config.arguments import build_agent
from ..config.base import named
from ..config.configs import SftConfig
from ..config.names import short_name
from ..config.options import with_task
from ..process.progress import Interrupt, say
from ..process.torchrun import meet
from ..reports.evaluation_figures import describe
from ..run.checkpoints import Saver
from ..run.folder import CONFIG, RESULT, RunFolder, choose, own_folder
from ..run.log import open_log
from . import model_defaults, session
from .from_python import job
from .resume import begun_config, reopened
from .warm_start import imitation_rate, warm_start

HELD_OUT = 500  # demonstrations of the test split, at most, for eval_loss


@dataclass(frozen=True)
class ImitatedRun:
    """A run of supervised training that has ended.

    Attributes:
        folder: of the run.
        agent: with the policy.
        result: what `rlenv sft --json` prints.
        held_out: how many held-out demonstrations the evaluation loss is of.
        signal: the number of the signal that ended it early; 0 for none.
    """

    folder: Path
    agent: Agent
    result: dict[str, Any]
    held_out: int
    signal: int


@job
def sft(config: SftConfig) -> ImitatedRun:
    """Return a run of supervised training on demonstrations, as `rlenv sft` makes it.

    Raises:
        ValueError: for a config that is wrong, in one line.
    """
    resumed, checkpoint = config.resume is not None, None
    config = begun_config(config) if resumed else with_task(config)
    config = config.but(device=meet(config.device, config.process_timeout))
    with ExitStack() as held:
        held.enter_context(trusting(config.trust or not resumed))
        if resumed:
            run, checkpoint = reopened(config, held)
            if processes.on_main(lambda: run.result).get("interrupted") is False:
                raise ValueError(f"the run {str(run.path)!r} is complete; to train longer, begin a new one from it")
        if not config.is_text:
            raise ValueError(f"{config.env_id} has no demonstrations to learn from")
        if config.problems is not None and "verifier" not in config.chosen:  # nothing judges
            config = config.but(verifier="exact", eval_episodes=0)
        if config.sft_steps is None:
            config = config.but(sft_steps=model_defaults.STEPS)
        agent, config = _agent(config)
        task = session.task_of(agent.env)
        session.check_problems(task)
        config = _amount(config, len(task.stream.listed))
        flags = f"--sft-learning-rate, {'--sft-steps' if config.epochs is None else '--epochs'}"
        rate = imitation_rate(agent, config)
        model_defaults.announce(agent, config.model, rate, f"{config.sft_steps} steps", "step", flags)
        demonstrations = None
        if config.sft_steps:
            demonstrations = session.demonstrations(task, config.sft_examples, config.seed, agent.device)
        episodes, envs = session.evaluation_of(agent, config.eval_episodes)
        if envs is not None:
            held.callback(envs.close)
        held_out = None if demonstrations is None else _held_out(agent, config)
        if not resumed:
            name = f"sft-{_source(config)}"
            run = RunFolder(processes.on_main(lambda: choose(config.log_dir, config.overwrite, name, held)))
        folder, run = run.path, own_folder(run, held)  # the user's, and the one that this process writes
        if not resumed:
            run.create(config.flat(), config.overwrite, held)
        if checkpoint is not None:
            agent.set_parameters(checkpoint.path)
            with reading(checkpoint.path):
                agent.extra_state = checkpoint.training()["extra"]
        saver = Saver(run, agent, config.save_every, updates=None, keep=1)
        if saver.state.setdefault("problems", task.stream.digest) != task.stream.digest:
            raise ValueError("the problems have changed since the run began: use the file that it began with")
        if resumed:
            run.write(CONFIG, config.flat())  # a file may have moved
        agent.set_logger(open_log(run, saver.state.get("log"), f"sft-seed-{config.seed}"))
        held.callback(agent.unwritten.close)
        with Interrupt() as interrupt:
            result = _train(saver, config, demonstrations, held_out, interrupt)
        if not interrupt.signal:
            result["eval_loss"] = _loss(agent, held_out, config)
            if envs is not None:
                result["eval"] = session.run_evaluation(agent, envs, episodes, config.seed)[0]
        run.write(RESULT, result)
    return ImitatedRun(folder, agent, result, 0 if held_out is None else len(held_out), interrupt.signal)


def _source(config: SftConfig) -> str:
    """Return the source of the demonstrations, for a run's name: the verifier, or a file or data set without one."""
    if config.problems is None or "verifier" in config.chosen:
        return short_name(named(config.verifier))
    return Path(re.sub("@[0-9a-f]{40}$", "", named(config.problems))).stem


def _train(
    saver: Saver, config: SftConfig, demonstrations: Rollout | None, held_out: Rollout | None, interrupt: Interrupt
) -> dict[str, Any]:
    """Imitate to the end or a signal; return the result without an evaluation."""
    state = saver.state
    if "initial" not in state:
        state["initial"] = {"eval_loss": _loss(saver.agent, held_out, config)}
    warm_start(saver, demonstrations, config, interrupt, in_passes=config.epochs is not None)
    figures = state["warm_start"]
    return {
        "run_dir": str(saver.run.path),
        "env": config.env_id,
        "seed": config.seed,
        "steps": figures["steps"],
        "examples": config.sft_examples,
        "loss": figures["loss"],
        "initial_eval_loss": state["initial"]["eval_loss"],
        "eval_loss": None,
        "seconds": figures["seconds"],
        "eval": None,
        "interrupted": bool(interrupt.signal),
    }


def show(run: ImitatedRun, as_json: bool) -> None:
    """Print the result of a run."""
    result = run.result
    if run.held_out and not run.signal:
        before, after = result["initial_eval_loss"], result["eval_loss"]
        say(f"loss on {run.held_out} held-out answers: {before:.3f} before, {after:.3f} after, in nats per token")
    if as_json:
        click.echo(json.dumps(result))
    else:
        figures = "" if result["eval"] is None else f"{describe(result['eval'])}\n"
        click.echo(f"{figures}Run folder: {result['run_dir']}")


def _agent(config: SftConfig) -> tuple[Agent, SftConfig]:
    """Return an agent with the model of a config, which is never asked to learn from rewards, and the config."""
    config = config.set(micro_batch_tokens=model_defaults.passes_of_imitation(config))
    with processes.alone():  # its share of the episodes of an update does not matter: there are none
        agent = build_agent("reinforce", config)
    processes.same_start(agent.policy)
    return agent, config


def _amount(config: SftConfig, listed: int) -> SftConfig:
    """Return the config with its examples and steps: of a file, all its training problems, in epochs if asked for.

    Raises:
        ValueError: for --epochs without a file, or together with --sft-steps.
    """
    if config.problems is None:
        if config.epochs is not None:
            raise ValueError("--epochs counts passes over a file: pass --problems, or --sft-steps instead")
        return config
    examples = min(config.sft_examples, listed) if "sft_examples" in config.chosen else listed
    if config.epochs is None:
        return config.but(sft_examples=examples)
    if "sft_steps" in config.typed:
        raise ValueError("--epochs and --sft-steps exclude each other")
    steps = config.epochs * -(-examples // max(config.sft_batch_size, 1))
    return config.but(sft_examples=examples, sft_steps=steps)


def _held_out(agent: Agent, config: SftConfig) -> Rollout | None:
    """Return demonstrations of problems in the test split; None if it is empty."""
    try:
        envs = session.envs_like(agent, 1, "test")
    except EmptySplitError:
        return None
    with closing(envs):
        task = session.task_of(envs)
        count = min(len(task.stream.listed) or HELD_OUT, HELD_OUT)
        return session.demonstrations(task, count, config.seed, agent.device)


def _loss(agent: Agent, held_out: Rollout | None, config: SftConfig) -> float | None:
    """Return the loss on held-out demonstrations; None without any."""
    if held_out is None:
        return None
    return demonstration_loss(agent.policy, held_out, config.sft_batch_size, agent.micro_batch_tokens)
