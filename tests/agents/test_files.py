"""Folders that are written whole or not at all: kills at every change of the file system, and a second writer."""

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from refused import refusal
from safetensors.torch import save_file

from rlenv.agents.files import new_folder, whole_folder

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


def fill(version, wait=lambda: None):
    def write(folder):
        wait()
        (folder / "inner").mkdir()
        for name in ("a", "inner/b"):
            (folder / name).write_text(str(version))

    return write


def forked(work):
    """Do this in a fork; return its process."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def write_folder(path, fill):
    with new_folder(path) as folder:
        fill(folder)


def found(parent):
    whole = whole_folder(parent / "it")
    (version,) = {int((whole / name).read_text()) for name in ("a", "inner/b")}
    return version


def names(folder):
    return {path.name for path in folder.iterdir()}


def killed(version, parent, changes):
    """Write in a process that is killed before its change of the file system number `changes`; tell whether it was."""

    def write():
        left = itertools.count(changes, -1)

        def kill(event, arguments):
            if event in CHANGES and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        write_folder(parent / "it", fill(version))

    status = os.waitpid(forked(write), 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


@pytest.mark.slow  # tests/reliability kills whole runs
def test_two_writers_that_are_killed_anywhere_leave_a_whole_folder(tmp_path):
    first, second, kills, one, hit = tmp_path / "first", tmp_path / "second", 0, 0, True
    while hit:
        shutil.rmtree(first, ignore_errors=True)
        killed(1, first, 1000)
        hit = killed(2, first, one)
        assert found(first) in ((1, 2) if hit else (2,)), one
        two, again = 0, True
        while again:
            shutil.rmtree(second, ignore_errors=True)
            shutil.copytree(first, second)
            again = killed(3, second, two)
            assert found(second) in ((1, 2, 3) if again else (3,)), (one, two)
            kills, two = kills + again, two + 1
        assert names(second) == {"it"}
        one += 1
    assert kills > 100


def test_a_second_writer_is_told_and_harms_nothing(tmp_path):
    """The first one is another process, which is in the middle of writing until a byte comes."""
    begun, go_on = os.pipe(), os.pipe()
    wait = lambda: os.write(begun[1], b".") and os.read(go_on[0], 1)  # noqa: E731
    child = forked(lambda: write_folder(tmp_path / "it", fill(2, wait)))
    os.read(begun[0], 1)
    refusal(lambda: write_folder(tmp_path / "it", fill(1)), "another process is writing '", "it' at this moment")
    os.write(go_on[1], b".")
    assert os.waitpid(child, 0)[1] == 0 and found(tmp_path) == 2
    write_folder(tmp_path / "it", fill(3))
    assert found(tmp_path) == 3 and names(tmp_path) == {"it"}
    for descriptor in (*begun, *go_on):
        os.close(descriptor)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_a_new_file_may_read_the_weights(umask, tmp_path):
    before = os.umask(umask)
    try:
        with new_folder(tmp_path / "it") as folder:
            save_file({"a": torch.zeros(1)}, folder / "a.safetensors")  # makes it for its owner alone
            (folder / "b").touch()
    finally:
        os.umask(before)
    weights, other = ((tmp_path / "it" / name).stat().st_mode & 0o777 for name in ("a.safetensors", "b"))
    assert weights == other == 0o666 & ~umask


def test_everything_is_on_the_disk_before_a_name_changes(tmp_path, monkeypatch):
    write = lambda folder: (folder / "a").write_text("1") and None  # noqa: E731
    write_folder(tmp_path / "it", write)
    order, fsync, replace = [], os.fsync, Path.replace

    def noted_fsync(descriptor):
        order.append(os.fstat(descriptor).st_ino)
        return fsync(descriptor)

    def noted_replace(self, target):
        order.append(f"{self.name} to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_folder(tmp_path / "it", write)
    a, it, parent = (path.stat().st_ino for path in (tmp_path / "it" / "a", tmp_path / "it", tmp_path))
    assert order == [a, it, "it to .it-old", ".it-new to it", parent]
