"""rlenv bench: rlenv and other libraries, timed in turn."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from ..console.command import Command
from ..console.completions import benchmarks as benchmark_names
from ..console.completions import known, offer


@click.command(
    cls=Command,
    examples={
        "rlenv bench --list": "The benchmarks",
        "rlenv bench env": "What a step costs; needs no other library",
        "rlenv bench trl-grpo --pairs 3": "An update against TRL's, three measurements of each",
        "rlenv bench trl-smollm2 --pairs 2 --resume": "The second of its five long pairs, after --pairs 1",
    },
)
@click.argument("name", required=False, shell_complete=offer(benchmark_names))
@click.option("--list", "listed", is_flag=True, help="Print the benchmarks and exit.")
@click.option("--pairs", type=click.IntRange(min=1), default=5, help="Measurements of each side, taken in turn.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmarks", "results"),
    help="Folder for NAME.json.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    show_default="24, of stories 12",
    help="Updates per pair of trl-smollm2 and trl-smollm2-story.",
)
@click.option("--resume", is_flag=True, help="Of these two: keep the pairs measured before, and measure the others.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as one JSON object on the last line.")
def bench(
    name: str | None, listed: bool, pairs: int, out: Path, updates: int | None, resume: bool, as_json: bool
) -> None:
    """Run the benchmark NAME; without NAME, all that this machine can run.

    A ratio above 1 means that rlenv is better; it is the median of the pairs, with minimum and maximum. The other
    libraries come with pip install 'rlenv-lm[peers]'. Nothing else should run on the machine at the same time.
    """
    if listed:
        about = known()["benchmarks"]
        click.echo(json.dumps(about) if as_json else "\n".join(f"{each:<19}{what}" for each, what in about.items()))
        return
    import torch
    from _rlenv_benchmarks import BENCHMARKS, BY_SEED, NEEDS_GPU, find_benchmark
    from _rlenv_benchmarks.measure import THREADS

    gpu = torch.cuda.is_available()
    names = [name] if name is not None else [each for each in BENCHMARKS if gpu == (each in NEEDS_GPU)]
    benchmarks = {each: find_benchmark(each) for each in names}
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    made: dict[str, Any] = {}
    for each, benchmark in benchmarks.items():
        click.echo(f"{each}: {BENCHMARKS[each][1]}", err=True)
        given = {"--pairs": pairs if pairs != 5 else None, "--updates": updates if each in BY_SEED else None}
        options = [word for option, value in given.items() if value for word in (option, str(value))]
        command, more = shlex.join(["rlenv", "bench", each, *options]), {}
        if each in NEEDS_GPU:
            more = {"command": command, "folder": out}
        elif each in BY_SEED:
            more = {"folder": out, "updates": updates, "resume": resume}
        made[each] = [row.as_dict(command) for row in benchmark.run(each, pairs, **more)]
        _show(made[each])
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{each}.json").write_text(json.dumps(made[each], indent=1) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(made))


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from ..console.terminal import console

    table = Table("", "ratio", "min", "max", "ours", "peer", "unit", "quality")
    for row in rows:
        ratio = (f"{row['ratio'][key]:.2f}" for key in ("median", "min", "max"))
        table.add_row(row["name"], *ratio, f"{row['ours']:g}", f"{row['peer']:g}", row["unit"], row["quality"])
    console(error=True).print(table)
