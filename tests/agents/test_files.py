"""Folders that are written whole or not at all: kills at every change of the file system, and a second writer."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agents import files
from agents.files import whole_folder, write_folder

# A process of its own that imports nothing large and has one thread, because it forks some thousand times.
CHILD = """
import importlib.util, itertools, os, shutil, signal, sys, types
from pathlib import Path

sys.modules["torch"] = types.ModuleType("torch")  # takes a second to import and is used for weights alone

spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
folder = Path(sys.argv[2])


def fill(version):
    def write(folder):
        (folder / "inner").mkdir()
        for name in ("a", "inner/b"):
            (folder / name).write_text(str(version))
    return write

"""
KILLS = """
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}
os.fsync = lambda descriptor: None  # a kill is not a power cut


def save(version, parent, changes):
    \"\"\"Write in a process that is killed before its change of the file system number `changes`; return whether.\"\"\"
    child = os.fork()
    if child == 0:
        left = itertools.count(changes, -1)

        def kill(event, arguments):
            if event in CHANGES and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        files.write_folder(parent / "it", fill(version))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def found(parent):
    whole = files.whole_folder(parent / "it")
    versions = {int((whole / name).read_text()) for name in ("a", "inner/b")}
    assert len(versions) == 1, versions
    return versions.pop()


first, second = folder / "first", folder / "second"
kills = 0
for one in itertools.count():
    shutil.rmtree(first, ignore_errors=True)
    save(1, first, 1000)
    killed = save(2, first, one)
    assert found(first) in ((1, 2) if killed else (2,)), one
    for two in itertools.count():
        shutil.rmtree(second, ignore_errors=True)
        shutil.copytree(first, second)
        killed_again = save(3, second, two)
        assert found(second) in ((1, 2, 3) if killed_again else (3,)), (one, two)
        kills += killed_again
        if not killed_again:
            assert [path.name for path in second.iterdir()] == ["it"]
            break
    if not killed:
        break
print(kills)
"""
WAITS = """
def wait(folder):
    print("writing", flush=True)
    sys.stdin.read()
    fill(2)(folder)

files.write_folder(folder / "it", wait)
"""


def command(source, folder):
    return [sys.executable, "-c", CHILD + textwrap.dedent(source), files.__file__, str(folder)]


def write(version):
    return lambda folder: (folder / "a").write_text(str(version)) and None


@pytest.mark.slow  # tests/reliability kills whole runs
def test_two_writers_that_are_killed_anywhere_leave_a_whole_folder(tmp_path):
    done = subprocess.run(command(KILLS, tmp_path), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


@pytest.fixture
def writer(tmp_path):
    """Return another process that is in the middle of writing tmp_path/it."""
    process = subprocess.Popen(
        command(WAITS, tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "writing\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_writer_is_told_and_harms_nothing(writer, tmp_path):
    with pytest.raises(ValueError, match=r"another process is writing '.*it' at this moment"):
        write_folder(tmp_path / "it", write(1))
    writer.communicate(timeout=60)
    assert writer.returncode == 0
    assert (tmp_path / "it" / "inner" / "b").read_text() == "2"
    write_folder(tmp_path / "it", write(3))
    assert (whole_folder(tmp_path / "it") / "a").read_text() == "3"
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_a_killed_writer_blocks_nobody(writer, tmp_path):
    writer.kill()
    writer.wait(60)
    assert {path.name for path in tmp_path.iterdir()} == {".it-lock", ".it-new"}
    write_folder(tmp_path / "it", write(3))
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_everything_is_on_the_disk_before_a_name_changes(tmp_path, monkeypatch):
    write_folder(tmp_path / "it", write(1))
    order, fsync, replace = [], os.fsync, Path.replace

    def noted_fsync(descriptor):
        order.append(os.fstat(descriptor).st_ino)
        return fsync(descriptor)

    def noted_replace(self, target):
        order.append(f"{self.name} to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_folder(tmp_path / "it", write(2))
    a, it, parent = (path.stat().st_ino for path in (tmp_path / "it" / "a", tmp_path / "it", tmp_path))
    assert order == [a, it, "it to .it-old", ".it-new to it", parent]
