"""Train SmolLM2 with one setting changed at a time, and write docs/real-settings.json and the page's table.

python docs/make_real_settings.py             # what is missing: two seeds of each, about four minutes of one core a run
python docs/make_real_settings.py --seeds 0   # only write the table again
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from make_recipes import ROOT, spread

RESULTS, PAGE = ROOT / "docs" / "real-settings.json", ROOT / "docs" / "real-settings.md"
BEGIN, END = "<!-- made by make_real_settings.py -->", "<!-- end -->"
HEAD = "| sums | held-out, greedy: before | after | sampled, last 4 updates | processor minutes |"
UPDATES, LAST = 16, 4
OPTIONS = {
    "model": "smollm2", "verifier": "examples/real_model/sums.py:Sums", "verifier-arg": "most=50", "agent": "rloo",
    "max-new-tokens": 16,
    "group-size": 8, "episodes-per-update": 64, "num-envs": 64, "episodes": 64 * UPDATES,
    "eval-episodes": 200, "eval-every": 0, "log-interval": 1,
}  # fmt: skip
ADAPTER, SMALL = {"lora-rank": 16, "learning-rate": 5e-4}, {"verifier-arg": "most=30"}  # else 50
VARIED: dict[str, dict[str, Any]] = {
    "to 30, adapter, 5e-5": SMALL | ADAPTER | {"learning-rate": 5e-5},
    "to 30, adapter, 2e-4": SMALL | ADAPTER | {"learning-rate": 2e-4},
    "to 30, adapter, 5e-4": SMALL | ADAPTER,
    "to 30, adapter, 1e-3": SMALL | ADAPTER | {"learning-rate": 1e-3},
    "all weights, 5e-6": {"learning-rate": 5e-6},
    "all weights, 2e-5": {"learning-rate": 2e-5},
    "all weights, 5e-5": {"learning-rate": 5e-5},
    "adapter, 5e-4": ADAPTER,
    "adapter, groups of 4": ADAPTER | {"group-size": 4},
    "adapter, groups of 16": ADAPTER | {"group-size": 16},
    "adapter, 4 updates of warm-up": ADAPTER | {"warmup-updates": 4},
    "adapter, at most 32 tokens": ADAPTER | {"max-new-tokens": 32},
}


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    for name, options in VARIED.items():
        for seed in range(given.seeds):
            results = json.loads(RESULTS.read_text(encoding="utf-8"))
            done = results.setdefault(name, {})
            if str(seed) not in done:
                done[str(seed)] = run(OPTIONS | options, seed)
                RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def run(options: dict[str, Any], seed: int) -> dict[str, float]:
    """Train with one core; return the success before, after and of the last samples, and the processor time in s."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "_rlenv_scripts", "train", "--chat", *words, "--seed", str(seed)]
        command += ["--device", "cpu", "--no-report", "--log-dir", f"{folder}/run"]
        before = used()
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return figures(Path(folder, "run")) | {"seconds": round(used() - before)}


def used() -> float:
    """Return the processor time of ended children, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def figures(folder: Path) -> dict[str, float]:
    """Return what a run folder says of its success."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        sampled = [float(row["rollout/success_rate"]) for row in csv.DictReader(file) if row["rollout/success_rate"]]
    before, after = result["initial_eval"]["success_rate"], result["eval"]["success_rate"]
    return {"before": before, "after": after, "sampled": round(fmean(sampled[-LAST:]), 3)}


def page(text: str) -> str:
    """Return the page with the table of the results between its two marks."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    before, rest = text.split(BEGIN)
    rows = [row(name, list(results[name].values())) for name in VARIED if results.get(name)]
    return "\n".join([before + BEGIN, "", HEAD, "|---|---|---|---|---|", *rows, "", END + rest.split(END)[1]])


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """Return the row of one setting: means over seeds, with the range."""
    minutes = f"{fmean(run['seconds'] for run in runs) / 60:.1f}"
    return f"| {name} | {spread(runs, 'before')} | {spread(runs, 'after')} | {spread(runs, 'sampled')} | {minutes} |"


if __name__ == "__main__":
    main()
