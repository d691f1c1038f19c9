"""Run every lab and write the page docs/labs.md with its figures in docs/labs/."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

from _rlenv_labs import LABS, find_lab
from _rlenv_scripts.main import main as rlenv

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "labs"
INTRODUCTION = """\
# The labs

Experiments that show why an algorithm is as it is. Each states a claim, measures it with the agents of this library,
and says whether it held: `rlenv lab NAME` prints that and exits with 0 or 1, `--out DIR` writes the measurements (CSV),
the figures (JSON) and a drawing (PNG), `rlenv lab` lists them.

The command that made this page: `python docs/make_labs.py` (seed 0, two CPU cores, no GPU)."""


def main(names: list[str]) -> None:
    """Run the labs of these names, or all of them, and write the page from what the folder then holds."""
    for name in names or LABS:
        try:
            rlenv(["lab", name, "--out", str(FOLDER)])
        except SystemExit as end:
            print(f"{name}: exit code {end.code}", flush=True)
    parts = [INTRODUCTION, *(section(name) for name in LABS)]
    (ROOT / "docs" / "labs.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8", newline="\n")


def section(name: str) -> str:
    """Return the part of the page that shows one lab."""
    result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    question, about = inspect.cleandoc(find_lab(name).__doc__ or "").split("\n", 1)
    rows = [f"| {check['text'].replace('|', '∣')} | {'yes' if check['held'] else 'NO'} |" for check in result["checks"]]
    verdict = "held" if result["held"] else "did not hold"
    return "\n\n".join(
        [
            f"## {name}: {LABS[name]}",
            f"*{question}*",
            about.strip(),
            f"**Claim.** {result['claim']} It **{verdict}** (`rlenv lab {name}`, {result['seconds']:.0f} s).",
            "\n".join(["| measured | as claimed |", "|---|---|", *rows]),
            f"![{name}](labs/{name}.png)",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
