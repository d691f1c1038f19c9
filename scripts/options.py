"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from agents.settings import Setting as Declared

from .config_file import read_config
from .defaults import about, by_agent, shown_default
from .parameters import ColumnName, Decorator, KeyValue, names_of, options, typed
from .shell_completions import environment_ids, offer, verifiers
from .verifier_names import OneName, VerifierName

_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "schedule": float}


class Setting(click.Option):
    """An option that passes on a constructor's argument of the same name.

    It has no default: an argument that is not given is not passed. `--help` shows the constructor's default.
    """


def setting(*names: str, **attributes: Any) -> Decorator:
    """Return the decorator that adds a `Setting`; the arguments are those of `click.option`."""
    return click.option(*names, cls=Setting, default=None, **attributes)


def declared(command: str, heading: str | None = None, **changed: dict[str, Any]) -> Decorator:
    """Return the options for the settings that the agents declare for a command.

    Args:
        command: "train", "compare" or "sft".
        heading: of the settings; None for all.
        changed: attributes of `click.option` that replace those declared, by setting.
    """

    def option(name: str, of_agents: dict[str, Declared]) -> Decorator:
        flag, kind = name.replace("_", "-"), _TYPES.get(next(iter(of_agents.values())).kind, str)
        attributes = {"type": kind, "help": about(of_agents), "show_default": shown_default(of_agents)}
        return setting(f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}", **attributes | changed.get(name, {}))

    found = by_agent()
    firsts = {name: next(iter(of_agents.values())) for name, of_agents in found.items()}
    wanted = [name for name, one in firsts.items() if command in one.commands and heading in (None, one.heading)]
    return options(*(option(name, found[name]) for name in wanted))


agent_arg = click.option(
    "--agent-arg", "agent_args", type=KeyValue(), multiple=True,
    help="Setting of the algorithm without an option, such as clip_range=0.3.",
)  # fmt: skip


