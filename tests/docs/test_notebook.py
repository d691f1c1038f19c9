"""The cells of the notebook run, with fewer updates."""

import json

import pytest
from pages import ROOT


def test_the_cells_run_with_fewer_updates(monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("RLENV_TUTORIAL_UPDATES", "2")
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (ROOT / "docs" / "tutorials" / "first-run.ipynb").read_text(encoding="utf-8")
    scope = {"__name__": "notebook"}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
    assert len(scope["history"]) == 2
    assert capsys.readouterr().out.count("\nw>  ") == 2  # samples before and after
