"""Damaged checkpoints: each is noticed, named in one line, and the good one before it is used."""

import errno
import itertools
import os
import re
import shutil
from pathlib import Path

import pytest
from diagonal import slow
from inprocess import done, error_of
from inprocess import run as invoke
from runs import content, differences, edited, everything

from rlenv import __version__
from rlenv._scripts.run.folder import RunFolder
from rlenv.agents import Agent, ControlPolicy
from rlenv.agents.training import saving as packing
from rlenv.agents.training.checkpoint import read_checkpoint


def truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def make_folder(file):
    file.unlink()
    file.mkdir()


DAMAGE = (truncate, flip, Path.unlink, make_folder)


def test_every_file_of_a_checkpoint(text_run, tmp_path, capsys):
    """Over all files: the checkpoint before is found, and one line says why."""
    names = sorted(map(str, content(text_run / "checkpoint")))
    assert len(names) >= 15
    (tmp_path / "run").mkdir()
    (earlier,) = RunFolder(text_run).earlier().values()
    (tmp_path / "run" / earlier.name).symlink_to(earlier)
    shutil.copytree(text_run / "checkpoint", tmp_path / "run" / "checkpoint")
    for name, damage in zip(names, itertools.cycle(DAMAGE), strict=False):
        damaged = tmp_path / "run" / "checkpoint" / name
        damage(damaged)
        assert RunFolder(tmp_path / "run").newest().path.name == earlier.name, name
        (line,) = capsys.readouterr().err.splitlines()
        assert str(tmp_path / "run" / "checkpoint") in line, line
        assert line.endswith(f"; '{tmp_path / 'run' / earlier.name}' is used instead")
        if damaged.is_dir():
            damaged.rmdir()
        shutil.copy(text_run / "checkpoint" / name, damaged)
    assert RunFolder(tmp_path / "run").newest().path.name == "checkpoint", "all is whole again"


def test_another_version(text_copy, capsys):
    file = text_copy / "checkpoint" / "agent.json"
    for version in (8, "7", None):
        edited(file, format=version, version="0.9")
        assert [RunFolder(text_copy).newest().path] == [*RunFolder(text_copy).earlier().values()]
        (line,) = capsys.readouterr().err.splitlines()
        assert f"was written by version '0.9' of rlenv (format {version!r}); this is {__version__} (format 7)" in line


@pytest.mark.parametrize("world", ["pole", slow("text")])
def test_a_resumed_run_says_which_checkpoint_it_uses_and_ends_the_same(world, request):
    run, copy = (request.getfixturevalue(f"{world}_{what}") for what in ("run", "copy"))
    flip(copy / "checkpoint" / "training.safetensors")
    (copy / "result.json").unlink()
    outcome = done("train", "--resume", copy, "--json")
    first, *_ = outcome.stderr.splitlines()
    assert re.search(r"checkpoint' is damaged: training\.safetensors is not .*checkpoint-\d+' is used instead$", first)
    assert differences(everything(run), everything(copy)) == []


def test_a_whole_checkpoint_beside_a_damaged_one_is_used(text_copy, capsys):
    """A kill between the last two renames of a save leaves the one before under its third name."""
    (earlier,) = RunFolder(text_copy).earlier().values()
    earlier.rename(text_copy / ".checkpoint-old")
    flip(text_copy / "checkpoint" / "agent.json")
    newest = RunFolder(text_copy).newest().path
    assert newest == text_copy / ".checkpoint-old"
    assert "is used instead" in capsys.readouterr().err
    Agent.load(newest, device="cpu")


def test_no_whole_checkpoint_is_one_line(text_copy):
    for folder in (text_copy / "checkpoint", *RunFolder(text_copy).earlier().values()):
        truncate(folder / "policy" / "model" / "model.safetensors")
    line = error_of(invoke("train", "--resume", text_copy))
    assert line.startswith(f"Error: no whole checkpoint is left in '{text_copy}': ") and line.count("is damaged") == 2


FULL = OSError(errno.ENOSPC, "full")
WRITES = {  # what is called, and which of its calls fails
    "the policy": (ControlPolicy, "save", 1),
    "the tensors": (packing, "save_file", 1),
    "the second name": (Path, "replace", 2),
    "the sync": (os, "fsync", 1),
}


@pytest.mark.parametrize(("owner", "name", "call"), WRITES.values(), ids=WRITES)
def test_a_disk_that_fails_while_saving_leaves_the_checkpoint_before(owner, name, call, pole_copy, monkeypatch):
    calls, function = itertools.count(1), getattr(owner, name)

    def fail(*given, **more):
        if next(calls) == call:
            raise FULL
        return function(*given, **more)

    before = everything(pole_copy)["checkpoint"]
    agent = Agent.load(pole_copy / "checkpoint", device="cpu")
    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(owner, name, fail)
        agent.save(pole_copy / "checkpoint", pole_copy / "checkpoint-000099")
    assert caught.value is FULL
    assert everything(pole_copy)["checkpoint"] == before
    assert RunFolder(pole_copy).newest().path == pole_copy / "checkpoint"
    assert not [path for path in pole_copy.iterdir() if path.name.startswith(".checkpoint")]
    agent.save(pole_copy / "checkpoint")
    Agent.load(pole_copy / "checkpoint", device="cpu")


def test_damaged_checkpoints_take_no_place_of_whole_ones(pole_copy):
    """They may be later than the one from which the run goes on."""
    shutil.copytree(pole_copy / "best", pole_copy / "checkpoint-000002")
    for folder in (pole_copy / "checkpoint", pole_copy / "checkpoint-000007"):
        flip(folder / "training.safetensors")
    (pole_copy / "checkpoint" / "agent.json").unlink()  # its place is needed all the same
    done("train", "--resume", pole_copy, "--episodes", 36)
    kept = [read_checkpoint(folder).facts["num_updates"] for folder in RunFolder(pole_copy).checkpoints()]
    assert kept == [9, 8]
