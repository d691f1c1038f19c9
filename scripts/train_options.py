"""The options of `rlenv train` alone; those that other commands have, too, are in options.py."""

from __future__ import annotations

from pathlib import Path

import click

from agents.algorithms import SETTINGS

from .config_file import read_run
from .options import agent_arg, declared
from .parameters import KeyValue, options
from .shell_completions import POLICIES, offer
from .verifier_names import OneName

agent_options = options(
    click.option(
        "--agent", type=OneName(), default="reinforce-baseline", shell_complete=offer(SETTINGS.keys, "file"),
        help="Algorithm: rloo, grpo, ppo, ... or a class, file.py:MyAgent. A wrong name prints the list.",
    ),
    agent_arg,
    click.option(
        "--model", default="auto", show_default="tiny for text, MlpPolicy for control",
        shell_complete=offer(lambda: POLICIES, "dir"),
        help="Preset (tiny, small, base, smollm2), MlpPolicy, folder, id, GGUF file or run. Your own policy: Python.",
    ),
    click.option(
        "--policy-arg", "policy_args", type=KeyValue(), multiple=True,
        help="Argument of the policy, such as critic=separate (text), net_arch=[64,64], activation_fn=ReLU (control).",
    ),
    click.option(
        "--timesteps", type=click.IntRange(min=1), default=None, show_default="the policy's",
        help="Steps of the environment; for text: tokens. Those of episodes that are not trained on count, too.",
    ),
    click.option("--episodes", type=click.IntRange(min=1), default=None, help="Episodes, instead of --timesteps."),
    heading="Agent, policy and budget",
)  # fmt: skip

update_options = options(declared("train", "Updates"), heading="Updates")
evaluation = options(
    click.option(
        "--eval-episodes",
        type=click.IntRange(min=0),
        default=None,
        show_default="2000 for text, 100 for control",
        help="Episodes of each evaluation; 0 for none.",
    ),
    click.option(
        "--eval-every",
        type=click.IntRange(min=0),
        default=None,
        show_default="text: ten times, briefly, for a curve; control: never",
        help="Updates between two evaluations; 0 for never. If given, the best checkpoint is kept in RUN/best.",
    ),
    click.option(
        "--stop-reward",
        type=float,
        default=None,
        help="Stop at this mean reward of an evaluation, minus two standard errors.",
    ),
    click.option("--log-interval", type=click.IntRange(min=1), default=10, help="Updates between two log entries."),
    click.option(
        "--track",
        type=click.Choice(["wandb", "trackio", "mlflow"]),
        default=None,
        help="Also send configuration, metrics, samples and result to this tracker.",
    ),
    click.option(
        "--report/--no-report",
        default=True,
        envvar="RLENV_REPORT",
        help="At the end, write report.html; see rlenv report.",
    ),
    click.option(
        "--log-kl", is_flag=True, help="Log the KL to the policy that training starts from (rollout/kl_start)."
    ),
    click.option("--dry-run", is_flag=True, help="Say whether the run fits in memory; train nothing."),
    heading="Evaluation and logs",
)

checkpoints = options(
    click.option(
        "--resume",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        is_eager=True,
        callback=read_run,
        help="Continue the run in this folder, with its own options; after a kill, from its last checkpoint.",
    ),
    click.option("--save-every", type=click.FloatRange(min=0), default=10.0, help="Minutes between two checkpoints."),
    click.option(
        "--save-every-updates",
        type=click.IntRange(min=1),
        default=None,
        help="Updates between two checkpoints, instead of --save-every.",
    ),
    click.option("--keep", type=click.IntRange(min=1), default=2, help="Checkpoints that are kept, besides the best."),
    click.option(
        "--trust",
        "trust_checkpoint",
        is_flag=True,
        help="With --resume: import the agent, environment, verifier or tools that the checkpoint names, module:Name.",
    ),
    heading="Run folder and checkpoints",
)

sharding = options(declared("train", "Every run"), heading="Every run")
