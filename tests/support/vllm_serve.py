"""A real `vllm serve` on the CPU, which tests start, stop, kill and start again."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from urllib.error import URLError
from urllib.request import urlopen

SECONDS = 300  # until it answers
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmServe:
    """Serves a model's folder.

    Args:
        folder: of the model.
        options: of the command, behind those that every test needs.
        variables: of its environment.
    """

    def __init__(self, folder, *options, **variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # The wheel for the CPU has no `vllm` that starts: it looks for its version under another package's name.
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(folder)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--kv-cache-memory-bytes", str(2**26)]
        self.command = [*command, "--enforce-eager", "--logprobs-mode", "processed_logprobs", *options]
        self.folder, self.variables, self.log, self.process = folder, variables, folder.with_suffix(".log"), None

    def start(self):
        """Start, without waiting; nothing if it runs."""
        if self.process is None or self.process.poll() is not None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, env={**os.environ, **QUIET, **self.variables},
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        return self

    def wait(self):
        """Return once it answers."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(URLError, OSError), urlopen(f"{self.url}/health", timeout=5):
                return self
            time.sleep(0.2)
        raise AssertionError(self.log.read_text()[-3000:])

    def kill(self):
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
