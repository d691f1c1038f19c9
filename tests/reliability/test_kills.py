"""kill -9 in a warm start, before the first checkpoint, within a save: what was acknowledged is never lost."""

import itertools
import os
import shutil
import signal

import pytest
from diagonal import slow
from inprocess import done
from runs import SHARED, arguments, differences, everything, finished_run

from rlenv._scripts.jobs import imitation
from rlenv._scripts.jobs.callbacks import ShowProgress
from rlenv._scripts.run.folder import choose
from rlenv.agents import Agent, files
from rlenv.agents.training.checkpoint import read_facts


def run(folder, *more, world="pole"):
    return finished_run(folder, *arguments(*SHARED[world]), *more)


KILLS = [  # the run, and the call of a function that ends it
    *(("pole", files, "_sync_tree", 3), ("pole", ShowProgress, "_on_step", 60)),
    *(
        slow("text", imitation, "log_scalar", 2),
        slow("text", files, "_sync_tree", 1),
        slow("text", files, "_sync_tree", 4),
    ),
]


def check_goes_on(folder, whole):
    """Resume a run and compare its end with that of a run without a break; return what it said."""
    outcome = done("train", "--resume", folder, "--json")
    assert differences(everything(whole), everything(folder)) == []
    return outcome.stderr.splitlines()


@pytest.mark.parametrize(("world", "owner", "name", "call"), KILLS)
def test_a_process_killed_while_it_saves_or_steps_leaves_a_run_that_goes_on(
    world, owner, name, call, request, tmp_path
):
    """A fork of this process trains, and SIGKILL ends it: the third time that it has written a checkpoint's files."""
    folder, calls, function = tmp_path / "run", itertools.count(1), getattr(owner, name)

    def killed(*args):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)

    child = os.fork()
    if child == 0:
        try:
            setattr(owner, name, killed)
            run(folder, world=world)
        finally:
            os._exit(1)  # it was not killed
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    half_a_save = [path for path in folder.iterdir() if path.name.startswith(".checkpoint")]
    assert bool(half_a_save) == (owner is files) and not (folder / "result.json").exists()
    assert (folder / "checkpoint").is_dir() == (call > 2)
    if call > 2:
        acknowledged = read_facts(folder / "checkpoint")["num_updates"]
        assert 0 < acknowledged < 8 and Agent.load(folder / "checkpoint", device="cpu").num_updates == acknowledged
    check_goes_on(folder, request.getfixturevalue(f"{world}_run"))


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(pole_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(pole_run / "checkpoint", folder / ".checkpoint-new")  # killed in the first save
    for path in (*pole_run.glob("*/events*"), *pole_run.glob("progress.csv"), pole_run / "config.json"):
        copy = folder / path.relative_to(pole_run)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (folder / ".lock").touch()
    first, *_ = check_goes_on(folder, pole_run)
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
    assert choose(tmp_path, overwrite=False, name="run") == tmp_path
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match="exists"):
        choose(tmp_path, overwrite=False, name="run")
