"""Processes of torchrun: who speaks, a run that is started again, a torch without processes; and child processes.

Disks and streams that fail: one line and an exit code other than 0; faults of our own stay loud.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing

import pytest
import torch
import torch.distributed as dist
from inprocess import done, error_of, run
from processes import MARK, kill_all, new_mark, processes_of, until
from refused import refusal
from safetensors import SafetensorError
from stable_baselines3.common.logger import CSVOutputFormat

import rlenv.stream
from rlenv._scripts.main import NO_BARS
from rlenv._scripts.process import torchrun
from rlenv._scripts.process.children import Child, run_jobs
from rlenv._scripts.process.errors import explain, one_line
from rlenv._scripts.process.progress import progress_bar, say
from rlenv._scripts.run.log import Table
from rlenv._scripts.run.samples import SampleLog, show_samples
from rlenv.agents.files import new_folder


def test_an_error_of_the_user_is_printed_once_per_machine(monkeypatch, capfd):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert run("train", "--agent", "nosuch").exit_code == 2
    assert capfd.readouterr().err.count("Error:") == 1


def test_a_new_run_that_torchrun_starts_again_is_not_begun_anew(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "--resume RUN" in error_of(run("train", "--overwrite", "--log-dir", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_what_several_processes_cannot_do_is_said(monkeypatch, capfd):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("doctor", "run").exit_code == 2 and "doctor runs in one process" in capfd.readouterr().err
    refusal(lambda: torchrun.meet("cuda:0", 1.0), "cuda:0 names one device")
    monkeypatch.setattr(dist, "is_available", lambda: False)
    refusal(lambda: torchrun.meet("cpu", 1.0), "torch.distributed")


WITHOUT_PROCESSES = """
import sys
import torch.distributed

torch.distributed.is_available = lambda: False
parts = ["tensor", "device_mesh", "fsdp", "checkpoint", "distributed_c10d", "algorithms", "elastic", "rpc"]
for name in [*(f"torch.distributed.{part}" for part in parts), *sys.modules]:
    if name.startswith("torch.distributed."):
        sys.modules[name] = None
from rlenv._scripts.main import main
main()
"""


@pytest.mark.slow
def test_one_process_trains_with_a_torch_without_processes(tmp_path):
    line = "train --env CartPole-v1 --episodes 32 --episodes-per-update 16 --eval-episodes 4 --log-dir run"
    command = [sys.executable, "-c", WITHOUT_PROCESSES, *line.split()]
    ended = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert ended.returncode == 0 and "after:  mean reward" in ended.stderr, ended.stderr


# Child processes: how many, with what, and that none outlives its parent.


def job(tmp_path, name, code):
    return Child((sys.executable, "-c", code), tmp_path / f"{name}.log")


def finish(jobs, limit=2, threads=1, gpus=()):
    with closing(run_jobs(jobs, limit, threads, gpus)) as ended:
        return dict(ended)


def test_every_job_ends_with_its_exit_code_its_log_and_its_threads_and_reads_no_terminal(tmp_path):
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], os.isatty(0))"
    good, silent = job(tmp_path, "good", code), job(tmp_path, "silent", "")
    bad = job(tmp_path, "bad", "import sys; print('first', flush=True); sys.exit('broken\\n')")
    assert finish([good, bad, silent], threads=3) == {good: 0, bad: 1, silent: 0}
    assert (good.last_line(), bad.last_line(), silent.last_line()) == ("3 3 False", "broken", "no output")
    assert good.log.read_text().startswith(sys.executable)


def test_jobs_at_the_same_time_have_a_gpu_each(tmp_path):
    """The first one ends last, so that the others take the second GPU in turn."""
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'third.log')!r}).exists(): time.sleep(0.02)"
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    jobs = [job(tmp_path, "first", f"{wait}\n{show}"), job(tmp_path, "second", show), job(tmp_path, "third", show)]
    finish(jobs, gpus=["4", "7"])
    assert [each.last_line() for each in jobs] == ["4", "7", "7"]


def test_closing_ends_the_children_that_run_and_starts_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, mark := new_mark())
    wait = "import time; time.sleep(600)"
    quick, never = job(tmp_path, "quick", ""), job(tmp_path, "never", "")
    ended = run_jobs([quick, job(tmp_path, "slow", wait), job(tmp_path, "slow2", wait), never], 2, 1)
    assert next(ended) == (quick, 0)
    until(lambda: processes_of(mark))
    ended.close()
    assert not processes_of(mark) and not never.log.exists()


PARENT = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
from rlenv._scripts.process.children import Child, run_jobs
child = '''
import signal, subprocess, sys, time
from pathlib import Path
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: Path("heard").touch())
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
'''
try:
    list(run_jobs([Child((sys.executable, "-c", child, *sys.argv[1:]), Path("child.log"))], 1, 1))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM] * 2])
def test_a_signal_reaches_the_children_and_theirs_and_a_second_one_does_not_wait_for_them(
    tmp_path, signals, monkeypatch
):
    monkeypatch.setenv(MARK, mark := new_mark())
    kind = ["stubborn"] * (len(signals) - 1)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *kind], cwd=tmp_path)
    try:
        until(lambda: len(processes_of(mark)) == 3)
        parent.send_signal(signals[0])
        if kind:
            until((tmp_path / "heard").exists)
            parent.send_signal(signals[1])
        assert parent.wait(60) == 130
        until(lambda: not processes_of(mark))
    finally:
        kill_all(mark)
        parent.wait()


# Disks and streams that fail.

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
        (OSError(errno.ENAMETOOLONG, "no", "x"), f"{FAILED} 'x': File name too long; use a shorter name"),
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
    assert explained is None or explained[1] == 1 + ("name" in explained[0])


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
