"""rlenv lab: experiments, each about one claim."""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path

import click

from .config.command import Command
from .config.options import as_json


@click.command(
    cls=Command,
    examples={
        "rlenv lab": "List the experiments",
        "rlenv lab bandit": "Run one: claim, measurements, verdict",
        "rlenv lab kl --seed 3 --out figures": "With another seed; the figure and its numbers are kept",
    },
)
@click.argument("name", required=False)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for NAME.csv, .png and .json.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of everything random in the experiment.")
@as_json
def lab(name: str | None, out: Path | None, seed: int, as_json: bool) -> None:
    """Run the experiment NAME; without NAME, list the experiments.

    Prints the claim, the measurements and whether the claim held. The exit code is 0 if it held, else 1.
    """
    from rlenv._labs import LABS, find_lab

    if name is None:
        click.echo(json.dumps(LABS) if as_json else "\n".join(f"{lab:<14}{about}" for lab, about in LABS.items()))
        return
    from matplotlib.figure import Figure

    experiment = find_lab(name)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    finding = experiment.run(seed)
    result = {
        "lab": name,
        "claim": finding.claim,
        "held": finding.held,
        "checks": [{"text": check.text, "held": check.held} for check in finding.checks],
        "figures": finding.figures,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if out is not None:
        with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, fieldnames=list(finding.rows[0]))
            table.writeheader()
            table.writerows(finding.rows)
        (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        figure = Figure(layout="constrained")
        finding.draw(figure)
        figure.savefig(out / f"{name}.png", dpi=90)
    if as_json:
        click.echo(json.dumps(result))
    else:
        checks = [f"  {'held' if check.held else 'failed':<8}{check.text}" for check in finding.checks]
        verdict = "The claim held." if finding.held else "The claim did not hold."
        lines = [f"Claim: {finding.claim}", "", *checks, "", f"{verdict}  (seed {seed}, {result['seconds']} s)"]
        click.echo("\n".join(lines))
    sys.exit(0 if finding.held else 1)
