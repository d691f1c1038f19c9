"""Disks and streams that fail: one line and an exit code other than 0; faults of our own stay loud."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
from _rlenv_scripts.errors import explain
from _rlenv_scripts.main import Commands
from click.testing import CliRunner

import agents

RUN = "from _rlenv_scripts.main import main; main()"


def fail(error):
    raise error


def raised(error):
    try:
        fail(error)
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "full"), "a file: No space left on device; free some space"),
        (PermissionError(errno.EACCES, "no", "/runs/x"), "'/runs/x': Permission denied; check that its folder exists"),
        (OSError(errno.EROFS, "no", b"/runs/x"), "'/runs/x': Read-only file system; check"),
        (FileNotFoundError(errno.ENOENT, "gone", "runs/x"), "'runs/x': No such file or directory; check"),
        (Exception("I/O error: No space left on device (os error 28)"), "a file: No space left on device; free"),
        (Exception("I/O error: No such file or directory (os error 2)"), "a file: No such file or directory; check"),
    ],
    ids=["full", "permission", "read-only", "vanished", "full, in Rust", "vanished, in Rust"],
)
def test_the_disk_of_the_user_is_told_in_one_line(error, line):
    message, code = explain(raised(error))
    assert message.startswith(f"cannot read or write {line}")
    assert code == 1


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "gone", str(Path(agents.__file__).with_name("nosuch.json"))),
        FileNotFoundError(errno.ENOENT, "gone", str(Path(os.__file__).with_name("nosuch.py"))),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        BrokenPipeError(errno.EPIPE, "a worker has died"),
        OSError("a library's own words"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ],
    ids=["ours", "Python's", "network", "pipe", "words", "torch"],
)
def test_other_faults_stay_loud(error):
    assert explain(raised(error)) is None


def test_a_program_that_cannot_be_started_stays_loud():
    with pytest.raises(FileNotFoundError) as caught:
        subprocess.run(["/no/such/program"])
    assert explain(caught.value) is None


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), RuntimeError("ours")], ids=["disk", "ours"])
def test_a_disk_that_fails_in_a_thread_ends_the_command_too(fault, monkeypatch):
    loud = []
    monkeypatch.setattr(threading, "excepthook", lambda args: loud.append(args.exc_value))

    def work():
        thread = threading.Thread(target=fail, args=(fault,))
        thread.start()
        thread.join()

    outcome = CliRunner().invoke(Commands(commands=[click.Command("work", callback=work)]), ["work"])
    if isinstance(fault, OSError):
        assert (outcome.exit_code, loud) == (1, [])
        assert outcome.stderr == "Error: cannot read or write a file: No space left on device; free some space\n"
    else:
        assert loud == [fault]


def closed(*streams, arguments):
    """Run a command without some of its standard streams."""
    shell = f'exec "$@" {" ".join(streams)}'
    command = ["sh", "-c", shell, "sh", sys.executable, "-c", RUN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_closed_streams():
    done = closed(">&-", arguments=["verifiers", "list"])
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "Error: standard output is closed, and results are printed there; send it to a file or to /dev/null"
    ]
    assert closed(">&-", "2>&-", "<&-", arguments=["bench", "--list"]).returncode == 2
    assert closed("2>&-", arguments=["trian"]).returncode == 2


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", RUN, "bench", "--list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=240)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
