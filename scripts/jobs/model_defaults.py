"""The defaults that depend on the model: its warm start, its learning rate, and passes that fit the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlenv.agents.language import memory
from rlenv.agents.policies import NAMES
from rlenv.agents.policies.presets import PRESETS

from ..config.configs import SftConfig, TrainConfig
from ..process.progress import say
from ..run.folder import model_of
from .memory_plan import free_for, workload

STEPS = 500  # of the warm start of a preset, which begins with random weights
LARGE = 20_000_000  # parameters; the passes of smaller models are split only if that is asked for
SHARE = 0.8  # of the free memory, that a run may plan with
# Tokens per pass of supervised training on a CPU. With 256, 512, 1024, 2048 and 4096 a core read 149, 207, 238, 250 and
# 252 tokens per second, and the run held 2.3, 2.5, 3.2, 4.7 and 6.5 GiB (135 million weights, bfloat16).
MOST_IMITATED = 2048


def passes_of_imitation(config: SftConfig) -> int | None:
    """Return the tokens per pass of `rlenv sft`: as for a run with as many episodes per update, on a CPU fewer."""
    alike = config.into(TrainConfig, agent="reinforce")
    return passes(alike.set(episodes_per_update=config.sft_batch_size), most_on_cpu=MOST_IMITATED)


def passes(config: TrainConfig, together: int = 1, most_on_cpu: int | None = None) -> int | None:
    """Return the tokens per pass: the setting, else as many as fit; None for one pass, or for passes by rows.

    The number is kept in the run's config, so that the run is the same when it is repeated or resumed elsewhere.

    Args:
        config: of a run.
        together: how many such runs share the memory.
        most_on_cpu: tokens per pass on a CPU, even if more fit.
    """
    settings = config.settings
    if settings.get("micro_batch_size") is not None or settings.get("micro_batch_tokens") is not None:
        return settings.get("micro_batch_tokens")
    model = model_of(config.model)
    size = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))  # two bytes per weight, or more
    if model in ("auto", "tiny", "small") or 0 < size < 2 * LARGE:  # a plan needs the environment, which takes a second
        return None
    network, work = workload(config)
    plan, free = memory.plan(network, work), free_for(config, work.device)
    if plan.parameters < LARGE:
        return None
    tokens = whole = work.episodes * (work.context - 1)
    if free is not None and plan.peak > (budget := int(SHARE * free / together)):
        tokens = max(memory.fitting(network, work, budget)["training"], 1) * (work.context - 1)
    if most_on_cpu is not None and work.device == "cpu":
        tokens = min(tokens, most_on_cpu)
    return None if tokens >= whole else tokens


def warm_start_steps(chosen: int | None, model: str) -> int:
    """Return the steps of a run's warm start: those that were chosen, else none for a model of your own."""
    return (STEPS if model in NAMES else 0) if chosen is None else chosen


def announce(agent: Any, model: str, rate: Any, amount: str, unit: str, flags: str) -> None:
    """Print one line about the defaults that were chosen for a model of the user, or for a large one.

    Args:
        agent: with the model.
        model: as it is named.
        rate: the learning rate, a number or a function.
        amount: of supervised training.
        unit: of what one pass or several make.
        flags: the options that set rate and amount.
    """
    if model in PRESETS and Path(model, "config.json").is_file():
        say(f"--model {model} is the preset, not the folder of that name; for the folder: ./{model}")
    if model in NAMES and agent.policy.model.num_parameters() < LARGE:
        return
    chosen = [f"learning rate {rate:g}" if isinstance(rate, float) else "learning rate of its schedule", amount]
    if agent.micro_batch_size is None:
        tokens = agent.micro_batch_tokens
        chosen.append(f"{tokens} tokens per pass" if tokens else f"one pass per {unit}")
    millions = agent.policy.model.num_parameters() / 1e6
    say(f"{millions:,.1f} M parameters: {', '.join(chosen)} ({flags}, --micro-batch-tokens)")
