"""Every row of the table of planted bugs has its place in the code and its test; `make mutations` plants them."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_row_has_its_text_and_its_test():
    table = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))
    lost = []
    for row in table["bug"]:
        for edit in [row, *row.get("also", ())]:
            text = (ROOT / edit["file"]).read_text(encoding="utf-8")
            if "find" in edit and text.count(edit["find"]) != 1:
                lost.append((row["what"], edit["file"], edit["find"]))
        file, _, name = row["test"].partition("[")[0].partition("::")
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8"):
            lost.append((row["what"], row["test"]))
    assert not lost
    assert len({row["what"] for row in table["bug"]}) == len(table["bug"]) > 190
