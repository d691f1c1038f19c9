"""Disks and streams that fail: one line and an exit code other than 0; faults of our own stay loud."""

import errno
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import click
import pytest
from _rlenv_scripts.errors import explain, warnings_in_one_line
from _rlenv_scripts.main import Commands
from click.testing import CliRunner

import agents
import rlenv.stream

RUN = [sys.executable, "-c", "from _rlenv_scripts.main import main; main()"]


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "full"), "a file: No space left on device; free some space"),
        (PermissionError(errno.EACCES, "no", "/runs/x"), "'/runs/x': Permission denied; check that its folder exists"),
        (OSError(errno.EROFS, "no", b"/runs/x"), "'/runs/x': Read-only file system; check"),
        (FileNotFoundError(errno.ENOENT, "gone", "runs/x"), "'runs/x': No such file or directory; check"),
        (Exception("I/O error: No space left on device (os error 28)"), "a file: No space left on device; free"),
        (FileNotFoundError(errno.ENOENT, "gone", str(Path(agents.__file__).with_name("nosuch.json"))), None),
        (FileNotFoundError(errno.ENOENT, "gone", str(Path(os.__file__).with_name("nosuch.py"))), None),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), None),
        (OSError("a library's own words"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    ],
    ids=["full", "permission", "read-only", "vanished", "in Rust", "ours", "Python's", "network", "words", "torch"],
)
def test_faults_of_the_disk_are_one_line_and_others_stay_loud(error, said):
    explained = explain(raised(error))
    assert explained is None if said is None else explained[0].startswith(f"cannot read or write {said}")
    assert explained is None or explained[1] == 1


def test_a_program_that_cannot_be_started_stays_loud():
    with pytest.raises(FileNotFoundError) as caught:
        subprocess.run(["/no/such/program"])
    assert explain(caught.value) is None


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), RuntimeError("ours")], ids=["disk", "ours"])
def test_a_disk_that_fails_in_a_thread_ends_the_command_too(fault, monkeypatch):
    loud = []
    monkeypatch.setattr(threading, "excepthook", lambda args: loud.append(args.exc_value))

    def fail():
        raise fault

    def work():
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    outcome = CliRunner().invoke(Commands(commands=[click.Command("work", callback=work)]), ["work"])
    told = "Error: cannot read or write a file: No space left on device; free some space\n"
    expected = (1, [], told) if isinstance(fault, OSError) else (0, [fault], "")
    assert (outcome.exit_code, loud, outcome.stderr) == expected


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&- <&-"])
def test_closed_streams(streams):
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", *RUN, "bench", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: standard output is closed" if streams == ">&-" else "")


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, "bench", "--list"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_warnings_of_ours_are_one_line():
    before, ours = warnings.formatwarning, rlenv.stream.__file__
    with warnings_in_one_line():
        assert warnings.formatwarning("why", UserWarning, ours, 7) == "warning: why\n"
        assert warnings.formatwarning("why", UserWarning, "a.py", 7) == before("why", UserWarning, "a.py", 7)
        assert "DeprecationWarning" in warnings.formatwarning("why", DeprecationWarning, ours, 7)
    assert warnings.formatwarning is before
