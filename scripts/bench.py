"""rlenv bench: rlenv and other libraries, timed in turn."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from .config.command import Command
from .config.options import as_json


@click.command(
    cls=Command,
    examples={
        "rlenv bench --list": "The benchmarks",
        "rlenv bench env": "What a step costs; needs no other library",
        "rlenv bench trl-grpo --pairs 3": "An update against TRL's, three measurements of each",
    },
)
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="Print the benchmarks and exit.")
@click.option("--pairs", type=click.IntRange(min=1), default=5, help="Measurements of each side, taken in turn.")
@click.option("--minutes", type=float, show_default="no limit", help="Begin no other row of a benchmark after so many.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="benchmarks/results",
    help="Folder for NAME.json.",
)
@as_json
def bench(name: str | None, listed: bool, pairs: int, minutes: float | None, out: Path, as_json: bool) -> None:
    """Run the benchmark NAME; without NAME, all that this machine can run.

    A ratio above 1 means that rlenv is better; it is the median of the pairs, with minimum and maximum. The other
    libraries come with pip install 'rlenv-lm[peers]'. Nothing else should run on the machine at the same time.
    """
    from rlenv._benchmarks import BENCHMARKS, NEEDS_GPU, find_benchmark

    if listed:
        about = {each: what for each, (_, what) in BENCHMARKS.items()}
        click.echo(json.dumps(about) if as_json else "\n".join(f"{each:<19}{what}" for each, what in about.items()))
        return
    import torch
    from rich.table import Table

    from rlenv._benchmarks.measure import THREADS, rows

    from .process.terminal import console

    gpu = torch.cuda.is_available()
    names = [name] if name is not None else [each for each in BENCHMARKS if gpu == (each in NEEDS_GPU)]
    benchmarks = {each: find_benchmark(each) for each in names}
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    measured: dict[str, Any] = {each: [] for each in names}
    for each, cases in benchmarks.items():
        click.echo(f"{each}: {BENCHMARKS[each][1]}", err=True)
        command = shlex.join(["rlenv", "bench", each, *(["--pairs", str(pairs)] if pairs != 5 else [])])
        for row in rows(cases(each), pairs, minutes):  # written one by one: some take minutes
            measured[each].append(row.as_dict(command))
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{each}.json").write_text(json.dumps(measured[each], indent=1) + "\n", encoding="utf-8")
        table = Table("", "ratio", "min", "max", "ours", "peer", "unit", "quality")
        for done in measured[each]:
            figures = [f"{done['ratio'][key]:.2f}" for key in ("median", "min", "max")]
            figures += [f"{done[side]:g}" for side in ("ours", "peer")]
            table.add_row(done["name"], *figures, done["unit"], done["quality"])
        console(error=True).print(table)
    if as_json:
        click.echo(json.dumps(measured))
