"""Run the recipes of configs/ with several seeds, and write what they reached into docs/recipes.json and the page.

python docs/make_recipes.py --seeds 3              # every recipe; runs that are in recipes.json already are kept
python docs/make_recipes.py --seeds 3 --only three-digit-sums
python docs/make_recipes.py --seeds 0              # only write the table again
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "recipes.json", ROOT / "docs" / "recipes.md"
BEGIN, END = "<!-- made by make_recipes.py -->", "<!-- end -->"
HEAD = "| recipe | seeds | success before | after | processor minutes of one core |"


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=None, help="the name of one recipe")
    given = parser.parse_args()
    for config in recipes():
        for seed in range(given.seeds):
            results = json.loads(RESULTS.read_text(encoding="utf-8"))
            done = results.setdefault(config.stem, {})
            if given.only in (None, config.stem) and str(seed) not in done:
                done[str(seed)] = run(config, seed)
                RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def recipes() -> list[Path]:
    """Return the recipes for the tiny model; make_control.py measures those for control, make_real.py the others."""
    others = ("\nenv:", "\nmodel: smollm2")
    paths = sorted((ROOT / "configs").glob("*.yaml"))
    return [path for path in paths if not any(other in path.read_text("utf-8") for other in others)]


def run(config: Path, seed: int) -> dict[str, float]:
    """Train with one core; return the success before and after, and the processor time in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "_rlenv_scripts", "train", "--config", str(config), "--seed", str(seed)]
        command += ["--device", "cpu", "--json", "--log-dir", f"{folder}/run"]
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
    result = json.loads(done.stdout.splitlines()[-1])
    before, after = result["initial_eval"]["success_rate"], result["eval"]["success_rate"]
    return {"before": before, "after": after, "seconds": round(seconds)}


def page(text: str) -> str:
    """Return the page with the table of the results between its two marks."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    before, rest = text.split(BEGIN)
    rows = [row(name, list(runs.values())) for name, runs in sorted(results.items()) if runs]
    return "\n".join([before + BEGIN, "", HEAD, "|---|---|---|---|---|", *rows, "", END + rest.split(END)[1]])


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """Return the row of one recipe: means over seeds, with the range if there are several."""
    timed = [run["seconds"] for run in runs if run["seconds"] is not None]
    minutes = f"{sum(timed) / len(timed) / 60:.1f}" if timed else "not measured"
    cells = [f"`configs/{name}.yaml`", str(len(runs)), spread(runs, "before"), spread(runs, "after"), minutes]
    return f"| {' | '.join(cells)} |"


def spread(runs: list[dict[str, Any]], key: str) -> str:
    """Return the mean of a figure, and its range if there are several."""
    values = [run[key] for run in runs]
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