def one_budget(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with at most one of --timesteps and --episodes; the command line wins over a file.

    Raises:
        ValueError: if the command line, or the file, sets both.
    """
    both = [name for name in ("timesteps", "episodes") if given[name] is not None]
    if len(both) < 2:
        return given
    from_file = [name for name in both if not typed(name)]
    if len(from_file) != 1:
        raise ValueError("--timesteps and --episodes exclude each other")
    return {**given, from_file[0]: None}


common = options(
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of everything random in the run."),
    click.option("--device", default="auto", help="Device: auto, cpu, cuda, cuda:1, ..."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=read_config,
        help="YAML, TOML or JSON file with options of this command; the command line wins.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on the last line."),
    heading="Every run",
)

processes = options(
    click.option(
        "--process-timeout",
        type=click.FloatRange(min=1),
        default=1800.0,
        help="Under torchrun: seconds that the processes wait for one of them before the job ends.",
    ),
    heading="Every run",
)

run_folder = options(
    click.option(
        "--log-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        show_default="runs/NAME",
        help="The run folder.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace an existing run folder."),
    heading="Run folder and checkpoints",
)

environment = options(
    click.option(
        "--env",
        "env_id",
        type=OneName(),
        default="TextGen-v0",
        shell_complete=offer(environment_ids, "file"),
        help="Gymnasium environment id, package:Name-v0, file.py:Name-v0 or file.py:Class.",
    ),
    click.option("--env-arg", "env_args", type=KeyValue(), multiple=True, help="Argument of the environment."),
    heading="Environment",
)

problem_file = options(
    click.option(
        "--problems",
        type=click.Path(resolve_path=True),
        default=None,
        show_default="the verifier's own",
        help="File of problems: .jsonl, .json, .csv, .tsv, .parquet. Or a folder that save_to_disk of datasets wrote.",
    ),
    click.option(
        "--column",
        "column_args",
        type=ColumnName(),
        multiple=True,
        help="Name of a column in the file, for prompt, answer, split or level; such as prompt=question.",
    ),
    click.option(
        "--prompt-template",
        default=None,
        show_default="the prompt column",
        help="Prompts made from the file's columns, such as 'Q: {question} A:'. Escapes such as \\n are not read.",
    ),
    heading="Problems (text)",
)

verifier = options(
    click.option(
        "--verifier",
        type=VerifierName(),
        default="arith",
        shell_complete=offer(verifiers, "file"),
        help="Verifier: a name, file.py:function or module:Name; several with weights: a.py:f,a.py:g=0.5.",
    ),
    click.option("--verifier-arg", "verifier_args", type=KeyValue(), multiple=True, help="Argument of the verifier."),
    setting(
        "--tool",
        "tools",
        type=OneName(),
        multiple=True,
        callback=lambda ctx, param, value: list(value) or None,
        show_default="none",
        help="Tool that the model may call before it answers: calculator, python or file.py:function. Can be repeated.",
    ),
    setting(
        "--verifier-workers",
        type=click.IntRange(min=0),
        show_default="one per core if the verifier asks for workers",
        help="Worker processes that run the verifier; 0 for none.",
    ),
    setting(
        "--verifier-timeout",
        type=float,
        show_default="the verifier's",
        help="Seconds per verdict; then the worker process is killed and the verdict is a timeout.",
    ),
    setting("--verifier-memory-mb", type=int, show_default="2048", help="Memory of a worker process, in MiB."),
    click.option(
        "--unsafe-local-exec",
        is_flag=True,
        help="Let the verifier `code` run programs with your rights on a machine without a sandbox.",
    ),
    heading="Verifier (text)",
)

problems = options(
    problem_file,
    setting("--test-fraction", type=float, show_default="0.2", help="Share of the problems in the test split."),
    setting(
        "--long-prompts", show_default="skip", help="What to do with prompts above --max-prompt-tokens: skip or error."
    ),
    setting(
        "--ask/--no-ask",
        help="Ask for the place of the answer in prompts in words, such as \\boxed{}.",
    ),
    setting(
        "--curriculum",
        type=float,
        show_default="all levels from the start",
        help="Begin with the easiest level; add the next one at this success rate, such as 0.8.",
    ),
    setting(
        "--prompt-choice",
        show_default="every problem in turn",
        help="thompson: prefer problems (of a file; else levels) that are solved half of the time.",
    ),
    heading="Problems (text)",
)

tokens = options(
    setting(
        "--tokenizer",
        show_default="the model's, else one token per character",
        help="Tokenizer: a folder or id; train:2000 trains one of 2000 tokens on the training problems, for presets.",
    ),
    setting(
        "--system-prompt",
        help="System message of prompts that have none; with it, plain prompts become messages of the user.",
    ),
    setting(
        "--chat-template",
        type=click.Path(resolve_path=True),
        show_default="the tokenizer's",
        help="File with a chat template; with it, plain prompts become messages of the user.",
    ),
    setting(
        "--chat/--no-chat",
        show_default="chat with --system-prompt or --chat-template",
        help="Make plain prompts messages of the user. Conversations are always rendered as such.",
    ),
    setting(
        "--stop-token",
        "stop_tokens",
        multiple=True,
        callback=lambda ctx, param, value: value or None,
        show_default="the tokenizer's, the chat template's and the model's",
        help="A further token that ends an episode: its text, or its id if it is a number. Can be repeated.",
    ),
    setting(
        "--max-prompt-tokens",
        type=int,
        show_default="1024, or what a verifier that makes its problems declares",
        help="Longest prompt, in tokens; longer ones are skipped, see --long-prompts.",
    ),
    setting(
        "--max-new-tokens",
        type=int,
        show_default="what the answers need, at most 4096",
        help="Longest completion, in tokens; of a dialogue, the longest turn.",
    ),
    setting("--max-turns", type=int, show_default="the verifier's", help="Turns of a dialogue."),
    setting(
        "--max-reply-tokens",
        type=int,
        show_default="the verifier's, else 128",
        help="Longest reply of a dialogue, in tokens; an episode ends before a longer one.",
    ),
    setting(
        "--max-context-tokens",
        type=int,
        show_default="all that an episode can need",
        help="Longest dialogue with its prompt and replies, in tokens.",
    ),
    click.option("--temperature", type=float, default=1.0, help="Temperature of the softmax, in acting and training."),
    click.option(
        "--dtype",
        default=None,
        show_default="float32",
        help="Type of a language model's weights: float32, or bfloat16 with float32 copies in the optimizer.",
    ),
    click.option(
        "--activation-checkpointing",
        is_flag=True,
        help="In training, compute each layer again in the backward pass: less memory, about a third more time.",
    ),
    heading="Prompts, tokens and precision (text)",
)
text = options(verifier, problems, tokens)

warm_start = options(
    click.option(
        "--sft-steps",
        type=int,
        default=None,
        show_default="500 for a preset, 0 for a model of your own",
        help="Steps of the supervised warm start; 0 for none.",
    ),
    click.option("--sft-examples", type=int, default=650, help="Demonstrations that the warm start uses."),
    click.option("--sft-batch-size", type=int, default=128, help="Demonstrations per step."),
    click.option(
        "--sft-learning-rate",
        type=float,
        default=None,
        show_default="2e-3 for tiny, less for larger models",
        help="Learning rate of the warm start; it falls linearly to a tenth.",
    ),
    heading="Supervised warm start (text)",
)
adapter = options(
    click.option(
        "--lora-rank", type=int, default=None, help="Train a LoRA adapter of this rank. The model itself is frozen."
    ),
    click.option(
        "--lora-alpha",
        type=float,
        default=None,
        show_default="2 x rank",
        help="The adapter is multiplied by alpha/rank.",
    ),
    click.option(
        "--lora-targets",
        default=None,
        show_default="all-linear",
        help="Layers with an adapter: names such as q_proj,v_proj, or all-linear (of attention and MLP).",
    ),
    heading="LoRA adapter (text)",
)
TEXT_ONLY = (*names_of(text), *names_of(warm_start), *names_of(adapter))
