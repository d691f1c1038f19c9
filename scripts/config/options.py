"""Options that several commands share, in groups under a heading."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from rlenv.agents.checks import MOST_SLOTS

from .base import Config, as_decorator, declared, names_of, option
from .names import Name, tasks, verifiers
from .parameters import KeyValue, ProblemSource, StopToken

FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(kw_only=True)
class Json(Config):
    """How a result is printed."""

    as_json: bool = option(False, "Print the result as one JSON object on the last line.", "--json")


@dataclass(kw_only=True)
class EveryRun(Json):
    """The options of every run."""

    heading = "Every run"
    seed: int = option(0, "Seed of everything random in the run.", low=0)
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:1, ...")


@dataclass(kw_only=True)
class Processes(Config):
    """The processes of torchrun."""

    heading = "Every run"
    process_timeout: float = option(1800.0, "Seconds that processes of torchrun wait for others.", low=1)


@dataclass(kw_only=True)
class Folder(Config):
    """The folder of a run."""

    heading = "Run folder and checkpoints"
    log_dir: Path | None = option(None, "The run folder.", kind=FOLDER, shown="runs/NAME")
    overwrite: bool = option(False, "Replace an existing run folder.")


@dataclass(kw_only=True)
class Environment(Config):
    """The environment."""

    heading = "Environment"
    env_id: str = option(
        "TextGen-v0", "Gymnasium's id, package:Name-v0, file.py:Name-v0 or file.py:Class.", "--env", Name()
    )
    env_args: dict[str, Any] = option({}, "Argument of the environment.", "--env-arg", KeyValue(), multiple=True)


@dataclass(kw_only=True)
class Task(Config):
    """A task by its name."""

    heading = "Task (text)"
    task: str | None = option(
        None, "Data set, verifier and lengths by one name, such as gsm8k; see rlenv tasks.", kind=Name(tasks)
    )
    stop_strings: Any = ()  # of a task as lm-eval poses it


@dataclass(kw_only=True)
class VerifierArguments(Config):
    """Arguments of a verifier."""

    heading = "Verifier (text)"
    verifier_args: dict[str, Any] = option({}, "Argument of the verifier.", "--verifier-arg", KeyValue(), multiple=True)


@dataclass(kw_only=True)
class Judging(VerifierArguments):
    """The verifier, and the processes that run it."""

    heading = "Verifier (text)"
    verifier: Any = option(
        "arith", "Name, file.py:function or module:Name; or several: f,a.py:g=0.5.", kind=Name(verifiers), objects=True
    )
    tools: tuple[Any, ...] = option(
        (), "A tool: calculator, python or file.py:function.", "--tool", Name(), multiple=True
    )
    verifier_workers: int | None = option(
        None, "Processes that run the verifier; 0 for none.", low=0, shown="the verifier's"
    )
    verifier_timeout: float | None = option(
        None, "Seconds per verdict; a later one is a timeout.", shown="the verifier's"
    )
    verifier_memory_mb: int | None = option(None, "Memory of a worker process, in MiB.", shown="2048")
    unsafe_local_exec: bool = option(False, "Let the verifier `code` run programs without a sandbox.")


@dataclass(kw_only=True)
class ProblemFile(Config):
    """A file of problems, or a data set."""

    heading = "Problems (text)"
    problems: Any = option(
        None,
        "File of problems: .jsonl, .json, .csv, .tsv, .parquet, a folder of datasets, or hf:org/name of the hub.",
        kind=ProblemSource(),
        objects=True,
        shown="the verifier's own",
    )
    column_args: dict[str, str] = option(
        {}, "Name of a column, as in prompt=question.", "--column", KeyValue(text=True), multiple=True
    )
    prompt_template: str | None = option(
        None, "Prompts from columns, as in 'Q: {question} A:'.", shown="the prompt column"
    )


@dataclass(kw_only=True)
class Problems(ProblemFile):
    """The problems that an environment of text poses."""

    heading = "Problems (text)"
    test_fraction: float | None = option(None, "Share of the problems in the test split.", shown="0.2")
    long_prompts: str | None = option(None, "Longer prompts: skip or error.", shown="skip")
    ask: bool | None = option(None, "Ask for the place of the answer in prompts in words, such as \\boxed{}.")
    cue: str | None = option(None, "End of prompts without a chat template, such as $'\\nSolution:'.", shown="none")


@dataclass(kw_only=True)
class Tokens(Config):
    """Prompts as tokens, lengths and precision."""

    heading = "Prompts, tokens and precision (text)"
    tokenizer: str | None = option(
        None, "Folder, id, or train:2000 for a preset.", shown="the model's, else characters"
    )
    system_prompt: str | None = option(None, "System message of prompts that have none; turns --chat on.")
    chat_template: str | None = option(
        None, "File with one; turns --chat on.", kind=click.Path(resolve_path=True), shown="the tokenizer's"
    )
    chat: bool | None = option(None, "Make plain prompts messages of the user, as conversations always are.")
    stop_tokens: tuple[str | int, ...] = option(
        (), "A further token that ends an episode: its text, or its id.", "--stop-token", StopToken(), multiple=True
    )
    max_prompt_tokens: int | None = option(None, "Longest prompt; see --long-prompts.", shown="1024, or the verifier's")
    max_new_tokens: int | None = option(
        None, "Longest completion, or turn, in tokens.", shown="what the answers need, at most 4096"
    )
    max_turns: int | None = option(None, "Turns of a dialogue.", shown="the verifier's")
    max_reply_tokens: int | None = option(
        None, "Longest reply; longer ones end the episode.", shown="the verifier's, or 128"
    )
    max_context_tokens: int | None = option(
        None, "Longest dialogue, all included.", shown="all that an episode can need"
    )
    dtype: str | None = option(None, "Weights: float32, or bfloat16 with float32 copies in Adam.", shown="float32")


@dataclass(kw_only=True)
class Text(Task, Judging, Problems, Tokens):
    """The problems and the judge of an environment of text."""


@dataclass(kw_only=True)
class Recomputing(Config):
    """Memory against time."""

    heading = "Prompts, tokens and precision (text)"
    activation_checkpointing: bool = option(False, "Compute layers twice: less memory, a third more time.")


@dataclass(kw_only=True)
class Training(Text, Recomputing):
    """An environment of text in which a policy is trained."""

    heading = "Problems (text)"
    curriculum: float | None = option(
        None, "Add the next level at this success rate, such as 0.8.", shown="all levels at once"
    )
    prompt_choice: str | None = option(
        None, "thompson: prefer problems solved half of the time.", shown="every problem in turn"
    )
    temperature: float = option(1.0, "Temperature of the softmax, in acting and training.", heading=Tokens.heading)


@dataclass(kw_only=True)
class Sft(Config):
    """The supervised warm start."""

    heading = "Supervised warm start (text)"
    sft_steps: int | None = option(
        None, "Steps; 0 for no warm start.", low=0, shown="500 for a preset, 0 for your own model"
    )
    sft_examples: int = option(650, "Demonstrations that the warm start uses.", low=1)
    sft_batch_size: int = option(128, "Demonstrations per step.", low=1, high=MOST_SLOTS)
    sft_learning_rate: float | None = option(
        None, "Falls linearly to a tenth.", above=0, high=1e30, shown="2e-3 for tiny, less for larger models"
    )  # with more, Adam's step overflows


MODEL = "Preset (tiny, small, base, smollm2), MlpPolicy, folder, id, GGUF file or run."


@dataclass(kw_only=True)
class Adapter(Config):
    """A LoRA adapter."""

    heading = "LoRA adapter (text)"
    lora_rank: int | None = option(None, "Train a LoRA adapter of this rank. The model itself is frozen.")
    lora_alpha: float | None = option(None, "The adapter is multiplied by alpha/rank.", shown="2 x rank")
    lora_targets: str | None = option(None, "Layers, such as q_proj,v_proj or all-linear.", shown="all-linear")


@dataclass(kw_only=True)
class Engine(Config):
    """Arguments of the engine that writes completions."""

    heading = "Engine (text)"
    engine_args: dict[str, Any] = option(
        {}, "Argument of it, as tensor_parallel_size=4.", "--engine-arg", KeyValue(), multiple=True
    )


@dataclass(kw_only=True)
class AgentSettings(Config):
    """Settings of an agent."""

    settings: dict[str, Any] = option(
        {}, "Setting without an option, such as clip_range=0.3.", "--agent-arg", KeyValue(), multiple=True
    )


@dataclass(kw_only=True)
class Budget(Config):
    """How long training lasts."""

    heading = "Agent, policy and budget"

    timesteps: int | None = option(
        None, "Steps of the environment; for text: all tokens sampled.", low=1, shown="the policy's"
    )
    episodes: int | None = option(None, "Episodes, instead of --timesteps.", low=1)

    def one_budget(self: B) -> B:
        """Return the config with at most one of --timesteps and --episodes; the command line wins over a file.

        Raises:
            ValueError: if the command line, or the file, sets both.
        """
        both = ("timesteps", "episodes")
        if None in (self.timesteps, self.episodes):
            return self
        wanted = [name for name in both if name in self.typed]
        if len(wanted) != 1:
            raise ValueError("--timesteps and --episodes exclude each other")
        return self.but(**dict.fromkeys(both) | {wanted[0]: getattr(self, wanted[0])})


B = TypeVar("B", bound=Budget)
ADAPTER = names_of(Adapter)
_ENGINE = [name for name, one in declared("train").items() if one.heading == Engine.heading]  # type: ignore[attr-defined]
TEXT_ONLY = (*names_of(Training, Sft, Adapter, Engine), *_ENGINE)
as_json = as_decorator(Json)
agent_arg = as_decorator(AgentSettings)


def problem_file_arguments(config: ProblemFile) -> dict[str, Any]:
    """Return the environment's arguments for problems from a file; all None without a file.

    Raises:
        ValueError: for --column or --prompt-template without a file.
    """
    columns, template = config.column_args, config.prompt_template
    if config.problems is None and (columns or template is not None):
        raise ValueError(f"--{'column' if columns else 'prompt-template'} says how to read a file: pass --problems")
    return {"problems": config.problems, "columns": columns or None, "template": template}
