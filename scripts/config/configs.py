"""The config of each job: what `rlenv train`, `sft`, `evaluate`, `compare`, `reward-model` and `play` take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import click

from rlenv.agents.algorithms import SETTINGS

from .base import Config, option
from .defaults import EPISODES, GROUP, TIMESTEPS
from .names import Name, verifiers
from .options import (
    FOLDER,
    MODEL,
    Adapter,
    AgentSettings,
    Budget,
    Engine,
    Environment,
    EveryRun,
    Folder,
    Json,
    ProblemFile,
    Processes,
    Sft,
    Text,
    Tokens,
    Training,
    VerifierArguments,
)  # fmt: skip
from .parameters import KeyValue, Size

FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(kw_only=True)
class Learner(Budget, AgentSettings):
    """The agent, its policy and its budget."""

    heading = "Agent, policy and budget"
    agent: Any = option(
        "reinforce-baseline",
        "Algorithm: rloo, grpo, ppo, ... or file.py:MyAgent.",
        kind=Name(SETTINGS.keys),
        objects=True,
    )
    model: str = option("auto", MODEL, shown="tiny; control: MlpPolicy")
    policy_args: dict[str, Any] = option(
        {}, "Argument of the policy, such as critic=separate.", "--policy-arg", KeyValue(), multiple=True
    )


@dataclass(kw_only=True)
class Evaluation(Config):
    """Evaluations, logs and plans."""

    heading = "Evaluation and logs"
    eval_episodes: int | None = option(
        None, "Per evaluation; 0 for none.", low=0, shown="2000 for text, 100 for control"
    )
    eval_every: int | None = option(
        None, "Updates between evaluations; the best is kept.", low=0, shown="10 in all; control: 0"
    )
    stop_reward: float | None = option(None, "Stop at this mean reward of an evaluation, minus two standard errors.")
    log_interval: int = option(10, "Updates between two log entries.", low=1)
    track: str | None = option(
        None, "Also send metrics, samples and result there.", kind=click.Choice(["wandb", "trackio", "mlflow"])
    )
    report: bool = option(True, "Write report.html at the end; see rlenv report.", envvar="RLENV_REPORT")
    log_kl: bool = option(False, "Log the KL to the policy that training starts from (rollout/kl_start).")
    dry_run: bool = option(False, "Say whether the run fits in memory; train nothing.")
    plan_processes: int | None = option(
        None, "With --dry-run: plan for so many processes of torchrun.", low=1, shown="those here"
    )
    plan_memory: Any = option(
        None, "With --dry-run: the memory of each one's GPU.", kind=Size(), shown="what is free here"
    )


@dataclass(kw_only=True)
class Checkpoints(Folder):
    """The run folder and its checkpoints."""

    heading = "Run folder and checkpoints"
    resume: Path | None = option(
        None,
        "Continue the run in this folder, with its own options; after a kill, from its last checkpoint.",
        kind=click.Path(exists=True, file_okay=False, path_type=Path),
    )
    save_every: float = option(10.0, "Minutes between two checkpoints.", low=0)
    save_every_updates: int | None = option(None, "Updates between two checkpoints, instead of --save-every.", low=1)
    keep: int = option(2, "Checkpoints that are kept, besides the best.", low=1)
    trust_checkpoint: bool = option(False, "With --resume: import your modules that the checkpoint names.", "--trust")


@dataclass(kw_only=True)
class TrainConfig(Environment, Training, Learner, Adapter, Sft, Engine, Evaluation, Checkpoints, Processes, EveryRun):
    """A training run: task, agent, policy, warm start, budget, evaluation, checkpoints, engine and run folder.

    The fields are the options of `rlenv train` by the names that config.json has; `rlenv train --help-all` describes
    them. `settings` are those of the agent, such as {"kl_coef": 0.04}. `agent`, `verifier`, `tools` and `problems` may
    be classes, functions and objects of Python: config.json names them, and they are passed again to resume the run.
    """

    declares: ClassVar[str] = "train"


@dataclass(kw_only=True)
class SftConfig(Environment, Training, Adapter, Sft, Folder, Processes, EveryRun):
    """Supervised training on demonstrations; the fields are the options of `rlenv sft`."""

    declares: ClassVar[str] = "sft"
    heading = "Imitation"
    model: str = option("auto", "Preset (tiny, small, base, smollm2), folder, id, GGUF file or run.", shown="tiny")
    epochs: int | None = option(None, "Passes over all training problems of the file, instead of --sft-steps.", low=1)
    eval_episodes: int | None = option(None, "Episodes of the evaluation; 0 for none.", low=0, shown="2000")
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class OfAPolicy(Config):
    """How a policy is evaluated, or played with."""

    split: str = option("test", "Split of the problems: train, test. Text only.")
    deterministic: bool = option(True, "Take the likeliest action, or draw one.", "--deterministic/--stochastic")
    temperature: float | None = option(
        None,
        "Temperature of drawn completions; the policy keeps its own. Text only.",
        shown="of the training; 1 for a model",
    )
    top_p: float = option(1.0, "Draw from the likeliest tokens of this probability.")
    policy_args: dict[str, Any] = option(
        {}, "Argument of a model, such as dtype=bfloat16.", "--policy-arg", KeyValue(), multiple=True
    )
    trust: bool = option(False, "Import the modules of yours that the checkpoint names; this runs their code.")


@dataclass(kw_only=True)
class EvaluateConfig(OfAPolicy, Text, Processes, EveryRun):
    """An evaluation of runs, checkpoints and models; `runs` and the options of `rlenv evaluate`."""

    heading = "Evaluation"
    runs: Sequence[str | Path] | str | Path = ()
    episodes: int | None = option(
        None,
        "Episodes to play; for text: problems.",
        low=1,
        shown="2000 for text (200 problems with --samples), 100 for control",
    )
    lm_eval: bool = option(False, "Pose the task's problems as lm-eval does, zero-shot.")
    samples: int | None = option(
        None, "Also sample so many completions per problem, for pass@k and maj@k.", low=1, high=1000
    )
    out: Path | None = option(None, "File of all completions.", kind=FILE, shown="RUN/evaluations/...")
    overwrite: bool = option(False, "Replace the file of --out.", heading="Options")
    activation_checkpointing: bool = option(
        False, "Compute layers twice: less memory, a third more time.", heading=Tokens.heading
    )


@dataclass(kw_only=True)
class CompareConfig(Environment, Training, Budget, AgentSettings, Adapter, Sft, Folder, EveryRun):
    """A comparison of agents, each with several seeds; the fields are the options of `rlenv compare`."""

    declares: ClassVar[str] = "compare"
    heading = "Comparison"
    agents: str = option("all", "all, or names: reinforce,rloo,file.py:MyAgent.", kind=Name(SETTINGS.keys))
    seeds: int = option(5, "Runs per agent; the first seed is --seed.", low=1)
    jobs: int | None = option(None, "Runs at a time.", low=1, shown="one per GPU; without any, one per core")
    model: str = option("auto", MODEL, shown="tiny; control: MlpPolicy")
    episodes: int | None = option(None, "Episodes of each run.", low=1, shown=f"{EPISODES} for text")
    timesteps: int | None = option(
        None, "Steps of each run, instead of --episodes.", low=1, shown=f"{TIMESTEPS} for control"
    )
    stop_reward: float | None = option(
        None, "A run stops when it reaches this; see train.", shown="the environment's, if any"
    )
    group_size: int | None = option(
        None, "Episodes that share a prompt.", shown=f"{GROUP}, if the environment has groups"
    )
    eval_episodes: int | None = option(
        None, "Episodes of each evaluation.", low=1, shown="2000 for text, 100 for control"
    )
    log_interval: int = option(5, "Updates between points of a curve.", low=1)
    figures: bool = option(True, "Write report.html, curve.svg and curve.png.")
    log_dir: Path | None = option(
        None, "Folder of the comparison; an existing one is continued.", kind=FOLDER, shown="runs/compare-NAME"
    )
    overwrite: bool = option(False, "Delete an existing comparison and start again.")


@dataclass(kw_only=True)
class RewardModelConfig(Adapter, Folder, EveryRun):
    """The training of a reward model on preference pairs; the fields are the options of `rlenv reward-model`."""

    heading = "Reward model"
    pairs: str = option(
        "",
        "Table with the columns prompt, chosen, rejected.",
        kind=click.Path(resolve_path=True),
        required=True,
    )
    column_args: dict[str, str] = option(
        {}, "Name of a column, as in prompt=question.", "--column", KeyValue(text=True), multiple=True
    )
    test_fraction: float = option(0.2, "Share of the prompts in the test split.")
    model: str = option("tiny", "Preset, model folder, GGUF file or id; a run of rlenv sft or rlenv reward-model.")
    tokenizer: str | None = option(None, "Folder or id.", shown="the model's, else one token per character")
    steps: int = option(500, "Optimizer steps.", low=0)
    epochs: int | None = option(None, "Passes over the training pairs, instead of --steps.", low=1)
    batch_size: int = option(64, "Pairs per step.", low=1)
    learning_rate: float | None = option(
        None,
        "Of Adam; it rises over the first tenth and falls to 0.",
        shown="2e-3 for tiny, less for larger models, 10 times as much for adapters",
    )
    center_coef: float = option(0.01, "Weight of (r_chosen + r_rejected)² in the loss.")


@dataclass(kw_only=True)
class PlayConfig(OfAPolicy, Environment, Text, EveryRun):
    """Episodes that a person or a policy plays; the fields are the options of `rlenv play`."""

    watch: bool = option(False, "Watch the policy of RUN play, step by step, instead of playing.")
    episodes: int | None = option(None, "Episodes to play.", low=1, shown="1 with --watch, else until /quit")
    top: int = option(8, "How many of the likeliest tokens are listed.", low=1, high=26)


@dataclass(kw_only=True)
class Judged(VerifierArguments, ProblemFile):
    """A verifier, and perhaps a file of its problems."""


@dataclass(kw_only=True)
class ServeConfig(Judged):
    """A server of a verifier; the fields are the options of `rlenv serve`."""

    verifier: str = option("", "A name, file.py:function or module:Name.", kind=Name(verifiers), required=True)
    host: str = option("127.0.0.1", "Address; 0.0.0.0 is for other machines too, with --token.")
    port: int = option(8000, "Port; 0 for any that is free.", low=0, high=65535)
    max_sessions: int = option(64, "Sessions at once.", low=1)
    idle_timeout: float = option(
        600.0, "Seconds without a message, or in which nothing is read, after which a session is closed.", above=0
    )
    max_message_bytes: int = option(2**20, "Longest message.", low=256)
    token: str | None = option(None, "Token of clients; better in OPENENV_TOKEN.", shown="none", envvar="OPENENV_TOKEN")
    insecure: bool = option(False, "Serve other machines without a token.")


@dataclass(kw_only=True)
class Discounted(AgentSettings):
    """The settings of a check."""

    gamma: float = option(1.0, "Discount of the agent and of the objective.")


@dataclass(kw_only=True)
class GradientConfig(Discounted, Json):
    """A check of agents' gradients; the fields are the options of `rlenv check-gradient`."""

    group_size: int = option(2, "Episodes that share a prompt.", low=1)
    episodes: int | None = option(
        None, "Episodes per rollout, in groups.", low=1, shown="two groups; one if it samples again"
    )
    turns: int = option(1, "Turns of an episode.", low=1)
    tokens: int | None = option(None, "Vocabulary; token 0 ends a turn.", low=2, shown="2")
    steps: int | None = option(
        None, "Tokens of a turn, at most.", low=1, shown="3; 2 with several turns, or if it samples again"
    )
    seed: int = option(0, "Seed of the world's policy and rewards.", low=0)
