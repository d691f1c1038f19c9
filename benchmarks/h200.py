"""The benchmarks of a GPU: what is taken, each technique with and without it, shares of the floor, other libraries.

    rlenv bench h200                                  # ten minutes, three pairs
    python -m benchmarks.h200 --minutes 5 --out FILE  # from the repository, with another budget

Rows are written as they are made. When the minutes are used up, no other part is begun, and the skipped ones are named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from agents.core.checks import first_line

from .gpu import Bench, Floors, qwen, require_gpu
from .h200_parts import PARTS
from .measure import Row
from .peers import require_trl

MINUTES, PAIRS, OUT = 10.0, 3, Path("benchmarks", "results", "h200.jsonl")  # of h200; the others take their time


def run(name: str, pairs: int, command: str, folder: Path) -> list[Row]:
    """Return the rows of a benchmark; each is written to a file in the folder as soon as it is made."""
    most, minutes = (PAIRS, MINUTES) if name == "h200" else (pairs, math.inf)
    return whole(name, min(pairs, most), minutes, folder / f"{name}.jsonl", command)


def whole(name: str, pairs: int, minutes: float, out: Path, command: str) -> list[Row]:
    """Measure the GPU of this machine."""
    require_gpu()
    if name == "h200-train":
        require_trl()
    began = time.monotonic()
    model = qwen().cuda()
    floors = Floors.of(model.device)
    speeds = f"{floors.operations / 1e12:.0f} TFLOP/s in bfloat16, {floors.bandwidth / 1e12:.2f} TB/s"
    print(f"floors: {speeds}", file=sys.stderr, flush=True)
    has_time = lambda: time.monotonic() - began < 60 * minutes  # noqa: E731
    rows = measure(Bench(model, floors, pairs), PARTS[name], has_time, out, command)
    if not rows:
        raise ValueError(f"nothing was measured; {str(out)!r} says why")
    return rows


def measure(
    bench: Bench,
    parts: tuple[Callable[[Bench], Iterator[Row]], ...],
    has_time: Callable[[], bool],
    out: Path,
    command: str,
) -> list[Row]:
    """Return the rows of these parts, written to a file one by one.

    Args:
        bench: what is measured on.
        parts: make rows.
        has_time: whether another row or part may be begun.
        out: the file, JSON of one row per line.
        command: which is noted with each row.
    """
    rows: list[Row] = []
    skipped: list[str] = []
    speeds = {"operations": bench.floors.operations, "bandwidth": bench.floors.bandwidth}
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as file:

        def note(line: str, record: dict[str, Any]) -> None:
            print(line, file=sys.stderr, flush=True)
            file.write(json.dumps(record) + "\n")
            file.flush()

        for part in parts:
            left = part(bench)
            try:
                while has_time() and (row := next(left, None)) is not None:
                    rows.append(row)
                    line = f"{row.name}: {row.ratio['median']:.2f}x, {row.ours:g} {row.unit} ({row.quality})"
                    note(line, {**row.as_dict(command), "device": speeds})
            except RuntimeError as error:  # such as too little memory; the other parts can still be measured
                note(f"{part.__name__} failed: {first_line(error)}", {"failed": part.__name__, "why": str(error)})
            if not has_time():
                skipped.append(part.__name__)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        if skipped:
            note(f"the time is used up; not measured, or not to the end: {', '.join(skipped)}", {"skipped": skipped})
    return rows


def main() -> None:
    """Measure, with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which no part is begun")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="measurements of each side")
    parser.add_argument("--out", type=Path, default=OUT, help="JSON, one row per line")
    given = parser.parse_args()
    try:
        whole("h200", given.pairs, given.minutes, given.out, "python -m benchmarks.h200")
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
