"""Make docs/tutorials/first-run.ipynb from first_run.py beside it, and run it: python docs/make_notebook.py.

The source has cells in the percent format: "# %%" begins code, "# %% [markdown]" text in comments. Running needs the
extra `dev` (nbclient and ipykernel).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "tutorials"
SOURCE, NOTEBOOK = FOLDER / "first_run.py", FOLDER / "first-run.ipynb"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cells(source: str) -> list[dict[str, Any]]:
    """Return the cells of a source in the percent format, without outputs."""
    made: list[dict[str, Any]] = []
    for kind, body in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", source, re.DOTALL | re.MULTILINE):
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if kind else body
        lines = text.strip().splitlines(keepends=True)
        cell = {"cell_type": "markdown" if kind else "code", "id": f"cell-{len(made)}", "metadata": {}, "source": lines}
        made.append(cell if kind else cell | {"execution_count": None, "outputs": []})
    return made


def notebook(source: str) -> dict[str, Any]:
    """Return the notebook without outputs."""
    return {"cells": cells(source), "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def run(made: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, without what differs from machine to machine."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.reads(json.dumps(made), as_version=4)
    NotebookClient(book, timeout=600, record_timing=False, resources={"metadata": {"path": str(FOLDER)}}).execute()
    book.metadata = {"kernelspec": KERNEL}
    for cell in book.cells:
        if cell.cell_type == "code":  # warnings and progress bars differ from machine to machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return json.loads(nbformat.writes(book))


def main() -> None:
    """Write the notebook with its outputs."""
    made = run(notebook(SOURCE.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
