"""The tutorial with the real model, as it is printed: minutes."""

from pages import ROOT, run_page

PAGE = "docs/tutorials/teach-a-real-model.md"


def test_the_tutorial_runs_as_it_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page((ROOT / PAGE).read_text(encoding="utf-8"), PAGE, slow=True) == 6
