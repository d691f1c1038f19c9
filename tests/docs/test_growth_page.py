"""The page on growth holds the figures of benchmarks/results, and its benchmark measures what it says."""

from pathlib import Path

import pytest
from loaded import loaded

from benchmarks import scale

ROOT = Path(__file__).parents[2]


@pytest.fixture
def maker():
    return loaded("docs/make_growth.py")


def test_the_table_is_that_of_the_results(maker):
    found = maker.sweeps()
    assert {each["quantity"] for each in found} == set(scale.SWEEPS) == set(maker.TOLD)
    assert (ROOT / "docs" / "growth.md").read_text(encoding="utf-8") == maker.page(found), "run docs/make_growth.py"


def test_the_picture_has_a_line_for_each_quantity(maker, tmp_path):
    maker.draw(maker.sweeps(), tmp_path / "growth.svg")
    text = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text for name in maker.TOLD.values())


def test_a_page_without_marks_is_named(maker, tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "growth.md").write_text("no marks", encoding="utf-8")
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="made by make_growth"):
        maker.page([])


def test_an_update_is_measured_at_any_size(monkeypatch):
    monkeypatch.setattr(scale, "THREADS", 1)
    for more in ({}, {"vocabulary": 512, "width": 16, "layers": 1}):
        figures = scale._measure(slots=4, length=3, group=1, **more)
        assert set(figures) == {"seconds", "memory_mb", "weights"} and figures["seconds"] * figures["weights"] > 0


def test_sizes_are_those_of_the_quantity(monkeypatch):
    made = iter([{"seconds": float(n), "memory_mb": 1.0, "weights": 10 * n} for n in (1, 2, 4, 1, 2, 4)])
    monkeypatch.setattr(scale, "in_a_process", lambda *arguments: next(made))
    settings = [{**scale.BASE, "vocabulary": n, "width": 1, "layers": 1} for n in (512, 1024, 2048)]
    for quantity, first in (("vocabulary", 512), ("weights", 10)):
        row = scale._row(quantity, settings)
        assert row.details["sweep"][0]["size"] == first and row.details["powers"]["seconds"] == pytest.approx(1.0)


def test_opening_a_file_is_measured_without_touching_the_users_cache(monkeypatch):
    monkeypatch.setattr(scale.time, "sleep", lambda seconds: None)
    figures = scale._open(problems=20)
    assert set(figures) == {"seconds", "first_seconds", "memory_mb"} and figures["first_seconds"] > 0
