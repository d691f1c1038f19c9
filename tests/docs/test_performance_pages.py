"""The tables of the pages about performance are those of benchmarks/results, whose rows are complete."""

import json
from pathlib import Path

import pytest
from loaded import loaded

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
KEYS = {"name", "ratio", "ours", "peer", "unit", "pairs", "quality", "machine", "versions", "command", "date"}


@pytest.fixture
def maker():
    return loaded("docs/make_performance.py")


def test_the_tables_are_those_of_the_results(maker):
    for path, text in maker.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/make_performance.py"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_row_says_what_was_measured_where_and_how(path):
    for row in json.loads(path.read_text(encoding="utf-8")):
        assert set(row) >= KEYS
        assert row["ratio"]["min"] <= row["ratio"]["median"] <= row["ratio"]["max"]
        assert set(row["machine"]) == {"processor", "cores", "gpu"}
        assert row["command"].startswith(f"rlenv bench {path.stem}")


def test_what_was_not_measured_is_said(maker, monkeypatch):
    monkeypatch.setattr(maker, "rows_of", lambda name: [])
    assert maker.table(("h200-train",), floors=False).splitlines()[-1].startswith("| `h200-train` |  | not measured |")
    assert [line.count("|") for line in maker.table(("h200-train",), floors=True).splitlines()] == [9, 9, 9]


def test_a_page_without_marks_is_named(maker):
    with pytest.raises(ValueError, match="<!-- results -->"):
        maker.page("no marks", "table")
