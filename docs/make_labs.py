"""Run the labs and write their results into docs/labs.md and docs/labs/: python docs/make_labs.py [NAME ...].

Without names all labs run; `--pages` runs none and writes the results that docs/labs/ holds. It draws again what can be
drawn from them.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from functools import partial
from pathlib import Path

from _rlenv_labs import LABS, find_lab
from _rlenv_scripts.main import main as rlenv
from _rlenv_scripts.reports.figures.plots import save_figure

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "labs"
MARKS = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)
RESULTS = """\
{claim}

![{lab}]({lab}.png)

| measured | as claimed |
|---|---|
{rows}
"""


def main(arguments: list[str]) -> None:
    """Run the labs of these names, or all, and write the pages."""
    for name in [] if arguments == ["--pages"] else arguments or LABS:
        try:
            rlenv(["lab", name, "--out", str(FOLDER)])
        except SystemExit as end:
            print(f"{name}: exit code {end.code}", flush=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8", newline="\n")
    for name in LABS:
        if draw := getattr(find_lab(name), "draw_figures", None):
            figures = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["figures"]
            save_figure(partial(draw, figures), FOLDER / f"{name}.png")


def pages() -> dict[Path, str]:
    """Return the index and the page of each lab with the results as they are now."""
    lines, texts = ["| lab | question | claim | seconds |", "|---|---|---|---|"], {}
    for name in LABS:
        result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        verdict = "held" if result["held"] else "did not hold"
        question = (find_lab(name).__doc__ or "").splitlines()[0]
        lines.append(f"| [{name}](labs/{name}.md) | {question} | {verdict} | {result['seconds']:.0f} |")
        checks = [(each["text"].replace("|", "∣"), "yes" if each["held"] else "NO") for each in result["checks"]]
        rows = "\n".join(f"| {text} | {held} |" for text, held in checks)
        ending = f"It **{verdict}** ({result['seconds']:.0f} s).".replace(" ", "\xa0")  # stays on one line
        claim = textwrap.fill(f"{result['claim']} {ending}", 120, break_on_hyphens=False).replace("\xa0", " ")
        texts[FOLDER / f"{name}.md"] = RESULTS.format(lab=name, claim=claim, rows=rows)
    tables = {DOCS / "labs.md": "\n".join(lines) + "\n", **texts}
    return {path: MARKS.sub(lambda found, text=text: found[1] + text + found[2], path.read_text(encoding="utf-8"))
            for path, text in tables.items()}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
