"""kill -9 at random instants, before the first checkpoint, within a save: what was acknowledged is never lost."""

import itertools
import os
import random
import shutil
import signal

import inprocess
import pytest
from _rlenv_scripts import job
from _rlenv_scripts.callbacks import ShowProgress
from _rlenv_scripts.run import choose
from inprocess import done
from kills import Count, killed_run, seconds_of
from runs import differences, everything, finished_run

from agents import Agent, files
from agents.training.checkpoint import read_facts

SETTINGS = "--episodes-per-update 2 --eval-episodes 2 --log-interval 1 --seed 1 --device cpu --json"
POLE = "--env CartPole-v1 --env-arg max_episode_steps=40 --episodes 12 --num-envs 2 --save-every-updates 1"
WARM = "--episodes 4 --sft-steps 8 --sft-examples 8 --sft-batch-size 4 --verifier-arg digits=1 --group-size 2"
TINY = {
    "CartPole": POLE,
    "warm start": f"{WARM} --save-every 0",  # saves all the time, also within the warm start
    "workers": f"{WARM} --episodes 8 --verifier-workers 2 --save-every 0",
    "late replies": "--episodes 8 --sft-steps 0 --group-size 2 --verifier guess --verifier-arg largest=8 "
    "--verifier-workers 2 --save-every-updates 1",
}


def campaign(folder, world, kills, rng, per_run=5):
    """Return the count after at least so many kills, and what differs in the runs that came through them."""
    command, found = ["train", *TINY[world].split(), *SETTINGS.split()], []
    count = Count(fastest=seconds_of(command, folder / "whole"))
    wanted = everything(folder / "whole")
    for number in itertools.count():
        if count.kills >= kills or count.failures:
            break
        run = folder / f"run{number}"
        killed_run(command, run, min(per_run, kills - count.kills), rng, count)
        if (run / "result.json").is_file():
            found += differences(wanted, everything(run))
    return count, found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("world", "kills"), [("CartPole", 200), ("warm start", 200), ("workers", 100), ("late replies", 50)]
)
def test_five_hundred_kills(world, kills, tmp_path, capsys):
    count, found = campaign(tmp_path, world, kills, random.Random(world))
    with capsys.disabled():
        print(f"\n{world}: {count}; {len(found)} differences")
    assert count.kills == kills
    assert count.failures + found == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run without a break."""
    return run(tmp_path_factory.mktemp("whole") / "run")


def run(folder, *more):
    return finished_run(folder, "train", *POLE.split(), *SETTINGS.split(), *more)


def check_goes_on(folder, whole):
    """Resume a run and compare its end with that of a run without a break; return what it said."""
    outcome = done("train", "--resume", folder, "--json")
    assert differences(everything(whole), everything(folder)) == []
    return outcome.stderr.splitlines()


@pytest.mark.parametrize(("owner", "name", "call"), [(files, "_sync_tree", 3), (ShowProgress, "_on_step", 60)])
def test_a_process_that_is_killed_while_it_saves_or_steps_leaves_a_run_that_goes_on(owner, name, call, whole, tmp_path):
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
            run(folder)
        finally:
            os._exit(1)  # it was not killed
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    half_a_save = [path for path in folder.iterdir() if path.name.startswith(".checkpoint")]
    assert bool(half_a_save) == (owner is files) and not (folder / "result.json").exists()
    acknowledged = read_facts(folder / "checkpoint")["num_updates"]
    assert 0 < acknowledged < 6 and Agent.load(folder / "checkpoint", device="cpu").num_updates == acknowledged
    check_goes_on(folder, whole)


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole / "checkpoint", folder / ".checkpoint-new")  # the kill came in the middle of the first save
    for path in (*whole.glob("*/events*"), *whole.glob("progress.csv"), whole / "config.json"):
        copy = folder / path.relative_to(whole)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (folder / ".lock").touch()
    first, *_ = check_goes_on(folder, whole)
    assert first == f"'{folder}' has no checkpoint yet: the run starts again from its beginning"


def test_an_overwritten_run_that_is_killed_on_the_way_can_be_overwritten_again(whole, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def kill(folder, **_):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise KilledError

    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(shutil, "rmtree", kill)
        run(folder, "--overwrite")
    run(folder, "--overwrite")
    assert differences(everything(whole), everything(folder)) == []


@pytest.mark.parametrize("left", [[".lock"], [".lock", ".config.json-new"]], ids=" and ".join)
def test_a_folder_of_a_run_that_was_killed_before_it_began_is_free(left, tmp_path):
    for name in left:
        (tmp_path / name).touch()
    assert choose(tmp_path, overwrite=False, name="run") == tmp_path
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match="exists"):
        choose(tmp_path, overwrite=False, name="run")


def test_a_run_folder_that_vanishes_after_the_warm_start_does_not_take_it_along(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    real = job.session.run_evaluation

    def vanish(*arguments, **options):
        folder.rename(tmp_path / "gone")
        return real(*arguments, **options)

    monkeypatch.setattr(job.session, "run_evaluation", vanish)
    outcome = inprocess.run("train", *WARM.split(), *SETTINGS.split(), "--save-every", 0, "--log-dir", folder)
    assert outcome.exit_code == 1
    assert outcome.stderr.splitlines()[-1].startswith(f"Error: cannot read or write '{folder}")
    assert Agent.load(folder / "checkpoint", device="cpu").extra_state["warm_start"]["steps"] == 8
