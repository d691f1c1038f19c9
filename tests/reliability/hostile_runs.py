"""Whole runs of `rlenv train` with a hostile engine: `python tests/reliability/hostile_runs.py [KIND ...]`.

Each kind of `hostile_server.KINDS` answers the first request, or with `+` before its name the first turn that is asked
for. Prints the exit code, seconds, memory beyond the smallest of all runs, whether the token reached another server,
and the last line of the run.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from hostile_server import KINDS, HostileServer

SECRET, PATIENCE = "tok-123456", 2.0
MOST_SECONDS, MOST_MB = (
    5 * PATIENCE,
    300,
)  # beyond the quickest and the smallest run; weights and turns are asked for twice
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
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        text = Path(folder, "output").read_text(errors="replace")
        leaked = bool(other.asked) or SECRET in text
        lines = [line for line in text.splitlines() if line.strip()]
        seconds = time.monotonic() - began
        strange = "Traceback" in text or not all(each.isprintable() or each in "\n\r" for each in text)
        return process.returncode, seconds, usage.ru_maxrss / 1024, leaked, strange, lines[-1] if lines else ""


def main() -> None:
    """Run all kinds, or those that are named; exit with 1 if one leaked, took too long or too much, or crashed."""
    found = {}
    for kind in sys.argv[1:] or [f"{place}{kind}" for kind in KINDS for place in ("", "+")]:
        with tempfile.TemporaryDirectory() as folder:
            found[kind] = run(kind, folder)
    least, quickest = min(each[2] for each in found.values()), min(each[1] for each in found.values())
    faults = 0
    for kind, (code, seconds, memory, leaked, strange, line) in found.items():
        beyond, waited = memory - least, seconds - quickest
        fault = leaked or strange or beyond > MOST_MB or waited > MOST_SECONDS or code != 1
        faults += fault
        print(f"{'NO ' if fault else 'yes'} {kind} | {code} | +{waited:.1f} s | +{beyond:.0f} MB | {line[:170]}")
    print(f"{len(found) - faults} of {len(found)} ended with one line; smallest run {least:.0f} MB, {quickest:.1f} s")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
