"""Steps of several commands: demonstrations for an agent, evaluations, samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from huggingface_hub.utils import logging as hub_logging
from rich.table import Table
from rich.text import Text
from transformers.utils import logging as transformers_logging

from rlenv.agents import Agent, Rollout, make_envs, processes
from rlenv.agents.rollouts.envs import LOOP_SETTINGS
from rlenv.demonstrations import NoDemonstrationError, demonstrate
from rlenv.stream import EmptySplitError
from rlenv.task import TextGenTask
from rlenv.verifiers.conversation import text_of

from ..config.arguments import IN_TURN
from ..config.configs import CompareConfig, SftConfig, TrainConfig
from ..config.options import is_text
from ..process.progress import Rate, Show, before_first_end, say
from ..process.terminal import console, plain
from ..reports.held_out import problem_figures
from ..run.folder import completion_of

transformers_logging.disable_progress_bar()  # the commands show their own
hub_logging.set_verbosity_error()  # a network that fails is one line, not one per try

EVAL_SLOTS = 256
Job = TrainConfig | SftConfig | CompareConfig


def task_of(env: Any) -> TextGenTask:
    """Return the task of the batched text environment."""
    return env.unwrapped.task


def demonstrations(agent: Agent, config: Job) -> Rollout | None:
    """Return the verifier's demonstrations of the first `sft_examples` training problems; None without a warm start.

    Raises:
        ValueError: for a demonstration that is missing or too long.
    """
    if config.sft_steps == 0:
        return None
    return first_demonstrations(task_of(agent.env), config.sft_examples, config.seed, agent.device)


def demonstrations_if_any(agent: Agent, config: Job) -> Rollout | None:
    """Return the demonstrations of a run; None, with a line, if there are none, unless --sft-steps asks for them."""
    try:
        return demonstrations(agent, config)
    except NoDemonstrationError as error:
        if "sft_steps" in config.chosen:
            raise
        say(f"no warm start: {str(error).partition(', and')[0]}")
        return None


def first_demonstrations(task: TextGenTask, count: int, seed: int, device: Any) -> Rollout:
    """Return the verifier's demonstrations of the first problems of a task, at all levels, in the order of a seed."""
    task = copy.copy(task)
    task.stream = copy.copy(task.stream)  # the environment's own stream stays where it is
    task.stream.curriculum = None  # the policy has to have seen every level
    task.reseed(np.random.default_rng(seed))
    shown = demonstrate(task, 0, count, device)
    return Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)


def arguments_of(agent: Agent) -> dict[str, Any]:
    """Return the arguments of an agent's environment for others like it; of text, with the loaded tokenizer."""
    tokenizer = getattr(agent.policy, "tokenizer", None)
    return {**agent.origin["env_kwargs"], **({} if tokenizer is None else {"tokenizer": tokenizer})}


def evaluation_envs(
    env_id: str, env_kwargs: dict[str, Any], device: Any, episodes: int, split: str, samples: int = 1
) -> Any:
    """Return new environments to evaluate in.

    For text, they pose the problems of the split from the first one, each so many times in a row, at all levels.
    """
    if is_text(env_id):
        env_kwargs = {**env_kwargs, **IN_TURN, "split": split, "group_size": samples}
    return make_envs(env_id, min(episodes, EVAL_SLOTS), env_kwargs, device=str(device), **LOOP_SETTINGS)


def held_out_envs(env_id: str, env_kwargs: dict[str, Any], device: Any, episodes: int) -> Any:
    """Return environments of the test split; if no problem of a file is in it, of the training split, with a line.

    Raises:
        ValueError: for fewer episodes than processes.
    """
    split = "test"
    try:
        envs = evaluation_envs(env_id, env_kwargs, device, episodes, split)
    except EmptySplitError as error:
        say(f"{str(error).partition(';')[0]}: the evaluation plays training problems, and tells nothing about others")
        split = "train"
        envs = evaluation_envs(env_id, env_kwargs, device, episodes, split)
    check_dealt_out(episodes, split if is_text(env_id) else "", "raise --eval-episodes, or pass 0 for no evaluation")
    return envs


