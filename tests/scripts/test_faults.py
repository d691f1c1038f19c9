"""Disks and streams that fail: one line and an exit code other than 0; faults of our own stay loud."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from inprocess import done
from safetensors import SafetensorError
from stable_baselines3.common.logger import CSVOutputFormat

import rlenv.stream
from rlenv._scripts.main import NO_BARS
from rlenv._scripts.process.errors import explain, one_line
from rlenv._scripts.process.progress import progress_bar, say
from rlenv._scripts.run.log import Table
from rlenv._scripts.run.samples import SampleLog, show_samples
from rlenv.agents.files import new_folder

FAILED = "cannot read or write"
ALLOCATOR = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
OUT_OF_MEMORY = ALLOCATOR, MemoryError(), torch.OutOfMemoryError("CUDA out of memory")
RUN = [sys.executable, "-c", "from rlenv._scripts.main import main; main()"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "full"), f"{FAILED} a file: No space left on device; free some space"),
        (OSError(errno.EFBIG, "large"), f"{FAILED} a file: File too large; raise the limit of ulimit -f"),
        (PermissionError(errno.EACCES, "no", "/runs/x"), f"{FAILED} '/runs/x': Permission denied; check that its"),
        (OSError(errno.EROFS, "no", b"/runs/x"), f"{FAILED} '/runs/x': Read-only file system; check"),
        (Exception("I/O error: No space left on device (os error 28)"), f"{FAILED} a file: No space left on device"),
        *((error, "out of memory: lower --micro-batch-tokens") for error in OUT_OF_MEMORY),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), None),
        (OSError("a library's own words"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    ],
    ids=repr,
)
def test_a_full_disk_or_memory_is_one_line_and_other_faults_stay_loud(error, said):
    explained = explain(error)
    assert explained is None if said is None else explained[0].startswith(said)
    assert explained is None or explained[1] == 1


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
    ended = subprocess.run([*RUN, "bench", "--list"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_warnings_of_ours_are_one_line():
    ours = rlenv.stream.__file__
    assert one_line("why", UserWarning, ours, 7) == "warning: why\n"
    assert one_line("why", UserWarning, "a.py", 7) == "a.py:7: UserWarning: why\n"
    assert "DeprecationWarning" in one_line("why", DeprecationWarning, ours, 7)


# What goes to a pipe: plain lines, without bars and control characters; other libraries are told to do the same.

COLOR = re.compile(r"\x1b\[[\d;]*m")


def written(capsys):
    """Return what some work writes to stderr, where tests have no terminal."""
    say("begin \x1b[31mred\x1b[0m\rover")
    with progress_bar("training", 40) as show:
        for count in range(41):
            show(count, "reward [0.5], 7 tokens/s")
    show_samples([{"prompt": "a[b]", "completion": "x\x1b[2Jy\x07", "reward": 1.0}], "test")
    return capsys.readouterr().err


def test_a_pipe_gets_lines_of_text_and_colors_on_demand(capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    plain = written(capsys)
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = written(capsys)
    assert COLOR.search(colored) and COLOR.sub("", colored) == plain, "and no bar"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", plain)
    assert plain.splitlines()[1] == "training: 100% 0:00:00  reward [0.5], 7 tokens/s"
    assert r"begin \x1b[31mred" in plain and r"x\x1b[2Jy\x07" in plain


@pytest.mark.parametrize("is_terminal", [False, True])
def test_other_libraries_are_told_to_draw_no_bars_but_on_a_terminal(is_terminal, monkeypatch):
    """By the variables that they read when they are imported."""
    for name in NO_BARS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    done("bench", "--list")
    assert [name in os.environ for name in NO_BARS] == [not is_terminal] * len(NO_BARS)
