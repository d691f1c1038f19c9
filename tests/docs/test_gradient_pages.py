"""The tables of docs/gradients*.md are those that their command writes, but for the last digit."""

import re
from pathlib import Path

import pytest
from loaded import loaded

DOCS = Path(__file__).parents[2] / "docs"
FIGURE = re.compile(r"-?\d+\.\d+")


@pytest.mark.slow
def test_the_pages_are_what_their_command_writes():
    pages = loaded("docs/make_gradients.py").pages()
    assert set(pages) == {path.name for path in DOCS.glob("gradients*.md")}
    for name, text in pages.items():
        kept = (DOCS / name).read_text(encoding="utf-8")
        assert FIGURE.sub("#", kept) == FIGURE.sub("#", text)
        assert [*map(float, FIGURE.findall(kept))] == pytest.approx([*map(float, FIGURE.findall(text))], abs=2e-4)
