"""Options that several commands share, in groups under a heading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlenv.agents.checks import MOST_SLOTS
from rlenv.agents.settings import Converted, declared_by, setting

from .base import Config, declared, options_of, with_options
from .names import Name, tasks, verifiers
from .parameters import ProblemSource, comma_separated, option_of, stop_token

if TYPE_CHECKING:
    from rlenv.verifiers import Verifier

FOLDER = click.Path(file_okay=False, path_type=Path)


@with_options
class Json(Config):
    """How a result is printed."""

    as_json: bool = setting(default=False, help="Print the result as one JSON object on the last line.", flag="--json")


@with_options
class EveryRun(Json):
    """The options of every run."""

    heading = "Every run"
    seed: int = setting(default=0, help="Seed of everything random in the run.", low=0)
    device: str = setting(default="auto", help="Device: auto, cpu, cuda, cuda:1, ...")


@with_options
class Processes(Config):
    """The processes of torchrun."""

    heading = "Every run"
    process_timeout: float = setting(default=1800.0, help="Seconds that processes of torchrun wait for others.", low=1)


@with_options
class Folder(Config):
    """The folder of a run."""

    heading = "Run folder and checkpoints"
    log_dir: Converted[str | Path | None, Path | None] = setting(
        default=None, help="The run folder.", checked_by=FOLDER, shown="runs/NAME"
    )
    overwrite: bool = setting(default=False, help="Replace an existing run folder.")


@with_options
class Environment(Config):
    """The environment."""

    heading = "Environment"
    env_id: str = setting(
        default="TextGen-v0",
        help="Gymnasium's id, package:Name-v0, file.py:Name-v0 or file.py:Class.",
        flag="--env",
        checked_by=Name(),
    )
    env_kwargs: dict[str, Any] = setting(default=(), help="Argument of the environment.", flag="--env-arg")

    @property
    def is_text(self) -> bool:
        """Whether the environment generates text."""
        return is_text(self.env_id)


@with_options
class TaskOptions(Config):
    """A task by its name."""

    heading = "Task (text)"
    task: str | None = setting(
        default=None,
        help="Data set, verifier and lengths by one name, such as gsm8k; see rlenv tasks.",
        checked_by=Name(tasks),
    )
    stop_strings: Sequence[str] = ()  # of a task as lm-eval poses it


@with_options
class VerifierArguments(Config):
    """Arguments of a verifier."""

    heading = "Verifier (text)"
    verifier_kwargs: dict[str, Any] = setting(default=(), help="Argument of the verifier.", flag="--verifier-arg")


@with_options
class VerifierOptions(VerifierArguments):
    """The verifier, and the processes that run it."""

    heading = "Verifier (text)"
    verifier: str | Verifier | Callable[..., Any] | Sequence[Any] = setting(
        default="arith",
        help="Name, file.py:function or module:Name; or several: f,a.py:g=0.5.",
        checked_by=Name(verifiers),
    )
    tools: Converted[Sequence[Any], tuple[Any, ...]] = setting(
        default=(), help="A tool: calculator, python or file.py:function.", flag="--tool", checked_by=Name()
    )
    verifier_workers: int | None = setting(
        default=None, help="Processes that run the verifier; 0 for none.", low=0, shown="the verifier's"
    )
    verifier_timeout: float | None = setting(
        default=None, help="Seconds per verdict; a later one is a timeout.", shown="the verifier's"
    )
    verifier_memory_mb: int | None = setting(default=None, help="Memory of a worker process, in MiB.", shown="2048")
    unsafe_local_exec: bool = setting(default=False, help="Let the verifier `code` run programs without a sandbox.")


@with_options
class ProblemFile(Config):
    """A file of problems, or a data set."""

    heading = "Problems (text)"
    problems: str | Path | Sequence[Any] | None = setting(
        default=None,
        help="File of problems: .jsonl, .json, .csv, .tsv, .parquet, a folder of datasets, or hf:org/name of the hub.",
        checked_by=ProblemSource(),
        shown="the verifier's own",
    )
    columns: dict[str, str] = setting(default=(), help="Name of a column, as in prompt=question.", flag="--column")
    prompt_template: str | None = setting(
        default=None, help="Prompts from columns, as in 'Q: {question} A:'.", shown="the prompt column"
    )


@with_options
class ProblemOptions(ProblemFile):
    """The problems that an environment of text poses."""

    heading = "Problems (text)"
    test_fraction: float | None = setting(default=None, help="Share of the problems in the test split.", shown="0.2")
    long_prompts: str | None = setting(default=None, help="Longer prompts: skip or error.", shown="skip")
    ask: bool | None = setting(
        default=None, help="Ask for the place of the answer in prompts in words, such as \\boxed{}."
    )
    cue: str | None = setting(
        default=None, help="End of prompts without a chat template, such as $'\\nSolution:'.", shown="none"
    )


@with_options
class Tokens(Config):
    """Prompts as tokens, lengths and precision."""

    heading = "Prompts, tokens and precision (text)"
    tokenizer: str | None = setting(
        default=None, help="Folder, id, or train:2000 for a preset.", shown="the model's, else characters"
    )
    system_prompt: str | None = setting(default=None, help="System message of prompts that have none; turns --chat on.")
    chat_template: str | None = setting(
        default=None,
        help="File with one; turns --chat on.",
        checked_by=click.Path(resolve_path=True),
        shown="the tokenizer's",
    )
    chat: bool | None = setting(
        default=None, help="Make plain prompts messages of the user, as conversations always are."
    )
    stop_tokens: Converted[Sequence[str | int], tuple[str | int, ...]] = setting(
        default=(),
        help="A further token that ends an episode: its text, or its id.",
        flag="--stop-token",
        checked_by=stop_token,
    )
    max_prompt_tokens: int | None = setting(
        default=None, help="Longest prompt; see --long-prompts.", shown="1024, or the verifier's"
    )
    max_new_tokens: int | None = setting(
        default=None, help="Longest completion, or turn, in tokens.", shown="what the answers need, at most 4096"
    )
    max_turns: int | None = setting(default=None, help="Turns of a dialogue.", shown="the verifier's")
    max_reply_tokens: int | None = setting(
        default=None, help="Longest reply; longer ones end the episode.", shown="the verifier's, or 128"
    )
    max_context_tokens: int | None = setting(
        default=None, help="Longest dialogue, all included.", shown="all that an episode can need"
    )
    dtype: str | None = setting(
        default=None, help="Weights: float32, or bfloat16 with float32 copies in Adam.", shown="float32"
    )


@with_options
class Text(TaskOptions, VerifierOptions, ProblemOptions, Tokens):
    """The problems and the judge of an environment of text."""


@with_options
class Training(Text):
    """An environment of text in which a policy is trained."""

    heading = "Problems (text)"
    curriculum: float | None = setting(
        default=None, help="Add the next level at this success rate, such as 0.8.", shown="all levels at once"
    )
    prompt_choice: str | None = setting(
        default=None, help="thompson: prefer problems solved half of the time.", shown="every problem in turn"
    )
    activation_checkpointing: bool = setting(
        default=False, help="Compute layers twice: less memory, a third more time.", heading=Tokens.heading
    )
    temperature: float = setting(
        default=1.0, help="Temperature of the softmax, in acting and training.", heading=Tokens.heading
    )


@with_options
class Sft(Config):
    """The supervised warm start."""

    heading = "Supervised warm start (text)"
    sft_steps: int | None = setting(
        default=None, help="Steps; 0 for no warm start.", low=0, shown="500 for a preset, 0 for your own model"
    )
    sft_examples: int = setting(default=650, help="Demonstrations that the warm start uses.")
    sft_batch_size: int = setting(default=128, help="Demonstrations per step.", high=MOST_SLOTS)
    sft_learning_rate: float | None = setting(
        default=None,
        help="Falls linearly to a tenth.",
        above=0,
        high=1e30,
        shown="2e-3 for tiny, less for larger models",
    )  # with more, Adam's step overflows


@with_options
class ModelOptions(Config):
    """The model that acts and learns."""

    heading = "Agent, policy and budget"
    model: str = setting(
        default="auto",
        help="Preset (tiny, small, base, smollm2), MlpPolicy, folder, id, GGUF file or run.",
        shown="tiny; control: MlpPolicy",
    )


@with_options
class AdapterOptions(Config):
    """A LoRA adapter."""

    heading = "LoRA adapter (text)"
    lora_rank: int | None = setting(default=None, help="Train a LoRA adapter of this rank. The model itself is frozen.")
    lora_alpha: float | None = setting(default=None, help="The adapter is multiplied by alpha/rank.", shown="2 x rank")
    lora_targets: str | None = setting(
        default=None,
        help="Layers, such as q_proj,v_proj or all-linear.",
        checked_by=comma_separated,
        shown="all-linear",
    )


@with_options
class EngineOptions(Config):
    """Arguments of the engine that writes completions."""

    heading = "Engine (text)"
    engine_kwargs: dict[str, Any] = setting(
        default=(), help="Argument of it, as tensor_parallel_size=4.", flag="--engine-arg"
    )


@with_options
class Settings(Config):
    """Settings of an agent."""

    settings: dict[str, Any] = setting(
        default=(), help="Setting without an option, such as clip_range=0.3.", flag="--agent-arg"
    )


@with_options
class Budget(Config):
    """How long training lasts."""

    heading = "Agent, policy and budget"

    timesteps: int | None = setting(
        default=None, help="Steps of the environment; for text: all tokens sampled.", shown="the policy's"
    )
    episodes: int | None = setting(default=None, help="Episodes, instead of --timesteps.")

    def _check_together(self) -> None:
        """Refuse two budgets."""
        if None not in (self.timesteps, self.episodes):
            raise ValueError("--timesteps and --episodes exclude each other")
        super()._check_together()


ADAPTER = tuple(options_of(AdapterOptions))
_ENGINE = [name for name, one in declared("train").items() if one.heading == EngineOptions.heading]
TEXT_ONLY = (*options_of(Training), *options_of(Sft), *ADAPTER, *options_of(EngineOptions), *_ENGINE)


def as_json(function: Any) -> Any:
    """Add --json to a command that has no config."""
    function.__click_params__ = [*getattr(function, "__click_params__", ()), option_of(declared_by(Json)["as_json"])]
    return function


def is_text(env_id: str) -> bool:
    """Tell whether this id names the text environment.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    from rlenv.agents.rollouts.envs import find_spec  # slow

    return find_spec(env_id).name == "TextGen"


def problem_file_arguments(config: ProblemFile) -> dict[str, Any]:
    """Return the environment's arguments for problems from a file; all None without a file.

    Raises:
        ValueError: for --column or --prompt-template without a file.
    """
    columns, template = config.columns, config.prompt_template
    if config.problems is None and (columns or template is not None):
        raise ValueError(f"--{'column' if columns else 'prompt-template'} says how to read a file: pass --problems")
    return {"problems": config.problems, "columns": columns or None, "prompt_template": template}
