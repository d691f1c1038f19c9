"""Whole runs of `rlenv train` with a hostile engine: `python tests/reliability/hostile_runs.py [KIND ...]`.

Each kind of `hostile_server.KINDS` answers the first request, or with `+` before its name the first turn that is asked
for. Prints the exit code, seconds and memory, also beyond those of a run that ends at once, and the last line; a run is
a fault if the token reached another server, or it printed a traceback, took too long or too much.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import hostile_server
from hostile_server import KINDS, HostileServer

SECRET, PATIENCE = "tok-123456", 2.0
MOST_SECONDS, MOST_MB = 60.0, 300  # beyond the first run: what hangs does not end at all, and is killed
RIGHT = {
    "/weight_info": {"weight_version": "default"},
    "/update_weight_version": {"success": True},
    "/collective_rpc": {"results": [None]},
}
RUN = (
    "train --agent grpo --model tiny --device cpu --verifier arith --verifier-arg digits=1 --sft-steps 0 "
    f"--eval-episodes 0 --episodes-per-update 16 --episodes 32 --engine vllm --engine-arg patience={PATIENCE:g}"
).split()


def run(kind: str, folder: str) -> tuple[int, float, float, bool, bool, str]:
    """Return the exit code, seconds, MB, whether the token leaked and a traceback was printed, and the last line."""
    right = RIGHT if kind.startswith("+") else {}
    with HostileServer() as other, HostileServer(kind.removeprefix("+"), other.url, right) as server:
        command = [sys.executable, "-m", "rlenv", *RUN, "--engine-url", server.url, "--log-dir", f"{folder}/run"]
        began = time.monotonic()
        with Path(folder, "output").open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=os.environ | {"RLENV_ENGINE_TOKEN": SECRET}
            )
            guard = threading.Timer(2 * MOST_SECONDS, process.kill)
            guard.start()
            _, status, usage = os.wait4(process.pid, 0)
            guard.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        text = Path(folder, "output").read_text(errors="replace")
        leaked = bool(other.asked) or SECRET in text
        lines = [line for line in text.splitlines() if line.strip()]
        seconds = time.monotonic() - began
        strange = "Traceback" in text or not all(each.isprintable() or each in "\n\r" for each in text)
        return process.returncode, seconds, usage.ru_maxrss / 1024, leaked, strange, lines[-1] if lines else ""


def main() -> None:
    """Run all kinds, or those that are named; exit with 1 if one leaked, took too long or too much, or crashed."""
    hostile_server.DROPS = 10**6  # without end
    kinds, faults, base = sys.argv[1:] or [f"{place}{kind}" for kind in KINDS for place in ("", "+")], 0, None
    for kind in ["401", *kinds]:  # first one that ends at once
        with tempfile.TemporaryDirectory() as folder:
            code, seconds, memory, leaked, strange, line = run(kind, folder)
        base = base or (seconds, memory)
        waited, beyond = seconds - base[0], memory - base[1]
        fault = leaked or strange or beyond > MOST_MB or waited > MOST_SECONDS or code != 1
        faults += fault
        said = f"{code} | {seconds:.1f} s, {waited:+.1f} | {memory:.0f} MB, {beyond:+.0f} | {line[:150]}"
        print(f"{'NO ' if fault else 'yes'} {kind} | {said}", flush=True)
    print(f"{1 + len(kinds) - faults} of {1 + len(kinds)} ended with one line")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
