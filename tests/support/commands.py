"""Commands in processes of their own, for tests about signals, disks and exit codes.

A start of Python with torch and transformers takes seconds. So one process imports them and then forks for every
command; what follows in the fork is what follows in a new process, until the interpreter has ended in its usual way.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import MARK

SERVER = """
import gc
import json
import os
import resource
import signal
import socket
import sys

import gymnasium.envs.classic_control.cartpole
import transformers.models.llama.modeling_llama

import agents
import rlenv.envs.vector
from _rlenv_scripts.console import progress
from _rlenv_scripts.setup import session, settings
from _rlenv_scripts.training import job, tracking
from _rlenv_scripts.main import main


def become(request, output, errors):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.environ.update(request["environment"])
    sys.path[:0] = request["path"]
    sys.argv = ["rlenv", *request["arguments"]]
    if not request["sync"]:
        os.fsync = lambda descriptor: None
    if request["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)


def serve(control):
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return become(request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps(answer).encode())


assert len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc") else True
gc.freeze()  # a fork whose collector visits nothing old copies fewer pages
with socket.socket(fileno=int(sys.argv[1])) as control:
    serve(control)
main()
"""


class Command:
    """A command that runs in its own process.

    Args:
        control: of the process that forks.
        folder: where the command's output goes.
        arguments: as on the command line.
        file_size: of a disk so small that files have this many bytes at most.
        path: folders in which this process, and its children, find more modules.
        sync: whether files are forced to the disk; a kill is not a power cut.
        mark: in the environment of this process and its children, see processes.py.
    """

    def __init__(self, control, folder, arguments, file_size=None, path=(), sync=True, mark=None):
        self.control, self.output, self.errors = control, folder / "stdout", folder / "stderr"
        self.returncode = None
        path = [str(each) for each in path]
        environment = {"PYTHONPATH": os.pathsep.join(path)} if path else {}
        if mark is not None:
            environment[MARK] = mark
        request = {"arguments": [str(each) for each in arguments], "file_size": file_size, "path": path, "sync": sync}
        with self.output.open("w") as output, self.errors.open("w") as errors:
            message = json.dumps(request | {"environment": environment}).encode()
            socket.send_fds(control, [message], [output.fileno(), errors.fileno()])
        self.pid = self._answer()

    def _answer(self):
        answer = self.control.recv(1 << 16)
        assert answer, "the process that forks has ended"
        return json.loads(answer)

    def poll(self):
        if self.returncode is None:
            self.control.send(json.dumps({"pid": self.pid}).encode())
            self.returncode = self._answer()
        return self.returncode

    def wait(self, seconds=240):
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self.returncode

    def wait_until(self, condition, seconds=120):
        """Wait for what the command is to do while it runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


@pytest.fixture(scope="session")
def forking():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # none when it forks
    command = [sys.executable, "-c", SERVER, str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **threads}) as process:
        theirs.close()
        with ours:
            yield ours
        assert process.wait(60) == 0


@pytest.fixture
def start(forking, tmp_path_factory):
    """Return a function that starts a command and returns it running; none outlives the test."""
    started = []

    def begin(*arguments, **options):
        started.append(Command(forking, Path(tmp_path_factory.mktemp("streams")), arguments, **options))
        return started[-1]

    yield begin
    for command in started:
        command.send_signal(signal.SIGKILL)
        command.wait()
