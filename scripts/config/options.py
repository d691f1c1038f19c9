"""Options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from rlenv.agents.checks import MOST_SLOTS

from .config_file import read_config
from .defaults import about, by_agent, shown_default
from .names import Name, verifiers
from .parameters import KeyValue, Options, ProblemSource, group, option, typed
from .task_options import tasks

COUNT, FROM_ZERO = click.IntRange(min=1), click.IntRange(min=0)
RATE = click.FloatRange(0, 1e30, min_open=True)  # of learning: with more, Adam's step overflows
_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "schedule": float}


def declared(command: str, heading: str = "Updates") -> Options:
    """Return the options for the settings that the agents declare for a command ("train", "compare" or "sft")."""
    made = []
    for name, of_agents in by_agent().items():
        first, flag = next(iter(of_agents.values())), f"--{name.replace('_', '-')}"
        if command in first.commands and first.heading == heading:
            kind = _TYPES.get(first.kind, str)
            flags = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
            made.append(option(flags, kind, about(of_agents), shown=shown_default(of_agents)))
    return group(heading, *made)


def one_budget(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with at most one of --timesteps and --episodes; the command line wins over a file.

    Raises:
        ValueError: if the command line, or the file, sets both.
    """
    both = ("timesteps", "episodes")
    if any(given[name] is None for name in both):
        return given
    wanted = [name for name in both if typed(name)]
    if len(wanted) != 1:
        raise ValueError("--timesteps and --episodes exclude each other")
    return given | dict.fromkeys(both) | {wanted[0]: given[wanted[0]]}


