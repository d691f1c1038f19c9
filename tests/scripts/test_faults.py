"""Disks and streams that fail: one line and an exit code other than 0; faults of our own stay loud."""

import errno
import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from stable_baselines3.common.logger import CSVOutputFormat

import rlenv.stream
from rlenv._scripts.process.errors import explain, one_line
from rlenv._scripts.run.log import Table
from rlenv._scripts.run.samples import SampleLog
from rlenv.agents.files import new_folder

ALLOCATOR = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
RUN = [sys.executable, "-c", "from rlenv._scripts.main import main; main()"]


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "full"), "a file: No space left on device; free some space"),
        (OSError(errno.EFBIG, "large"), "a file: File too large; raise the limit of ulimit -f"),
        (PermissionError(errno.EACCES, "no", "/runs/x"), "'/runs/x': Permission denied; check that its folder exists"),
        (OSError(errno.EROFS, "no", b"/runs/x"), "'/runs/x': Read-only file system; check"),
        (FileNotFoundError(errno.ENOENT, "gone", "runs/x"), "'runs/x': No such file or directory; check"),
        (Exception("I/O error: No space left on device (os error 28)"), "a file: No space left on device; free"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), None),
        (OSError("a library's own words"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    ],
    ids=["full", "limited", "permission", "read-only", "vanished", "in Rust", "network", "words", "torch"],
)
def test_faults_of_the_disk_are_one_line_and_others_stay_loud(error, said):
    explained = explain(raised(error))
    assert explained is None if said is None else explained[0].startswith(f"cannot read or write {said}")
    assert explained is None or explained[1] == 1


@pytest.mark.parametrize("error", [ALLOCATOR, MemoryError(), torch.OutOfMemoryError("CUDA out of memory")], ids=repr)
def test_memory_that_runs_out_on_any_device_is_one_line_with_the_setting_to_lower(error):
    said, code = explain(raised(error))
    assert code == 1 and said.startswith("out of memory: lower --micro-batch-tokens")


def full(*given, **more):
    raise OSError(errno.ENOSPC, "full")


def test_a_file_of_a_run_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    table, samples = Table(tmp_path / "progress.csv"), SampleLog(tmp_path / "samples.jsonl", None)
    monkeypatch.setattr(CSVOutputFormat, "write", full)
    monkeypatch.setattr(json, "dumps", full)
    writes = {table.path: lambda: table.write({}, {}), samples.path: lambda: samples.add([{}])}
    for file, write in writes.items():
        with pytest.raises(OSError, match="full") as caught:
            write()
        assert repr(str(file)) in explain(caught.value)[0]
    table.close()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), SafetensorError("I/O error: full (os error 28)")])
def test_a_folder_that_cannot_be_written_is_named(error, tmp_path):
    with pytest.raises(type(error)) as caught, new_folder(tmp_path / "checkpoint"):
        raise error
    where = repr(str(tmp_path / "checkpoint"))
    assert explain(caught.value)[0] == f"cannot read or write {where}: No space left on device; free some space"


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, "bench", "--list"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_warnings_of_ours_are_one_line():
    ours = rlenv.stream.__file__
    assert one_line("why", UserWarning, ours, 7) == "warning: why\n"
    assert one_line("why", UserWarning, "a.py", 7) == "a.py:7: UserWarning: why\n"
    assert "DeprecationWarning" in one_line("why", DeprecationWarning, ours, 7)