def check_dealt_out(episodes: int, split: str, advice: str) -> None:
    """Check that every process has an episode of an evaluation.

    Args:
        episodes: of the evaluation.
        split: of its problems; empty without text.
        advice: what to do, for the message.

    Raises:
        ValueError: for fewer episodes than processes.
    """
    if episodes < processes.size():
        of = f"{episodes} episode{'s' * (episodes != 1)}{f' of the {split} split' * bool(split)}"
        raise ValueError(
            f"the evaluation has {of} for {processes.size()} processes; {advice}, or start fewer processes"
        )


def evaluation_episodes(text: bool, sizes: Mapping[str, int] | None = None) -> int:
    """Return the default number of episodes of an evaluation, at most the listed problems, whose `sizes` are by split.

    If none of them is in the test split, it plays those of training.
    """
    listed = sizes or {}
    return min(2000, listed.get("test") or listed.get("train") or 2000) if text else 100


def counting(show: Show, episodes: int, unit: str) -> Callable[[int, dict[str, Any]], bool]:
    """Return an `on_step` that shows how many of the episodes have ended, and the steps per second in this unit."""
    rate, done, steps = Rate(unit), 0, 0

    def on_step(taken: int, local: dict[str, Any]) -> bool:
        nonlocal done, steps
        all_of = processes.size()  # the others have about as many
        done, steps = done + all_of * int(local["dones"].sum()), steps + all_of * taken
        show(min(done, episodes), rate(steps) if done else before_first_end(steps, unit))
        return True

    return on_step


def run_evaluation(
    agent: Agent, envs: Any, episodes: int, seed: int, on_step: Any = None
) -> tuple[dict[str, Any], Rollout]:
    """Return the figures of a greedy evaluation, with its split, and its episodes, which depend on the seed alone.

    Of text also those of `held_out.problem_figures`.
    """
    figures, rollout = agent.evaluate(envs, episodes, seed=seed, on_step=on_step)
    if not hasattr(envs.unwrapped, "task"):
        return figures | {"split": None}, rollout
    task = task_of(envs)
    return figures | {"split": task.split} | problem_figures(task.stream, episodes), rollout


def print_samples(rows: Sequence[Mapping[str, Any]], split: str) -> None:
    """Print a table of samples on stderr."""
    table = Table("prompt", "completion", "reward", title=f"samples from the {split} split")
    for row in rows:  # brackets are not rich's markup
        cells = Text(plain(text_of(row["prompt"]))), Text(plain(completion_of(row)))
        table.add_row(*cells, f"{row['reward']:g}")
    console(error=True).print(table)


def describe(figures: dict[str, Any]) -> str:
    """Return an evaluation in one line."""
    parts = [f"mean reward {figures['mean_reward']:.3f}", f"mean length {figures['mean_ep_length']:.1f}"]
    if "mean_turns" in figures:
        parts.append(f"mean turns {figures['mean_turns']:.2f}")
    if figures["success_rate"] is not None:
        known = f" (known of {figures['success_known']:.0%})" if "success_known" in figures else ""
        parts.insert(0, f"success {figures['success_rate']:.3f}{known}")
    if "instruction_success" in figures:
        parts.insert(1, f"instructions followed {figures['instruction_success']:.3f}")
    where = f", {figures['split']} split" if figures["split"] else ""
    mode = "greedy" if figures["deterministic"] else "sampled"
    of = f" of {figures['problems']} problem{'s' * (figures['problems'] != 1)}" if "problems" in figures else ""
    if without := figures.get("unjudged_problems"):
        of = f", with verdicts on {figures['problems'] - without} of {figures['problems']} problems"
    return f"{', '.join(parts)}  ({figures['episodes']} episodes{of}, {mode}{where})"
