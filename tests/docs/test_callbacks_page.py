"""docs/callbacks.md is what stable-baselines3's callbacks do with our agents."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_page_of_callbacks_is_true():
    made = runpy.run_path(str(DOCS / "make_callbacks.py"))
    assert made["page"]() == (DOCS / "callbacks.md").read_text(encoding="utf-8")
