"""rlenv evaluate: measure runs, checkpoints and models."""

from __future__ import annotations

from pathlib import Path

import click

from .config.command import Command
from .config.other_configs import EvaluateConfig


@click.command(
    cls=Command,
    config=EvaluateConfig,
    examples={
        "rlenv evaluate runs/NAME": "Greedy success on the held-out problems of a run",
        "rlenv evaluate runs/A runs/B --samples 16": "Two runs side by side, with pass@k and maj@k",
        "rlenv evaluate runs/NAME --problems other.csv --json": "The same model on other problems",
        "rlenv evaluate FOLDER_OR_ID --task gsm8k --lm-eval": "Any language model, with the prompts of lm-eval",
    },
    often={
        "What is asked": ("task", "verifier", "problems", "columns", "split", "episodes"),
        "How it answers": ("samples", "temperature", "chat", "max_new_tokens"),
        "What comes of it": ("out", "as_json", "trust"),
        "The run": ("config_file", "seed", "device"),
    },
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
def evaluate(config: EvaluateConfig, runs: tuple[Path, ...]) -> None:
    """Evaluate RUNS: run folders, checkpoints, or with --task or --verifier any language model (a folder or id).

    A run is evaluated on the problems it was trained for. The options from --verifier to --max-context-tokens replace
    what it says about them; their defaults are those for a model.
    """
    from .jobs import evaluation

    config = config.but(runs=runs)
    evaluation.show(evaluation.evaluate(config, print_samples=not config.as_json), config)
