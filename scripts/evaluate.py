"""rlenv evaluate: measure runs, checkpoints and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .config.command import Command
from .config.options import COUNT, common, processes, text
from .config.parameters import KeyValue, group, option

of_a_policy = group(  # that is evaluated, or played with
    "Options",
    option("--split", str, "Split of the problems: train, test. Text only.", "test"),
    option("--deterministic/--stochastic", bool, "Take the likeliest action, or draw one.", True),
    option(
        "--temperature",
        float,
        "Temperature of drawn completions; the policy keeps its own. Text only.",
        shown="of the training; 1 for a model",
    ),
    option("--top-p", float, "Draw from the likeliest tokens of this probability.", 1.0),
    option("--policy-arg policy_args", KeyValue(), "Argument of a model, such as dtype=bfloat16.", multiple=True),
    option("--trust", bool, "Import the modules of yours that the checkpoint names; this runs their code.", False),
)


@click.command(
    cls=Command,
    examples={
        "rlenv evaluate runs/NAME": "Greedy success on the held-out problems of a run",
        "rlenv evaluate runs/A runs/B --samples 16": "Two runs side by side, with pass@k and maj@k",
        "rlenv evaluate runs/NAME --problems other.csv --json": "The same model on other problems",
        "rlenv evaluate FOLDER_OR_ID --task gsm8k --lm-eval": "Any language model, with the prompts of lm-eval",
    },
    often={
        "What is asked": ("task", "verifier", "problems", "column_args", "split", "episodes"),
        "How it answers": ("samples", "temperature", "chat", "max_new_tokens"),
        "What comes of it": ("out", "as_json", "trust"),
        "The run": ("config", "seed", "device"),
    },
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@group(
    "Evaluation",
    option(
        "--episodes",
        COUNT,
        "Episodes to play; for text: problems.",
        shown="2000 for text (200 problems with --samples), 100 for control",
    ),
    option("--lm-eval", bool, "Pose the task's problems as lm-eval does, zero-shot.", False),
    option("--samples", click.IntRange(1, 1000), "Also sample so many completions per problem, for pass@k and maj@k."),
    option(
        "--out", click.Path(dir_okay=False, path_type=Path), "File of all completions.", shown="RUN/evaluations/..."
    ),
)
@click.option("--overwrite", is_flag=True, help="Replace the file of --out.")
@of_a_policy
@text.without("temperature", "curriculum", "prompt_choice")
@processes
@common
def evaluate(runs: tuple[Path, ...], **given: Any) -> None:
    """Evaluate RUNS: run folders, checkpoints, or with --task or --verifier any language model (a folder or id).

    A run is evaluated on the problems it was trained for. The options from --verifier to --max-context-tokens replace
    what it says about them; their defaults are those for a model.
    """
    from .jobs.evaluation import run_evaluations

    run_evaluations(runs, given)
