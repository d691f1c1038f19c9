"""rlenv train --dry-run: the memory that a run needs, and whether it fits."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch

from rlenv._settings import declared_by
from rlenv.agents import make_envs, processes
from rlenv.agents.language import memory
from rlenv.agents.language.loading import base_of, config_of, find_config, has_adapter
from rlenv.agents.language.memory import Workload
from rlenv.agents.language.policy_folder import saved_setting
from rlenv.agents.rollouts.envs import resolve_device
from rlenv.agents.training.teacher import named_teacher

from ..config.arguments import agent_arguments, env_arguments, policy_arguments
from ..config.base import named
from ..config.configs import TrainConfig
from ..config.names import agent_class
from ..process.torchrun import number
from ..run.folder import model_of
from . import session


def dry_run(config: TrainConfig) -> None:
    """Print the memory that each process of the run of these options needs, by part and by phase, and whether it fits.

    Raises:
        ValueError: if it does not fit, with what to change for each phase; for an environment without text.
    """
    if not config.is_text:
        raise ValueError(f"--dry-run plans the memory of language models; {config.env_id} has no text")
    network, work = workload(config)
    plan, free = memory.plan(network, work), free_for(config, work.device)
    ranks = config.plan_processes or processes.size()
    over = [name for name, size in plan.phases.items() if free is not None and size > free]
    anchored = bool(config.settings.get("kl_coef"))
    remedies = _remedies(network, work, over, free or 0, ranks, anchored) if over else {}
    result = {"processes": ranks, "parameters": plan.parameters, "bytes": plan.parts, "peaks": plan.phases}
    result |= {"available": free, "remedies": remedies}
    where = f"{'of' if config.plan_memory else 'free on'} {work.device}"
    click.echo(json.dumps(result) if config.as_json else _table(plan, free, over, ranks, where))
    if free is not None and remedies:
        by_remedy: dict[str, list[str]] = {}
        for phase, remedy in remedies.items():
            by_remedy.setdefault(remedy, []).append(f"{phase} ({_shown(plan.phases[phase])})")
        each = "; ".join(f"{', '.join(phases)}: {remedy}" for remedy, phases in by_remedy.items())
        of_each = f", for each of {ranks} processes" if ranks > 1 else ""
        raise ValueError(f"the run does not fit in the {_shown(free)} {where}{of_each}: {each}")


def workload(config: TrainConfig) -> tuple[Any, Any]:
    """Return the configuration of the model that the options name, and the run's workload."""
    cls, model, ranks = agent_class(config.agent), model_of(config.model), config.plan_processes or processes.size()
    if config.settings.get("shard"):
        if config.dry_run and ranks == 1:
            raise ValueError("--shard deals the weights out to processes: plan for several with --plan-processes N")
        import_module("rlenv.agents.sharding").check_processes(ranks)
    policy = policy_arguments(config)  # it asks for peft, if needed
    envs = make_envs(config.env_id, 1, env_arguments(config, config.env_id, config.env_kwargs, config.model))
    encoding = session.task_of(envs).encoding
    chosen = agent_arguments(config, cls, named(config.agent))
    if "engine" in chosen:
        import_module("rlenv.agents.engines.player").check_named(chosen["engine"], chosen.get("engine_url"))
    usual = {name: one.by_kind.get("language-model", one.default) for name, one in declared_by(cls).items()}
    settings = usual | chosen
    agent: Any = object.__new__(cls)  # what it declares may depend on its settings
    vars(agent).update(settings)
    if config.plan_memory is None:
        device = resolve_device(config.device, config.env_id).type
    else:  # of a device that need not be here: a GPU by default
        device = "cuda" if config.device == "auto" else config.device.partition(":")[0]
    episodes, vocabulary = settings["episodes_per_update"], int(envs.single_action_space.n)
    steps = settings.get("num_minibatches") or 1
    group_size = settings.get("group_size") or cls.default_group_size
    if config.dry_run:
        processes.check_episodes(episodes, group_size, ranks)
    slots = 0 if "engine" in chosen else chosen.get("num_envs") or min(settings["num_envs"], episodes)
    taught_by_copy = settings.get("teacher") is None and settings.get("teacher_weights", "live") != "live"
    facts = {
        "prompt_length": encoding.max_prompt_tokens,
        "context": encoding.max_length,
        "sampled": min(
            encoding.max_turns * encoding.max_new_tokens,
            encoding.max_length - encoding.max_prompt_tokens,
        ),
        "reply_length": encoding.max_reply_tokens,
        "episodes": -(-episodes // (steps * ranks)),
        "slots": -(-slots // ranks),
        "group_size": group_size,
        "device": device,
        "critic": policy.pop("critic", "head") if agent.uses_critic else None,
        "entropy": bool(settings.get("ent_coef")),
        "reference": bool(settings.get("kl_coef")) or taught_by_copy,
        "teacher": _teacher_bytes(config.settings.get("teacher"), model, policy),
        "holders": ranks if settings.get("shard") else 1,
        "engine": _engine_bytes(config, chosen, device),
    }
    own = {name: value for name, value in (policy | settings).items() if name in Workload.__dataclass_fields__}
    work = Workload(**{name: value for name, value in own.items() if value is not None} | facts)
    return config_of(model, vocabulary, encoding.max_length), work


def _engine_bytes(config: TrainConfig, chosen: dict[str, Any], device: str) -> int:
    """Return the bytes that an engine in this process takes, on a CPU beside its weights; 0 without one."""
    if "engine" not in chosen or "engine_url" in chosen:
        return 0
    vllm = import_module("rlenv.agents.engines.vllm")
    if device != "cuda":
        return int(config.engine_kwargs.get("kv_cache_memory_bytes", vllm.KV_CACHE))
    total = config.plan_memory or torch.cuda.mem_get_info()[1]
    return int(config.engine_kwargs.get("gpu_memory_utilization", vllm.SHARE) * total)


def _teacher_bytes(teacher: Any, own: str, policy: dict[str, Any]) -> int:
    """Return the bytes of the teacher's weights; 0 without one, or if it shares the base of the run's adapter."""
    if teacher is None:
        return 0
    model = model_of(teacher)
    bases = [str(base_of(each)[0]) for each in (own, model)]
    if bases[0] == bases[1] and (policy.get("lora_rank") or has_adapter(own)):
        return 0
    dtype = saved_setting(Path(model).parent, "dtype") or policy.get("dtype") or "float32"
    with named_teacher(teacher):
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
    return max(min(free) // number("LOCAL_WORLD_SIZE", alone=1), 0) if free else None


def free_for(config: TrainConfig, device: str) -> int | None:
    """Return the bytes that each process of the run that is planned has on its device; None if unknown."""
    if config.plan_memory:
        return int(config.plan_memory)
    free, planned = available(device), config.plan_processes or 1
    return free // planned if free is not None and device == "cpu" else free


def _remedies(network: Any, work: Any, over: list[str], free: int, ranks: int, anchored: bool) -> dict[str, str]:
    """Return remedies for these phases: how much at once fits; if nothing does, options to plan again with."""
    most = memory.fitting(network, work, free)
    unused = {
        "--kl-coef 0": anchored,
        "--activation-checkpointing": not work.activation_checkpointing,
        "--lora-rank 16": not work.lora_rank,
        "--dtype bfloat16": work.dtype == "float32",
        "--shard": work.holders == 1,
    }
    again = ", ".join(["fewer --max-new-tokens", *(option for option, helps in unused.items() if helps)])

    def remedy(phase: str) -> str:
        if phase == "acting" and most[phase]:
            return f"lower --num-envs to {most[phase] * ranks}"
        if phase == "training" and most[phase]:
            return f"pass --micro-batch-tokens {most[phase] * (work.context - 1)}"
        return f"plan again with {again} or a smaller --model"

    return {phase: remedy(phase) for phase in over}


def _table(plan: Any, free: int | None, over: list[str], ranks: int, where: str) -> str:
    rows = [("parameters", f"{plan.parameters:,}"), *((name, _shown(size)) for name, size in plan.parts.items())]
    rows = [("processes", str(ranks))] * (ranks > 1) + rows
    rows += [(f"peak: {name}", _shown(size)) for name, size in plan.phases.items()]
    rows.append((where, "unknown" if free is None else _shown(free)))
    fits = "unknown" if free is None else "yes" if not over else "no"
    return "\n".join(
        f"{name:<24}{size:>16}{'  does not fit' * (name.removeprefix('peak: ') in over)}"
        for name, size in [*rows, ("the run fits", fits)]
    )


def _shown(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
