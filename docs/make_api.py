"""Writes the tables of names on the pages of the API reference, from the docstrings: python docs/make_api.py."""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"^::: (\S+)$", re.MULTILINE)
MARKS = re.compile(r"(<!-- names -->\n).*?(<!-- end of names -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Return the pages of the reference, each with the table of what it shows."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md"))}
    return {page: MARKS.sub(lambda marks, text=text: with_table(marks, text), text) for page, text in texts.items()}


def with_table(marks: re.Match[str], text: str) -> str:
    """Return the table of the names on a page, between its marks."""
    return f"{marks[1]}{table(NAMED.findall(text))}\n{marks[2]}"


def table(names: list[str]) -> str:
    """Return a table of names, each with the first sentence of its docstring and its file."""
    rows = ["| name | what it is | file |", "|---|---|---|"]
    for name in names:
        found = pydoc.locate(name)
        file = Path(inspect.getfile(found)).resolve().relative_to(ROOT).as_posix()
        link = f"[`{Path(file).name}`](../../{file})"
        rows.append(f"| [`{name.rpartition('.')[2]}`](#{name}) | {first_sentence(found)} | {link} |")
    return "\n".join(rows)


def first_sentence(found: object) -> str:
    """Return the first sentence of a docstring, for a cell of a table."""
    paragraph = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0].rstrip(".:").replace("|", "\\|") + "."


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
