"""Write the table of growth into docs/growth.md and draw docs/growth.svg, from benchmarks/results/scale.json.

rlenv bench scale
python docs/make_growth.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKS = re.compile(r"(<!-- made by make_growth.py -->\n).*?(<!-- end -->)", re.DOTALL)
TOLD = {
    "slots": "slots", "length": "tokens per answer", "group": "answers per prompt, 256 in all",
    "vocabulary": "words of the vocabulary", "weights": "weights", "problems": "problems in a file, opened again",
}  # fmt: skip


def sweeps() -> list[dict[str, Any]]:
    """Return the measured sweeps: quantity, sizes with figures, and powers."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text(encoding="utf-8"))
    return [row["details"] for row in rows]


def table(found: list[dict[str, Any]]) -> str:
    """Return the growth of each quantity as a markdown table."""
    lines = [["with", "from, to", "seconds", "power", "memory", "power"], ["---"] * 6]
    for each in found:
        first, last = each["sweep"][0], each["sweep"][-1]
        lines.append([
            TOLD[each["quantity"]], f"{first['size']:,} to {last['size']:,}",
            f"{first['seconds']:.2g} to {last['seconds']:.2g}", f"{each['powers']['seconds']:.2f}",
            f"{first['memory_mb']:.0f} to {last['memory_mb']:.0f} MB", f"{each['powers']['memory_mb']:.2f}",
        ])  # fmt: skip
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(found: list[dict[str, Any]]) -> str:
    """Return docs/growth.md with the table of these sweeps."""
    text = (ROOT / "docs" / "growth.md").read_text(encoding="utf-8")
    if not MARKS.search(text):
        raise ValueError("docs/growth.md has no lines <!-- made by make_growth.py --> and <!-- end -->; add them")
    return MARKS.sub(lambda marks: f"{marks[1]}\n{table(found)}\n{marks[2]}", text)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw the seconds against the size, both relative to the first size."""
    from matplotlib import rcParams
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "rlenv"
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for each in found:
        first = each["sweep"][0]
        x, y = ([point[key] / first[key] for point in each["sweep"]] for key in ("size", "seconds"))
        axes.loglog(x, y, "o-", label=TOLD[each["quantity"]])
    axes.loglog([1, 1000], [1, 1000], ":", color="0.5", label="in proportion")
    axes.set(xlabel="size, relative to the first", ylabel="seconds, relative to the first size")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    measured = sweeps()
    (ROOT / "docs" / "growth.md").write_text(page(measured), encoding="utf-8")
    draw(measured, ROOT / "docs" / "growth.svg")
