"""Steps of several commands: demonstrations for an agent, evaluations, samples."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging as transformers_logging

from rlenv.agents import Agent, Rollout, make_envs, processes
from rlenv.agents.rollouts.envs import LOOP_SETTINGS
from rlenv.demonstrations import NoDemonstrationError, demonstrate
from rlenv.stream import EmptySplitError
from rlenv.task import TextGenTask

from ..config.arguments import IN_TURN
from ..process.progress import say
from ..reports.rules import EVAL_EPISODES

transformers_logging.disable_progress_bar()  # the commands show their own
hub_logging.set_verbosity_error()  # a network that fails is one line, not one per try

EVAL_SLOTS = 256
CONTROL_EPISODES = 100  # of an evaluation without text, by default; EVAL_EPISODES of text
SAME_FILES = "give all machines the same files"


def task_of(env: Any) -> TextGenTask:
    """Return the task of the batched text environment."""
    return env.unwrapped.task


def check_problems(task: TextGenTask) -> None:
    """Check that all processes of a job have read the same problems.

    Raises:
        ValueError: if one has not.
    """
    processes.check_equal(task.stream.digest, "problem file", SAME_FILES)


def demonstrations_if_any(agent: Agent, config: Any) -> Rollout | None:
    """Return the demonstrations of a run with a warm start; None, with a line, if there are none.

    Raises:
        ValueError: for one that is too long, or missing although --sft-steps asks for it.
    """
    if config.sft_steps == 0:
        return None
    try:
        return demonstrations(task_of(agent.env), config.sft_examples, config.seed, agent.device)
    except NoDemonstrationError as error:
        if "sft_steps" in config.chosen:
            raise
        say(f"no warm start: {str(error).partition(', and')[0]}")
        return None


def demonstrations(task: TextGenTask, count: int, seed: int, device: Any) -> Rollout:
    """Return the verifier's demonstrations of the first problems of a task, at all levels, in the order of a seed."""
    task = copy.copy(task)
    task.stream = copy.copy(task.stream)  # the environment's own stream stays where it is
    task.stream.curriculum = None  # the policy has to have seen every level
    task.reseed(np.random.default_rng(seed))
    shown = demonstrate(task, 0, count, device)
    return Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)


def evaluation_envs(
    env_id: str, env_kwargs: dict[str, Any], device: Any, episodes: int, split: str | None, samples: int = 1
) -> Any:
    """Return new environments to evaluate in.

    For text, they pose the problems of the split from the first one, each so many times in a row, at all levels.

    Args:
        env_id: of the environment.
        env_kwargs: its arguments.
        device: of the policy.
        episodes: of the evaluation.
        split: of the problems; None without text.
        samples: per problem.
    """
    if split is not None:
        env_kwargs = {**env_kwargs, **IN_TURN, "split": split, "group_size": samples}
    return make_envs(env_id, min(episodes, EVAL_SLOTS), env_kwargs, device=str(device), **LOOP_SETTINGS)


def envs_like(agent: Agent, episodes: int, split: str | None) -> Any:
    """Return `evaluation_envs` like the one that an agent trains in; of text, with the loaded tokenizer."""
    tokenizer = getattr(agent.policy, "tokenizer", None)
    own = {**agent.origin["env_kwargs"], **({} if tokenizer is None else {"tokenizer": tokenizer})}
    return evaluation_envs(agent.origin["env"], own, agent.device, episodes, split)


def held_out_envs(agent: Agent, episodes: int) -> Any:
    """Return environments of the test split; if no problem of a file is in it, of the training split, with a line.

    Args:
        agent: that trains in such environments.
        episodes: of the evaluation.

    Raises:
        ValueError: for fewer episodes than processes.
    """
    split = "test" if hasattr(agent.env.unwrapped, "task") else None
    try:
        envs = envs_like(agent, episodes, split)
    except EmptySplitError as error:
        say(f"{str(error).partition(';')[0]}: the evaluation plays training problems, and tells nothing about others")
        split = "train"
        envs = envs_like(agent, episodes, split)
    check_dealt_out(episodes, split, "raise --eval-episodes, or pass 0 for no evaluation")
    return envs


def evaluation_of(agent: Agent, chosen: int | None) -> tuple[int, Any]:
    """Return the episodes of each evaluation of a run, and the environments for them; None for no evaluation.

    Args:
        agent: that trains.
        chosen: the option; None for the default: of text, at most the listed problems of the test split, or, without
            any, of the training split, which is then played.
    """
    sizes = task_of(agent.env).stream.sizes if hasattr(agent.env.unwrapped, "task") else None
    episodes = CONTROL_EPISODES if chosen is None else chosen
    if chosen is None and sizes is not None:
        episodes = min(EVAL_EPISODES, sizes.get("test") or sizes.get("train") or EVAL_EPISODES)
    return episodes, held_out_envs(agent, episodes) if episodes else None


def check_dealt_out(episodes: int, split: str | None, advice: str) -> None:
    """Check that every process has an episode of an evaluation.

    Args:
        episodes: of the evaluation.
        split: of its problems; None without text.
        advice: what to do, for the message.

    Raises:
        ValueError: for fewer episodes than processes.
    """
    if episodes < processes.size():
        of = f"{episodes} episode{'s' * (episodes != 1)}{f' of the {split} split' * bool(split)}"
        raise ValueError(
            f"the evaluation has {of} for {processes.size()} processes; {advice}, or start fewer processes"
        )


def run_evaluation(
    agent: Agent, envs: Any, episodes: int, seed: int, on_step: Any = None
) -> tuple[dict[str, Any], Rollout]:
    """Return the figures of a greedy evaluation, with its split, and its episodes, which depend on the seed alone.

    For text, `problems` is added, how many different ones were asked.
    """
    figures, rollout = agent.evaluate(envs, episodes, seed=seed, on_step=on_step)
    if not hasattr(envs.unwrapped, "task"):
        return figures | {"split": None}, rollout
    task = task_of(envs)
    return figures | {"split": task.split, "problems": len({*task.stream.first_equals(episodes)})}, rollout
