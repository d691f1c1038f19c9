"""rlenv export: a trained language model or reward model as a folder for transformers, with a model card; to a hub."""

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
        "rlenv export runs/NAME trained --push USER/NAME --private": "Upload it, too",
    },
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="The best checkpoint by --eval-every, instead of the newest.")
@click.option("--merged/--adapter", "merge", default=True, help="Merge an adapter into the weights, or write it alone.")
@click.option("--push", metavar="REPO_ID", default=None, help="Also upload the folder to this repository of a hub.")
@click.option("--private", is_flag=True, help="Make the repository private, if --push makes a new one.")
@click.option("--overwrite", is_flag=True, help="Write into FOLDER although it holds other files, which stay.")
@as_json
def export(
    run: Path, folder: Path, best: bool, merge: bool, push: str | None, private: bool, overwrite: bool, as_json: bool
) -> None:
    """Export the model of RUN, a run folder or checkpoint, to FOLDER.

    AutoModelForCausalLM and AutoTokenizer load a language model, and its greedy generation is that of `rlenv evaluate`.
    AutoModelForSequenceClassification loads the reward model of a run of `rlenv reward-model`.
    """
    from .jobs.export import export_run, upload

    if private and push is None:
        raise ValueError("--private is about the repository of --push, which was not given")
    result = {"folder": str(folder), "checkpoint": str(export_run(run, folder, best, merge, overwrite))}
    if push is not None:
        result["url"] = upload(folder, push, private)
    click.echo(json.dumps(result) if as_json else f"Exported to {result.get('url', folder)}")
