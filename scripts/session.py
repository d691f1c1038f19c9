"""What the commands do together: build an agent from options, warm it up, evaluate it, show samples."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging

from agents import Agent, Rollout, find_agent, make_envs, warm_start
from agents.checks import check_choice, check_count, check_number
from agents.envs import LOOP_OFFERS, find_spec
from agents.policies import NAMES, check_name, find_config
from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask

from . import run_folder
from .options import TEXT_ONLY
from .progress import Interrupt, progress_bar

transformers_logging.disable_progress_bar()  # ours are shown instead

EVAL_SLOTS = 256
AGENT_OPTIONS = (
    "baseline", "returns", "learning_rate", "lr_schedule", "episodes_per_update", "num_envs", "group_size", "gamma",
    "max_grad_norm", "ent_coef", "vf_coef", "kl_coef", "kl_estimator", "kl_in", "micro_batch_size",
    "micro_batch_tokens", "max_failed_share", "seed", "device",
)  # fmt: skip
TASK_OPTIONS = (
    "test_fraction", "max_prompt_tokens", "max_new_tokens", "long_prompts", "curriculum", "verifier_workers",
    "verifier_timeout", "verifier_memory_mb",
)  # fmt: skip


def is_text(env_id: str) -> bool:
    """Tell whether this id names our text environment.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    return find_spec(env_id).name == "TextGen"


def env_kwargs_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments; text options for another environment are an error."""
    kwargs = dict(options["env_args"])
    for name in ("verifier", "verifier_kwargs", "problems", "split", "group_size"):
        if name in kwargs and is_text(options["env_id"]):
            raise ValueError(f"--env-arg {name}=... has no meaning here; see --help for the option that sets it")
    if not is_text(options["env_id"]):
        context = click.get_current_context()
        for name in TEXT_ONLY:
            if name in options and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = {"column_args": "column"}.get(name, name).replace("_", "-")
                raise ValueError(f"--{flag} has no meaning for {options['env_id']}")
        return kwargs
    unsafe = {"unsafe_local_exec": True} if options.get("unsafe_local_exec") else {}
    kwargs |= {"verifier": options["verifier"], "verifier_kwargs": dict(options["verifier_args"]) | unsafe}
    tokenizer = options["tokenizer"] or _tokenizer_of(run_folder.model_of(options["model"]))
    optional = {
        "tokenizer": tokenizer,
        **{name: options.get(name) for name in TASK_OPTIONS},
        **problem_file_of(options),
        "first_problem": kwargs.get("first_problem", _first_problem(options)),
    }
    return kwargs | {name: value for name, value in optional.items() if value is not None}


def _first_problem(options: dict[str, Any]) -> int | None:
    """Return the number of the first problem of training: after those of the warm start, also one of an earlier run."""
    for run in (options, run_folder.config_of(options["model"])):
        if run.get("sft_steps"):
            return check_count("sft_examples", run["sft_examples"])
    return None


def problem_file_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments for problems from a file; all None where there is no file.

    Raises:
        ValueError: for --column or --prompt-template without a file.
    """
    columns, template = dict(options.get("column_args", ())), options.get("prompt_template")
    if options.get("problems") is None and (columns or template is not None):
        raise ValueError(f"--{'column' if columns else 'prompt-template'} says how to read a file: pass --problems")
    return {"problems": options.get("problems"), "columns": columns or None, "template": template}


def _tokenizer_of(model: str) -> str | None:
    """Return the model's own tokenizer, None where it has none."""
    if model in NAMES:
        return None
    check_name(model)
    find_config(model)
    if Path(model).is_dir() and not Path(model, "tokenizer_config.json").is_file():
        return None
    return model


def build_agent(name: str, options: dict[str, Any]) -> Agent:
    """Return the agent that the options describe.

    Raises:
        ValueError: for an unknown agent, an option that it does not take, and as its constructor says.
    """
    cls = find_agent(name)
    accepted = _arguments_of(cls)
    given = {key: options[key] for key in AGENT_OPTIONS if options.get(key) is not None}
    for key in given:
        if key not in accepted:
            raise ValueError(f"agent {name!r} takes no --{key.replace('_', '-')}")
    for key, value in dict(options.get("agent_args", ())).items():
        if key in AGENT_OPTIONS:
            raise ValueError(f"--agent-arg {key}: there is an option for it, --{key.replace('_', '-')}")
        check_choice(f"--agent-arg of {name!r}", key, sorted(accepted - set(AGENT_OPTIONS)))
        given[key] = value
    text = is_text(options["env_id"])
    if text and "temperature" in dict(options.get("policy_args", ())):
        raise ValueError("--policy-arg temperature: there is an option for it, --temperature")
    agent = cls(
        run_folder.model_of(options["model"]),
        options["env_id"],
        env_kwargs=env_kwargs_of(options),
        policy_kwargs=({"temperature": options["temperature"]} if text else {}) | dict(options.get("policy_args", ())),
        **given,
    )
    if text:
        agent.policy.tokenizer = task_of(agent.env).tokenizer
    return agent


