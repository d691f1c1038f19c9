"""The configs of the other jobs: the options of `rlenv evaluate`, `compare`, `reward-model`, `play` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from rlenv._settings import Converted, setting, with_settings
from rlenv.agents.algorithms.options import SETTINGS
from rlenv.forms import ProblemFile, VerifierArguments, located

from .base import Config
from .defaults import EPISODES, GROUP, TIMESTEPS
from .names import VERIFIER, Name
from .options import (
    FOLDER,
    AdapterOptions,
    Budget,
    Environment,
    EveryRun,
    Folder,
    Json,
    ModelOptions,
    Processes,
    ReportOptions,
    Settings,
    Sft,
    Text,
    Training,
)  # fmt: skip

FILE = click.Path(dir_okay=False, path_type=Path)


@with_settings
class OfAPolicy(Config):
    """How a policy is evaluated, or played with."""

    split: Literal["train", "test"] = setting(default="test", help="Split of the problems. Text only.")
    deterministic: bool = setting(
        default=True, help="Take the likeliest action, or draw one.", flag="--deterministic/--stochastic"
    )
    temperature: float | None = setting(
        default=None,
        help="Temperature of drawn completions; the policy keeps its own. Text only.",
        above=0,
        shown="of the training; 1 for a model",
    )
    top_p: float = setting(default=1.0, help="Draw from the likeliest tokens of this probability.", above=0, high=1)
    policy_kwargs: dict[str, Any] = setting(
        default=(), help="Argument of a model, such as dtype=bfloat16.", flag="--policy-arg"
    )
    trust: bool = setting(
        default=False, help="Import the modules of yours that the checkpoint names; this runs their code."
    )


@with_settings
class EvaluateConfig(OfAPolicy, Text, Processes, EveryRun):
    """An evaluation of runs, checkpoints and models; `runs` and the options of `rlenv evaluate`."""

    heading = "Evaluation"
    runs: Converted[str | Path | Sequence[str | Path], tuple[str | Path, ...]] = setting(default=())
    episodes: int | None = setting(
        default=None,
        help="Episodes to play; for text: problems.",
        shown="2000 for text (200 problems with --samples), 100 for control",
    )
    lm_eval: bool = setting(default=False, help="Pose the task's problems as lm-eval does, zero-shot.")
    samples: int | None = setting(
        default=None, help="Also sample so many completions per problem, for pass@k and maj@k.", high=1000
    )
    out: Converted[str | Path | None, Path | None] = setting(
        default=None, help="File of all completions.", checked_by=FILE, shown="RUN/evaluations/..."
    )
    overwrite: bool = setting(default=False, help="Replace the file of --out.", heading="Options")


@with_settings
class CompareConfig(
    Environment, Training, ModelOptions, Budget, Settings, AdapterOptions, Sft, ReportOptions, Folder, EveryRun
):
    """A comparison of agents, each with several seeds; the fields are the options of `rlenv compare`."""

    declares: ClassVar[str] = "compare"
    heading = "Comparison"
    agents: Converted[str | Sequence[str], str] = setting(
        default="all", help="all, or names: reinforce,rloo,file.py:MyAgent.", checked_by=Name(SETTINGS.keys)
    )
    seeds: int = setting(default=5, help="Runs per agent; the first seed is --seed.")
    jobs: int | None = setting(default=None, help="Runs at a time.", shown="one per GPU; without any, one per core")
    episodes: int | None = setting(default=None, help="Episodes of each run.", shown=f"{EPISODES} for text")
    timesteps: int | None = setting(
        default=None, help="Steps of each run, instead of --episodes.", shown=f"{TIMESTEPS} for control"
    )
    stop_reward: float | None = setting(
        default=None, help="A run stops when it reaches this; see train.", shown="the environment's, if any"
    )
    group_size: int | None = setting(
        default=None, help="Episodes that share a prompt.", shown=f"{GROUP}, if the environment has groups"
    )
    eval_episodes: int | None = setting(
        default=None, help="Episodes of each evaluation.", shown="2000 for text, 100 for control"
    )
    log_interval: int = setting(default=5, help="Updates between points of a curve.")
    log_dir: Converted[str | Path | None, Path | None] = setting(
        default=None,
        help="Folder of the comparison; an existing one is continued.",
        checked_by=FOLDER,
        shown="runs/compare-NAME",
    )
    overwrite: bool = setting(default=False, help="Delete an existing comparison and start again.")


@with_settings
class RewardModelConfig(AdapterOptions, Folder, EveryRun):
    """The training of a reward model on preference pairs; the fields are the options of `rlenv reward-model`."""

    heading = "Reward model"
    pairs: str | Path = setting(
        default="",
        help="Table with the columns prompt, chosen, rejected.",
        checked_by=located,
        required=True,
    )
    columns: dict[str, str] = setting(default=(), help="Name of a column, as in prompt=question.", flag="--column")
    test_fraction: float = setting(default=0.2, help="Share of the prompts in the test split.", low=0, high=1)
    model: str = setting(
        default="tiny", help="Preset, model folder, GGUF file or id; a run of rlenv sft or rlenv reward-model."
    )
    tokenizer: str | None = setting(
        default=None, help="Folder or id.", shown="the model's, else one token per character"
    )
    steps: int = setting(default=500, help="Optimizer steps.", low=0)
    epochs: int | None = setting(default=None, help="Passes over the training pairs, instead of --steps.")
    batch_size: int = setting(default=64, help="Pairs per step.")
    learning_rate: float | None = setting(
        default=None,
        help="Of Adam; it rises over the first tenth and falls to 0.",
        above=0,
        shown="2e-3 for tiny, less for larger models, 10 times as much for adapters",
    )
    center_coef: float = setting(default=0.01, help="Weight of (r_chosen + r_rejected)² in the loss.", low=0)


@with_settings
class PlayConfig(OfAPolicy, Text, EveryRun):
    """Episodes that a person or a policy plays; the fields are the options of `rlenv play`."""

    heading = "Play"
    watch: bool = setting(default=False, help="Watch the policy of RUN play, step by step, instead of playing.")
    episodes: int | None = setting(default=None, help="Episodes to play.", shown="1 with --watch, else until /quit")
    top: int = setting(default=8, help="How many of the likeliest tokens are listed.", high=26)


@with_settings
class Listed(ProblemFile, Config):
    """A file of problems; its fields are options of `rlenv tasks`."""


@with_settings
class Judged(VerifierArguments, Listed):
    """A verifier, and perhaps a file of its problems."""


@with_settings
class ServeConfig(Judged):
    """A server of a verifier; the fields are the options of `rlenv serve`."""

    verifier: str = setting(
        default="", help="A name, file.py:function or module:Name.", checked_by=VERIFIER, required=True
    )
    host: str = setting(default="127.0.0.1", help="Address; 0.0.0.0 is for other machines too, with --token.")
    port: int = setting(default=8000, help="Port; 0 for any that is free.", low=0, high=65535)
    max_sessions: int = setting(default=64, help="Sessions at once.")
    idle_timeout: float = setting(
        default=600.0,
        help="Seconds without a message, or in which nothing is read, after which a session is closed.",
        above=0,
    )
    max_message_bytes: int = setting(default=2**20, help="Longest message.", low=256)
    token: str | None = setting(
        default=None, help="Token of clients; better in OPENENV_TOKEN.", shown="none", envvar="OPENENV_TOKEN"
    )
    insecure: bool = setting(default=False, help="Serve other machines without a token.")


@with_settings
class Discounted(Settings):
    """The settings of a check."""

    gamma: float = setting(default=1.0, help="Discount of the agent and of the objective.")


@with_settings
class GradientConfig(Discounted, Json):
    """A check of agents' gradients; the fields are the options of `rlenv check-gradient`."""

    group_size: int = setting(default=2, help="Episodes that share a prompt.")
    episodes: int | None = setting(
        default=None, help="Episodes per rollout, in groups.", shown="two groups; one if that is too much"
    )
    turns: int = setting(default=1, help="Turns of an episode.")
    tokens: int | None = setting(default=None, help="Vocabulary; token 0 ends a turn.", low=2, shown="2")
    steps: int | None = setting(
        default=None, help="Tokens of a turn, at most.", shown="3; 2 with several turns, or if that is too much"
    )
    seed: int = setting(default=0, help="Seed of the world's policy and rewards.", low=0)