def problem_file_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments for problems from a file; all None without a file.

    Raises:
        ValueError: for --column or --prompt-template without a file.
    """
    columns, template = dict(options.get("column_args", ())), options.get("prompt_template")
    if options.get("problems") is None and (columns or template is not None):
        raise ValueError(f"--{'column' if columns else 'prompt-template'} says how to read a file: pass --problems")
    return {"problems": options.get("problems"), "columns": columns or None, "template": template}


agent_arg = group(
    "Options",
    option("--agent-arg agent_args", KeyValue(), "Setting without an option, such as clip_range=0.3.", multiple=True),
)

as_json = group(
    "Options", option("--json as_json", bool, "Print the result as one JSON object on the last line.", False)
)

common = group(
    "Every run",
    option("--seed", FROM_ZERO, "Seed of everything random in the run.", 0),
    option("--device", str, "Device: auto, cpu, cuda, cuda:1, ...", "auto"),
    option(
        "--config",
        click.Path(exists=True, dir_okay=False, path_type=Path),
        "YAML or JSON file with options of this command; the command line wins.",
        is_eager=True,
        expose_value=False,
        callback=read_config,
    ),
    *as_json,
)

processes = group(
    "Every run",
    option("--process-timeout", click.FloatRange(min=1), "Seconds that processes of torchrun wait for others.", 1800.0),
)

run_folder = group(
    "Run folder and checkpoints",
    option("--log-dir", click.Path(file_okay=False, path_type=Path), "The run folder.", shown="runs/NAME"),
    option("--overwrite", bool, "Replace an existing run folder.", False),
)

environment = group(
    "Environment",
    option("--env env_id", Name(), "Gymnasium's id, package:Name-v0, file.py:Name-v0 or file.py:Class.", "TextGen-v0"),
    option("--env-arg env_args", KeyValue(), "Argument of the environment.", multiple=True),
)

problem_file = group(
    "Problems (text)",
    option(
        "--problems",
        ProblemSource(),
        "File of problems: .jsonl, .json, .csv, .tsv, .parquet, a folder of datasets, or hf:org/name of the hub.",
        shown="the verifier's own",
    ),
    option("--column column_args", KeyValue(text=True), "Name of a column, as in prompt=question.", multiple=True),
    option("--prompt-template", str, "Prompts from columns, as in 'Q: {question} A:'.", shown="the prompt column"),
)

verifier_arg = group(
    "Verifier (text)",
    option("--verifier-arg verifier_args", KeyValue(), "Argument of the verifier.", multiple=True),
)
verifier = group(
    "Verifier (text)",
    option("--verifier", Name(verifiers), "Name, file.py:function or module:Name; or several: f,a.py:g=0.5.", "arith"),
    *verifier_arg,
    option("--tool tools", Name(), "A tool: calculator, python or file.py:function.", multiple=True),
    option("--verifier-workers", FROM_ZERO, "Processes that run the verifier; 0 for none.", shown="the verifier's"),
    option("--verifier-timeout", float, "Seconds per verdict; a later one is a timeout.", shown="the verifier's"),
    option("--verifier-memory-mb", int, "Memory of a worker process, in MiB.", shown="2048"),
    option("--unsafe-local-exec", bool, "Let the verifier `code` run programs without a sandbox.", False),
)

problems = group(
    "Problems (text)",
    *problem_file,
    option("--test-fraction", float, "Share of the problems in the test split.", shown="0.2"),
    option("--long-prompts", str, "Longer prompts: skip or error.", shown="skip"),
    option("--ask/--no-ask", bool, "Ask for the place of the answer in prompts in words, such as \\boxed{}."),
    option("--cue", str, "End of prompts without a chat template, such as $'\\nSolution:'.", shown="none"),
    option("--curriculum", float, "Add the next level at this success rate, such as 0.8.", shown="all levels at once"),
    option("--prompt-choice", str, "thompson: prefer problems solved half of the time.", shown="every problem in turn"),
)

tokens = group(
    "Prompts, tokens and precision (text)",
    option("--tokenizer", str, "Folder, id, or train:2000 for a preset.", shown="the model's, else characters"),
    option("--system-prompt", str, "System message of prompts that have none; turns --chat on."),
    option(
        "--chat-template", click.Path(resolve_path=True), "File with one; turns --chat on.", shown="the tokenizer's"
    ),
    option("--chat/--no-chat", bool, "Make plain prompts messages of the user, as conversations always are."),
    option(
        "--stop-token stop_tokens",
        str,
        "A further token that ends an episode: its text, or its id.",
        multiple=True,
        callback=lambda ctx, param, value: [int(one) if re.fullmatch("[0-9]+", one) else one for one in value] or None,
    ),
    option("--max-prompt-tokens", int, "Longest prompt; see --long-prompts.", shown="1024, or the verifier's"),
    option(
        "--max-new-tokens", int, "Longest completion, or turn, in tokens.", shown="what the answers need, at most 4096"
    ),
    option("--max-turns", int, "Turns of a dialogue.", shown="the verifier's"),
    option("--max-reply-tokens", int, "Longest reply; longer ones end the episode.", shown="the verifier's, or 128"),
    option("--max-context-tokens", int, "Longest dialogue, all included.", shown="all that an episode can need"),
    option("--temperature", float, "Temperature of the softmax, in acting and training.", 1.0),
    option("--dtype", str, "Weights: float32, or bfloat16 with float32 copies in Adam.", shown="float32"),
    option("--activation-checkpointing", bool, "Compute layers twice: less memory, a third more time.", False),
)
task = group(
    "Task (text)",
    option("--task", Name(tasks), "Data set, verifier and lengths by one name, such as gsm8k; see rlenv tasks."),
)
text = Options([*task, *verifier, *problems, *tokens])

warm_start = group(
    "Supervised warm start (text)",
    option("--sft-steps", FROM_ZERO, "Steps; 0 for no warm start.", shown="500 for a preset, 0 for your own model"),
    option("--sft-examples", COUNT, "Demonstrations that the warm start uses.", 650),
    option("--sft-batch-size", click.IntRange(1, MOST_SLOTS), "Demonstrations per step.", 128),
    option("--sft-learning-rate", RATE, "Falls linearly to a tenth.", shown="2e-3 for tiny, less for larger models"),
)
MODEL = "Preset (tiny, small, base, smollm2), MlpPolicy, folder, id, GGUF file or run."
adapter = group(
    "LoRA adapter (text)",
    option("--lora-rank", int, "Train a LoRA adapter of this rank. The model itself is frozen."),
    option("--lora-alpha", float, "The adapter is multiplied by alpha/rank.", shown="2 x rank"),
    option("--lora-targets", str, "Layers, such as q_proj,v_proj or all-linear.", shown="all-linear"),
)
engine = group(
    "Engine (text)",
    *declared("train", "Engine (text)"),
    option("--engine-arg engine_args", KeyValue(), "Argument of it, as tensor_parallel_size=4.", multiple=True),
)
TEXT_ONLY = (*text.names, *warm_start.names, *adapter.names, *engine.names)
