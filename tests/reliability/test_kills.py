"""Folders of runs that were killed before their first checkpoint, or while they were overwritten."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from inprocess import done
from runs import SHARED, arguments, differences, everything, finished_run

from rlenv._scripts.run.folder import choose


def run(folder, *more):
    return finished_run(folder, *arguments(*SHARED["pole"]), *more)


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(pole_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(pole_run / "checkpoint", folder / ".checkpoint-new")  # killed in the first save
    for path in (*pole_run.glob("*/events*"), *pole_run.glob("progress.csv"), pole_run / "config.json"):
        copy = folder / path.relative_to(pole_run)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (folder / ".lock").touch()
    (folder / "notes.txt").write_text("mine")
    first, *_ = done("train", "--resume", folder, "--json").stderr.splitlines()
    assert differences(everything(pole_run), everything(folder)) == []
    assert (folder / "notes.txt").read_text() == "mine"
    assert first == f"'{folder}' has no checkpoint yet: the run starts again from its beginning"


def test_an_overwritten_run_that_is_killed_on_the_way_can_be_overwritten_again(pole_run, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def kill(folder, **_):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise KilledError

    folder = tmp_path / "run"
    shutil.copytree(pole_run, folder)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(shutil, "rmtree", kill)
        run(folder, "--overwrite")
    run(folder, "--overwrite")
    assert differences(everything(pole_run), everything(folder)) == []


@pytest.mark.parametrize("left", [[".lock"], [".lock", ".config.json-new"]], ids=" and ".join)
def test_a_folder_of_a_run_that_was_killed_before_it_began_is_free(left, tmp_path):
    for name in left:
        (tmp_path / name).touch()
    assert choose(tmp_path, False, "run", ExitStack()) == tmp_path
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match="exists"):
        choose(tmp_path, False, "run", ExitStack())


def test_runs_without_a_folder_that_start_together_have_one_each_and_one_that_fails_leaves_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as first, ExitStack() as second:
        chosen = [choose(None, False, "run", held) for held in (first, second)]
        (chosen[0] / "config.json").touch()
    assert chosen == [Path("runs/run"), Path("runs/run-2")]
    assert list(Path("runs").iterdir()) == [chosen[0]]
