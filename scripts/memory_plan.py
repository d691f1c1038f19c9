"""rlenv train --dry-run: what memory a run needs and whether it fits."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch

from agents import make_envs, processes
from agents.files import read_table
from agents.fsdp import check_shard
from agents.language import memory
from agents.language.adapters import base_of, has_adapter
from agents.language.loading import config_of, find_config
from agents.language.memory import Workload
from agents.rollouts.envs import resolve_device
from agents.settings import declared_by
from agents.training.teacher import named_teacher

from . import session
from .arguments import agent_arguments, env_arguments, is_text, policy_arguments
from .errors import LOWER
from .names import agent_class
from .run import model_of
from .torchrun import count_here


def dry_run(given: dict[str, Any]) -> None:
    """Print the memory that the run of these options needs, by part and by phase, and whether it fits.

    Raises:
        ValueError: if it does not fit, with the setting to lower; for an environment without text.
    """
    if not is_text(given["env_id"]):
        raise ValueError(f"--dry-run plans the memory of language models; {given['env_id']} has no text")
    config, work = workload(given)
    plan, free = memory.plan(config, work), available(work.device)
    result = {"parameters": plan.parameters, "bytes": plan.parts, "peaks": plan.phases, "available": free}
    click.echo(json.dumps(result) if given["as_json"] else _table(plan, free, work.device))
    if free is not None and plan.peak > free:
        most = f"the run needs {_shown(plan.peak)} ({plan.busiest}), and {work.device} has {_shown(free)} free"
        raise ValueError(f"{most}; {_advice(config, work, plan, free)}")


def workload(given: dict[str, Any]) -> tuple[Any, Any]:
    """Return the configuration of the model that the options name, and what the run does with it."""
    cls, ranks = agent_class(given["agent"]), processes.size()
    check_shard(bool(given.get("shard")))
    policy = policy_arguments(given)  # it asks for peft, if needed
    envs = make_envs(given["env_id"], 1, env_arguments(given))
    task = session.task_of(envs)
    asked = agent_arguments(given["agent"], cls, given)
    if "engine" in asked:
        import_module("agents.engines.player").check_named(asked["engine"], asked.get("engine_url"))
    usual = {name: one.by_kind.get("language-model", one.default) for name, one in declared_by(cls).items()}
    settings = usual | asked
    episodes, vocabulary = settings["episodes_per_update"], int(envs.single_action_space.n)
    steps = settings.get("num_minibatches") or 1
    slots = asked.get("num_envs") or min(settings["num_envs"], episodes)
    evaluated = session.evaluation_episodes(True) if given["eval_episodes"] is None else given["eval_episodes"]
    facts = {
        "prompt_length": task.max_prompt_tokens,
        "context": task.max_length,
        "sampled": min(task.encoding.max_turns * task.max_new_tokens, task.max_length - task.max_prompt_tokens),
        "reply_length": task.encoding.max_reply_tokens,
        "episodes": -(-episodes // (steps * ranks)),
        "slots": -(-slots // ranks),
        "group_size": settings.get("group_size") or cls.default_group_size,
        "device": resolve_device(given["device"], given["env_id"]).type,
        "critic": policy.pop("critic", "head") if cls.uses_critic else None,
        "entropy": bool(settings.get("ent_coef")),
        "reference": bool(settings.get("kl_coef")) or given["log_kl"] or _teaches_a_copy(settings),
        "teacher": _teacher_bytes(given, policy),
        "imitated": -(-given["sft_batch_size"] // ranks) if given["sft_steps"] else 0,
        "evaluated": -(-min(evaluated, session.EVAL_SLOTS) // ranks),
        "holders": ranks if settings.get("shard") else 1,
    }
    own = {name: value for name, value in (policy | settings).items() if name in Workload.__dataclass_fields__}
    work = Workload(**{name: value for name, value in own.items() if value is not None} | facts)
    return config_of(model_of(given["model"]), vocabulary, task.max_length), work


def _teaches_a_copy(settings: dict[str, Any]) -> bool:
    """Return whether the run keeps a copy of its own weights as a teacher."""
    return settings.get("teacher") is None and settings.get("teacher_weights", "live") != "live"


def _teacher_bytes(given: dict[str, Any], policy: dict[str, Any]) -> int:
    """Return the bytes of the teacher's weights; 0 without one, or if it shares the base of the run's adapter."""
    if given.get("teacher") is None:
        return 0
    own, model = (model_of(given[name]) for name in ("model", "teacher"))
    bases = [str(base_of(each)[0] if has_adapter(each) else each) for each in (own, model)]
    if bases[0] == bases[1] and (policy.get("lora_rank") or has_adapter(own)):
        return 0
    saved = Path(model).parent / "policy.json"
    dtype = read_table(saved)["dtype"] if saved.is_file() else policy.get("dtype") or "float32"
    with named_teacher(given["teacher"]):
        return memory.plan(find_config(model), Workload(1, 2, 1, dtype=dtype)).parts["weights"]


def available(device: str) -> int | None:
    """Return the bytes that are free on the device, for this process; None if the system does not say.

    Processes of one machine share its memory.
    """
    if device != "cpu":
        return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else None
    free = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with suppress(OSError, ValueError):  # a container's own limit
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        free.append(int(limit) - int(used))
    return max(min(free) // count_here(), 0) if free else None


def _advice(config: Any, work: Any, plan: Any, free: int) -> str:
    """Return the setting that makes the busiest phase fit."""
    if plan.busiest != "training":
        return f"lower {LOWER[plan.busiest]}"
    if tokens := memory.fitting_micro_batch_tokens(config, work, free):
        return f"pass --micro-batch-tokens {tokens}"
    more = "" if work.activation_checkpointing else "pass --activation-checkpointing, or "
    return f"{more}lower --max-new-tokens or the size of --model: not even one episode at a time fits"


def _table(plan: Any, free: int | None, device: str) -> str:
    rows = [("parameters", f"{plan.parameters:,}"), *((name, _shown(size)) for name, size in plan.parts.items())]
    rows += [(f"peak: {name}", _shown(size)) for name, size in plan.phases.items()]
    rows.append((f"free on {device}", "unknown" if free is None else _shown(free)))
    fits = "unknown" if free is None else "yes" if plan.peak <= free else "no"
    return "\n".join(f"{name:<24}{size:>16}" for name, size in [*rows, ("the run fits", fits)])


def _shown(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
