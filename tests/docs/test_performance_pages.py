"""The table of the README is that of benchmarks/results."""

from pathlib import Path

from loaded import loaded

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_readme_is_that_of_the_results():
    maker = loaded("docs/make_performance.py")
    assert (ROOT / "README.md").read_text(encoding="utf-8") == maker.page(), "run python docs/make_performance.py"