def _arguments_of(cls: type[Agent]) -> set[str]:
    """Return the settings that an agent's constructor takes, its ancestors' included."""
    names = {
        parameter
        for ancestor in cls.__mro__
        if issubclass(ancestor, Agent)
        for parameter in inspect.signature(ancestor).parameters
    }
    return names - {"policy", "env", "env_kwargs", "policy_kwargs", "kwargs", "tensorboard_log", "verbose"}


def task_of(env: Any) -> TextGenTask:
    """Return the task of our batched text environment."""
    return env.unwrapped.task


def demonstrations(agent: Agent, options: dict[str, Any]) -> Rollout | None:
    """Return the verifier's demonstrations of the first `sft_examples` training problems; None without a warm start.

    Raises:
        ValueError: for options of the warm start out of range, or a demonstration that is missing or too long.
    """
    steps = check_count("sft_steps", options["sft_steps"], low=0)
    examples = check_count("sft_examples", options["sft_examples"])
    check_count("sft_batch_size", options["sft_batch_size"])
    check_number("sft_learning_rate", options["sft_learning_rate"], low=0.0, above=True)
    if steps == 0:
        return None
    task = copy.copy(task_of(agent.env))
    task.stream = copy.copy(task.stream)  # the environment's own stream stays where it is
    task.stream.curriculum = None  # a level that was never shown could not be climbed to
    task.reseed(np.random.default_rng(options["seed"]))
    shown = demonstrate(task, 0, examples, agent.device)
    return Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask)


def warm_up(agent: Agent, episodes: Rollout | None, options: dict[str, Any], interrupt: Interrupt) -> list[float]:
    """Imitate the demonstrations; return the losses."""
    if episodes is None:
        return []
    steps = options["sft_steps"]
    generator = torch.Generator().manual_seed(options["seed"])

    def batch(size: int) -> Rollout:
        return episodes.select(torch.randint(len(episodes), (size,), generator=generator))

    with progress_bar("warm start", steps) as show:

        def on_step(step: int, loss: float) -> bool:
            show(step + 1, f"loss {loss:.3f}")
            return not interrupt.asked

        rate, size = options["sft_learning_rate"], options["sft_batch_size"]
        return warm_start(agent.policy, batch, steps, size, rate, on_step=on_step)


def evaluation_envs(env_id: str, env_kwargs: dict[str, Any], device: Any, episodes: int, split: str) -> Any:
    """Return fresh environments to evaluate in; text ones on the given split from its first problem, at all levels."""
    if is_text(env_id):
        env_kwargs = {**env_kwargs, "split": split, "group_size": 1, "first_problem": 0, "curriculum": None}
    return make_envs(env_id, min(episodes, EVAL_SLOTS), env_kwargs, device=str(device), **LOOP_OFFERS)


def evaluation_episodes(text: bool) -> int:
    """Return how many episodes an evaluation plays where nobody says."""
    return 2000 if text else 100


def run_evaluation(
    agent: Agent, envs: Any, episodes: int, seed: int, deterministic: bool = True
) -> tuple[dict[str, Any], Rollout]:
    """Evaluate on episodes that depend on the seed alone; add which split they came from."""
    figures, rollout = agent.evaluate(envs, episodes, deterministic, seed)
    return figures | {"split": task_of(envs).split if hasattr(envs.unwrapped, "task") else None}, rollout


def sample_rows(task: TextGenTask, rollout: Rollout, count: int = 10) -> list[tuple[str, str, float]]:
    """Return prompt, completion and reward of the first episodes."""
    rows = []
    assert isinstance(rollout.observations, dict)
    for i in range(min(count, len(rollout))):
        length = int(rollout.observations["length"][i])
        prompt = task.tokenizer.decode(rollout.observations["tokens"][i, :length].tolist())
        completion = task.tokenizer.decode(rollout.actions[i][rollout.mask[i]].tolist())
        rows.append((prompt, completion, float(rollout.returns[i])))
    return rows


def print_samples(rows: list[tuple[str, str, float]], split: str) -> None:
    """Print a table of samples on stderr."""
    table = Table("prompt", "completion", "reward", title=f"samples from the {split} split")
    for prompt, completion, reward in rows:
        table.add_row(prompt, completion, f"{reward:g}")
    Console(stderr=True).print(table)


def samples_markdown(rows: list[tuple[str, str, float]]) -> str:
    """Return the same table for TensorBoard and samples.md."""

    def cell(text: str) -> str:
        return "`" + json.dumps(text, ensure_ascii=False)[1:-1].replace("|", "\\|").replace("`", "'") + "`"

    lines = ["| prompt | completion | reward |", "|---|---|---|"]
    return "\n".join(lines + [f"| {cell(p)} | {cell(c)} | {r:g} |" for p, c, r in rows]) + "\n"


def describe(figures: dict[str, Any]) -> str:
    """Return an evaluation in one line."""
    success = figures["success_rate"]
    parts = [f"mean reward {figures['mean_reward']:.3f}", f"mean length {figures['mean_ep_length']:.1f}"]
    if success is not None:
        parts.insert(0, f"success {success:.3f}")
    mode = "greedy" if figures["deterministic"] else "sampled"
    where = f", {figures['split']} split" if figures["split"] else ""
    return f"{', '.join(parts)}  ({figures['episodes']} episodes, {mode}{where})"
