"""Write the table of the README from benchmarks/results: python docs/make_performance.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IN_README = {  # in three rows: a benchmark, which of its rows, and what it is called there
    "GRPO on long prompts, against TRL": ("trl-prompt", 0),
    "GRPO on short answers, against TRL": ("trl-grpo", 0),
    "CartPole to a return of 475, against stable-baselines3's PPO": ("sb3", 0),
}
MARKS = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


def table() -> str:
    """Return the few rows of the README, with three figures each."""
    lines = [["", "times faster", "rlenv", "the other"], ["---"] * 4]
    for label, (name, place) in IN_README.items():
        row = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))[place]
        ratio, unit = row["ratio"], row["unit"].split("/")[0].split()[0]
        range_ = f"{ratio['median']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})"
        lines.append([label, range_, f"{row['ours']:.3g} {unit}", f"{row['peer']:.3g} {unit}"])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page() -> str:
    """Return the README with the table of the present results."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return MARKS.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    (ROOT / "README.md").write_text(page(), encoding="utf-8")
