"""The defaults that depend on the model: its warm start, its learning rate, and passes that fit the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlenv.agents import Agent
from rlenv.agents.policies import NAMES
from rlenv.agents.policies.presets import PRESETS

from ..config.arguments import is_text
from ..process.progress import say
from ..run.folder import model_of
from .memory_plan import free_for, workload

STEPS = 500  # of the warm start of a preset, which begins with random weights
LARGE = 20_000_000  # parameters; the passes of smaller models are split only if that is asked for
SHARE = 0.8  # of the free memory, that a run may plan with


def fill_in(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run with what suits its model, for those that were not given.

    A model of your own gets no warm start. A large one gets passes that fit the free memory; the number of tokens is
    kept in the run's options, so that the run is the same when it is repeated or resumed elsewhere.
    """
    if not is_text(given["env_id"]):
        return given
    given = {**given, "sft_steps": warm_start_steps(given)}
    return {**given, "micro_batch_tokens": passes(given)}


def passes_of_imitation(given: dict[str, Any]) -> int | None:
    """Return the tokens per pass of `rlenv sft`: those of a run that trains on as many episodes at once."""
    alike = {"agent": "reinforce", "log_kl": False, "episodes_per_update": given["sft_batch_size"]}
    return passes({**given, **alike})


def passes(given: dict[str, Any], together: int = 1) -> int | None:
    """Return the tokens per pass: what was asked for, else what fits; None for one pass, or for passes by rows.

    Args:
        given: the options of a run.
        together: how many such runs share the memory.
    """
    from rlenv.agents.language import memory

    if given["micro_batch_size"] is not None or given["micro_batch_tokens"] is not None:
        return given["micro_batch_tokens"]
    model = model_of(given["model"])
    size = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))  # two bytes per weight, or more
    if model in ("auto", "tiny", "small") or 0 < size < 2 * LARGE:  # a plan needs the environment, which takes a second
        return None
    config, work = workload(given)
    plan, free = memory.plan(config, work), free_for(given, work.device)
    if free is None or plan.parameters < LARGE or plan.peak <= (budget := int(SHARE * free / together)):
        return None
    return max(memory.fitting_micro_batch_tokens(config, work, budget), work.context - 1)


def warm_start_steps(given: dict[str, Any]) -> int:
    """Return the steps of a run's warm start: for a model of your own none, unless asked for."""
    if given["sft_steps"] is not None:
        return int(given["sft_steps"])
    return STEPS if given["model"] in NAMES else 0


def announce(agent: Agent, given: dict[str, Any]) -> None:
    """Print one line about the defaults that were chosen for a model of the user, or for a large one."""
    if not is_text(given["env_id"]):
        return
    if given["model"] in PRESETS and Path(given["model"], "config.json").is_file():
        say(f"--model {given['model']} is the preset, not the folder of that name; for the folder: ./{given['model']}")
    policy: Any = agent.policy
    count, tokens, rate = policy.model.num_parameters(), agent.micro_batch_tokens, agent.learning_rate
    if given["model"] in NAMES and count < LARGE:
        return
    said = [f"learning rate {rate:g}" if isinstance(rate, float) else "learning rate of its schedule"]
    said.append(f"{given['sft_steps'] or 'no'} steps of warm start")
    if agent.micro_batch_size is None:
        said.append(f"{tokens} tokens per pass" if tokens else "one pass per update")
    say(f"{count / 1e6:,.1f} M parameters: {', '.join(said)} (--learning-rate, --sft-steps, --micro-batch-tokens)")
