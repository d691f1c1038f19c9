"""The table of the README is that of benchmarks/results, whose rows are complete."""

import json
from pathlib import Path

import pytest
from _rlenv_benchmarks import BENCHMARKS
from loaded import loaded

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
KEYS = {"name", "ratio", "ours", "peer", "unit", "pairs", "quality", "machine", "versions", "command", "date"}


def test_the_table_of_the_readme_is_that_of_the_results():
    maker = loaded("docs/make_performance.py")
    assert (ROOT / "README.md").read_text(encoding="utf-8") == maker.page(), "run python docs/make_performance.py"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_row_says_what_was_measured_where_and_how(path):
    assert path.stem in BENCHMARKS
    for row in json.loads(path.read_text(encoding="utf-8")):
        assert set(row) >= KEYS
        assert row["ratio"]["min"] <= row["ratio"]["median"] <= row["ratio"]["max"]
        assert row["command"].startswith(f"rlenv bench {path.stem}")
