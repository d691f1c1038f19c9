"""Run the labs and write docs/labs.md and a page per lab in docs/labs/: python docs/make_labs.py [NAME ...].

Without names all labs run; `--pages` runs none and writes the pages from the results that docs/labs/ holds.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

from _rlenv_labs import LABS, find_lab
from _rlenv_scripts.main import main as rlenv

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "labs"
INDEX = """\
# The labs

Eight experiments that show why the algorithms are as they are. Each states a claim, measures it with the agents of this
library, and says whether it held.

    rlenv lab                        # list the labs
    rlenv lab snr                    # run one; the exit code is 0 if its claim held, else 1
    rlenv lab snr --out results      # also write the measurements (CSV), the figures (JSON) and a drawing (PNG)

{table}

The times are those of two CPU cores without a GPU, with seed 0. `python docs/make_labs.py` runs all labs and writes
these pages.
"""
PAGE = """\
# {name}: {title}

*{question}*

    rlenv lab {name}

{claim} It **{verdict}** ({seconds:.0f} s; [all labs](../labs.md)).

![{name}]({name}.png)

| measured | as claimed |
|---|---|
{rows}

## What is measured, and what follows

{about}
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


def pages() -> dict[Path, str]:
    """Return the pages of the present results: the index, and one per lab."""
    lines, texts = ["| lab | question | claim | seconds |", "|---|---|---|---|"], {}
    for name, title in LABS.items():
        result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        question, about = inspect.cleandoc(find_lab(name).__doc__ or "").split("\n", 1)
        verdict = "held" if result["held"] else "did not hold"
        lines.append(f"| [{name}](labs/{name}.md) | {question} | {verdict} | {result['seconds']:.0f} |")
        rows = [f"| {_cell(each['text'])} | {'yes' if each['held'] else 'NO'} |" for each in result["checks"]]
        texts[FOLDER / f"{name}.md"] = PAGE.format(
            name=name, title=title, question=question, about=about.strip(), claim=result["claim"], verdict=verdict,
            seconds=result["seconds"], rows="\n".join(rows),
        )  # fmt: skip
    return {DOCS / "labs.md": INDEX.format(table="\n".join(lines)), **texts}


def _cell(text: str) -> str:
    return text.replace("|", "∣")


if __name__ == "__main__":
    main(sys.argv[1:])
