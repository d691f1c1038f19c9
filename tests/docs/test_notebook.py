"""The notebook is that of its source, small, and runs: its cells in the fast tests, its kernel in the slow ones."""

import json
import os

import pytest
from loaded import loaded
from pages import ROOT


@pytest.fixture(scope="module")
def maker():
    return loaded("docs/make_notebook.py")


def sources(book):
    return [("".join(cell["source"]), cell["cell_type"]) for cell in book["cells"]]


def images(book):
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", [])]
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def test_the_notebook_is_that_of_its_source_and_small(maker):
    text = maker.NOTEBOOK.read_text(encoding="utf-8")
    made = json.loads(text)
    assert sources(made) == sources(maker.notebook(maker.SOURCE.read_text(encoding="utf-8"))), (
        "run python docs/make_notebook.py"
    )
    assert len(images(made)) == 1
    assert len(text) < 80_000
    assert str(ROOT) not in text


def test_the_cells_run_with_fewer_updates(maker, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("RLENV_TUTORIAL_UPDATES", "2")
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope = {"__name__": "notebook"}
    for cell in maker.cells(maker.SOURCE.read_text(encoding="utf-8")):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
    assert len(scope["history"]) == 2
    assert capsys.readouterr().out.count("\nw>  ") == 2  # samples before and after


@pytest.mark.slow
def test_a_kernel_runs_the_notebook_and_the_model_learns(maker, monkeypatch):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setitem(os.environ, "PYDEVD_DISABLE_FILE_VALIDATION", "1")
    made = maker.run(maker.notebook(maker.SOURCE.read_text(encoding="utf-8")))
    said = ["".join(output.get("text", "")) for cell in made["cells"] for output in cell.get("outputs", [])]
    assert "reward 1.00" in "".join(said)
    assert len(images(made)) == 1
