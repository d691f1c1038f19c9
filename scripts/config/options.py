"""Options that several commands share, in groups under a heading, and those that a task stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rlenv._settings import Converted, declared_by, setting, with_settings
from rlenv.agents.checks import MOST_SLOTS
from rlenv.forms import Form, Limits, ProblemFile, ProblemOrder, ProblemSplit, VerifierArguments, VerifierProcesses

from .base import Config, declared, options_of
from .names import TASK, VERIFIER, Name
from .parameters import comma_separated, option_of, stop_token

if TYPE_CHECKING:
    from rlenv.verifiers import Verifier

FOLDER = click.Path(file_okay=False, path_type=Path)
T = TypeVar("T", bound="Text")


@with_settings
class Json(Config):
    """How a result is printed."""

    as_json: bool = setting(default=False, help="Print the result as one JSON object on the last line.", flag="--json")


@with_settings
class EveryRun(Json):
    """The options of every run."""

    heading = "Every run"
    seed: int = setting(default=0, help="Seed of everything random in the run.", low=0)
    device: str = setting(default="auto", help="Device: auto, cpu, cuda, cuda:1, ...")


@with_settings
class Processes(Config):
    """The processes of torchrun."""

    heading = "Every run"
    process_timeout: float = setting(default=1800.0, help="Seconds that processes of torchrun wait for others.", low=1)


@with_settings
class Folder(Config):
    """The folder of a run."""

    heading = "Run folder and checkpoints"
    log_dir: Converted[str | Path | None, Path | None] = setting(
        default=None, help="The run folder.", checked_by=FOLDER, shown="runs/NAME"
    )
    overwrite: bool = setting(default=False, help="Replace an existing run folder.")


@with_settings
class ReportOptions(Config):
    """The page about a run, or several."""

    heading = "Evaluation and logs"
    report: bool = setting(default=True, help="Write report.html at the end; see rlenv report.", envvar="RLENV_REPORT")


@with_settings
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


@with_settings
class Tokens(Form, Limits, Config):
    """Prompts as tokens, lengths and precision."""

    heading = Form.heading
    stop_tokens: Converted[Sequence[str | int], tuple[str | int, ...]] = setting(default=(), checked_by=stop_token)
    dtype: str | None = setting(
        default=None, help="Weights: float32, or bfloat16 with float32 copies in Adam.", shown="float32"
    )


@with_settings
class Text(VerifierArguments, VerifierProcesses, ProblemFile, ProblemSplit, Tokens):
    """The problems and the judge of an environment of text."""

    heading = "Verifier (text)"
    task: str | None = setting(
        default=None,
        help="Data set, verifier and lengths by one name, such as gsm8k; see rlenv tasks.",
        checked_by=TASK,
        heading="Task (text)",
    )
    verifier: str | Verifier | Callable[..., Any] | Sequence[Any] = setting(
        default="arith",
        help="Name, file.py:function or module:Name; or several: f,a.py:g=0.5.",
        checked_by=VERIFIER,
    )
    tools: Converted[Sequence[Any], tuple[Any, ...]] = setting(default=(), checked_by=Name())
    unsafe_local_exec: bool = setting(default=False, help="Let the verifier `code` run programs without a sandbox.")


@with_settings
class Acting(Config):
    """How a language model computes."""

    heading = Form.heading
    activation_checkpointing: bool = setting(
        default=False, help="Compute layers twice: less memory, a third more time."
    )
    temperature: float = setting(default=1.0, help="Temperature of the softmax, in acting and training.", above=0)


@with_settings
class Training(Text, ProblemOrder, Acting):
    """An environment of text in which a policy is trained."""


@with_settings
class Sft(Config):
    """The supervised warm start."""

    heading = "Supervised warm start (text)"
    sft_steps: int | None = setting(
        default=None, help="Steps; 0 for no warm start.", low=0, shown="500 for a preset and in rlenv sft, else 0"
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


@with_settings
class ModelOptions(Config):
    """The model that acts and learns."""

    heading = "Agent, policy and budget"
    model: str = setting(
        default="auto",
        help="Preset (tiny, small, base), smollm2, MlpPolicy, folder, id, GGUF file or run.",
        shown="tiny; control: MlpPolicy",
    )


@with_settings
class AdapterOptions(Config):
    """A LoRA adapter."""

    heading = "LoRA adapter (text)"
    lora_rank: int | None = setting(default=None, help="Train a LoRA adapter of this rank. The model itself is frozen.")
    lora_alpha: float | None = setting(default=None, help="The adapter is multiplied by alpha/rank.", shown="2 x rank")
    lora_targets: Converted[str | Sequence[str] | None, str | None] = setting(
        default=None,
        help="Layers, such as q_proj,v_proj or all-linear.",
        checked_by=comma_separated,
        shown="all-linear",
    )


@with_settings
class EngineOptions(Config):
    """Arguments of the engine that writes completions."""

    heading = "Engine (text)"
    engine_kwargs: dict[str, Any] = setting(
        default=(), help="Argument of the engine, as tensor_parallel_size=4.", flag="--engine-arg"
    )


@with_settings
class Settings(Config):
    """Settings of an agent."""

    settings: dict[str, Any] = setting(
        default=(), help="Setting without an option, such as clip_range=0.3.", flag="--agent-arg"
    )


@with_settings
class Budget(Config):
    """How long training lasts."""

    heading = "Agent, policy and budget"

    timesteps: int | None = setting(
        default=None,
        help="Steps of the environment; for text: all tokens sampled.",
        shown="1,600,000 for text, 1,000,000 for control",
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


def with_task(config: T) -> T:
    """Return a config with the arguments of its task, and the name of a data set with its revision.

    Given options stay; KEY=VALUE options add to the task's.

    Raises:
        ValueError: for an unknown task, with the closest ones.
    """
    from rlenv.tasks import arguments_of, as_lm_eval

    lm_eval = bool(getattr(config, "lm_eval", False))
    if lm_eval and config.task is None:
        raise ValueError("--lm-eval poses the problems of a task by its name: pass --task")
    changes: dict[str, Any] = {}
    if config.task is not None:
        own = {name: vars(config)[name] for name in config.chosen & {"verifier", "problems"}}
        row = arguments_of(config.task, own) | (as_lm_eval(config.task) if lm_eval else {})
        changes["task"] = None
        for name, value in row.items():
            if isinstance(value, Mapping):
                changes[name] = {**value, **getattr(config, name)}
            elif name not in config.chosen:
                changes[name] = value
    problems = changes.get("problems", config.problems)
    if isinstance(problems, str) and problems.startswith("hf:"):
        changes["problems"] = _pinned(problems)
    expanded = config.but(**changes)
    expanded.chosen |= changes.keys()
    return expanded


def _pinned(name: str) -> str:
    """Return the name of a data set with the commit of its revision; as it is if the hub does not say."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    from rlenv.hub import COMMIT, parts

    faults: Any = (OSError, ValueError, *HfHubHTTPError.__bases__)  # its HTTP library raises other errors
    repo, config, revision = parts(name)
    if COMMIT.fullmatch(revision or ""):
        return name
    try:
        commit = HfApi().dataset_info(repo, revision=revision, timeout=10).sha
    except faults:  # whatever is wrong is said when it is loaded
        return name
    return f"hf:{'/'.join(filter(None, (repo, config)))}@{commit}"
