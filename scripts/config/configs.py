"""The configs of the jobs that train a policy: the options of `rlenv train` and `rlenv sft`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from rlenv._settings import Converted, setting, with_settings
from rlenv.agents.algorithms.options import SETTINGS
from rlenv.agents.training.settings import AgentConfig

from .names import Name
from .options import (
    AdapterOptions,
    Budget,
    EngineOptions,
    Environment,
    EveryRun,
    Folder,
    ModelOptions,
    Processes,
    ReportOptions,
    Settings,
    Sft,
    Training,
)  # fmt: skip
from .parameters import size

if TYPE_CHECKING:
    from rlenv.agents import Agent


@with_settings
class Learner(ModelOptions, Budget, Settings):
    """The agent, its policy and its budget."""

    heading = "Agent, policy and budget"
    agent: Converted[str | type[Agent] | AgentConfig, str | type[Agent]] = setting(
        default="reinforce-baseline",
        help="Algorithm: rloo, grpo, ppo, ... or file.py:MyAgent.",
        checked_by=Name(SETTINGS.keys),
    )
    policy_kwargs: dict[str, Any] = setting(
        default=(), help="Argument of the policy, such as critic=separate.", flag="--policy-arg"
    )

    def _check_together(self) -> None:
        """Take the settings of `GRPO.config(...)`, which are checked already."""
        if isinstance(self.agent, AgentConfig):
            agent = self.agent
            if twice := agent.settings.keys() & self.settings.keys():
                raise ValueError(f"{sorted(twice)[0]} is in settings and in the config of the agent; pass it once")
            self.agent, self.settings = agent.agent, {**self.settings, **agent.settings}
            self.chosen = self.typed = self.typed | agent.settings.keys()
        super()._check_together()


@with_settings
class Evaluation(ReportOptions):
    """Evaluations, logs and plans."""

    eval_episodes: int | None = setting(
        default=None, help="Episodes per evaluation; 0 for none.", low=0, shown="2000 for text, 100 for control"
    )
    eval_every: int | None = setting(
        default=None, help="Updates between evaluations; the best is kept.", low=0, shown="10 in all; control: 0"
    )
    stop_reward: float | None = setting(
        default=None, help="Stop at this mean reward of an evaluation, minus two standard errors."
    )
    log_interval: int = setting(default=10, help="Updates between two log entries.")
    track: Literal["wandb", "trackio"] | None = setting(
        default=None, help="Also send metrics, samples and result there."
    )
    dry_run: bool = setting(default=False, help="Say whether the run fits in memory; train nothing.")
    plan_processes: int | None = setting(
        default=None, help="With --dry-run: plan for so many processes of torchrun.", shown="those here"
    )
    plan_memory: int | None = setting(
        default=None, help="With --dry-run: the memory of each one's GPU.", checked_by=size, shown="what is free here"
    )


@with_settings
class Resumed(Folder):
    """A run folder, and how its run is continued."""

    resume: Converted[str | Path | None, Path | None] = setting(
        default=None,
        help="Continue the run in this folder, with its own options; after a kill, from its last checkpoint.",
        checked_by=click.Path(exists=True, file_okay=False, path_type=Path),
    )
    save_every: float = setting(default=10.0, help="Minutes between two checkpoints.", low=0)
    trust: bool = setting(default=False, help="With --resume: import your modules that the checkpoint names.")


@with_settings
class Checkpoints(Resumed):
    """The run folder and its checkpoints."""

    save_every_updates: int | None = setting(
        default=None, help="Updates between two checkpoints, instead of --save-every."
    )
    keep: int = setting(default=2, help="Checkpoints that are kept, besides the best.")


@with_settings
class TrainConfig(
    Environment, Training, Learner, AdapterOptions, Sft, EngineOptions, Evaluation, Checkpoints, Processes, EveryRun
):
    """A training run: task, agent, policy, warm start, budget, evaluation, checkpoints, engine and run folder.

    The fields are the options of `rlenv train` by the names that config.json has; `rlenv train --help-all` describes
    them. `settings` are those of the agent, such as {"kl_coef": 0.04}. `agent`, `verifier`, `tools` and `problems` may
    be classes, functions and objects of Python: config.json names them, and they are passed again to resume the run.
    """

    declares: ClassVar[str] = "train"


@with_settings
class SftConfig(Environment, Training, ModelOptions, AdapterOptions, Sft, Resumed, Processes, EveryRun):
    """Supervised training on demonstrations; the fields are the options of `rlenv sft`."""

    declares: ClassVar[str] = "sft"
    heading = "Imitation"
    model: str = setting(
        default="auto", help="Preset (tiny, small, base), smollm2, folder, id, GGUF file or run.", shown="tiny"
    )
    epochs: int | None = setting(
        default=None, help="Passes over all training problems of the file, instead of --sft-steps."
    )
    eval_episodes: int | None = setting(
        default=None, help="Episodes of the evaluation; 0 for none.", low=0, shown="2000"
    )
    settings: dict[str, Any] = setting(default=())
