"""rlenv export: a trained language model or reward model as a folder for transformers, with a model card."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .config.command import Command
from .config.options import as_json


@click.command(
    cls=Command,
    examples={
        "rlenv export runs/NAME trained": "A folder for transformers, with a model card",
        "rlenv export runs/NAME trained --best --adapter": "The best checkpoint by --eval-every, its adapter alone",
    },
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="The best checkpoint by --eval-every, instead of the newest.")
@click.option("--merged/--adapter", "merge", default=True, help="Merge an adapter into the weights, or write it alone.")
@click.option("--overwrite", is_flag=True, help="Write into FOLDER although it holds other files, which stay.")
@as_json
def export(run: Path, folder: Path, best: bool, merge: bool, overwrite: bool, as_json: bool) -> None:
    """Export the model of RUN, a run folder or checkpoint, to FOLDER.

    AutoModelForCausalLM and AutoTokenizer load a language model, and its greedy generation is that of `rlenv evaluate`.
    AutoModelForSequenceClassification loads the reward model of a run of `rlenv reward-model`. Upload either
    with `hf upload USER/NAME FOLDER`.
    """
    from .jobs.export import export_run

    result = {"folder": str(folder), "checkpoint": str(export_run(run, folder, best, merge, overwrite))}
    click.echo(json.dumps(result) if as_json else f"Exported to {folder}")
