"""Running programs: input, output, limits, ends, and a sandbox that cannot be built."""

import sys
from pathlib import Path

import pytest
from host import MARK, ends_at_once, named, output_of, outputs_at_once, processes_named, run, running
from other_user import USERS, call

from verifiers import Code
from verifiers.sandbox import run as sandbox
from verifiers.sandbox.run import Limits, SandboxError

pytestmark = pytest.mark.usefixtures("user")
each_user = pytest.mark.parametrize("user", USERS, indirect=True)  # in the fast suite, too
needs_isolation = pytest.mark.skipif(
    bool(sandbox.unavailable()), reason="see test_without_a_sandbox_programs_are_refused"
)

ENDLESS = [
    "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: time.sleep(9)",
    "import os, time\ntry:\n    os.fork()\n    os.fork()\nexcept OSError: pass\ntime.sleep(99)",
    "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(99,)).start()",
    "import time\nwhile True:\n    print('.', flush=True)\n    time.sleep(0.001)",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "while True: pass",
]


def test_without_a_sandbox_programs_are_refused():
    if sandbox.unavailable():
        with pytest.raises(ValueError, match="programs cannot be isolated here"):
            Code()
    else:
        assert Code().isolating


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=needs_isolation), False])
class TestRunning:
    @each_user
    def test_a_program_reads_and_writes(self, isolated):
        outcome = run(
            {"main.py": "import b; print(input() + b.B)", "b.py": "B = 'é'"}, "á\n".encode(), isolated=isolated
        )
        assert (outcome.output, outcome.errors, outcome.ended) == ("áé\n".encode(), b"", "itself")

    def test_much_is_read_and_input_that_nobody_reads_does_no_harm(self, isolated):
        text = bytes(3 << 20)
        assert output_of("import sys; print(len(sys.stdin.read()))", isolated, text) == f"{3 << 20}\n"
        assert output_of("print(1)", isolated, text) == "1\n"

    def test_the_deadline_holds(self, isolated):
        call(ends_at_once, [""], isolated)
        assert call(ends_at_once, ENDLESS, isolated, seconds=0.2) == dict.fromkeys(ENDLESS, "timeout")

    def test_a_flood_is_cut(self, isolated):
        for stream in ("stdout", "stderr"):
            program = f"import sys\nwhile True: sys.{stream}.write('x' * 999)"
            outcome = run({"main.py": program}, limits=Limits(output=5000), isolated=isolated)
            assert outcome.ended == "flood"
            assert len(outcome.output + outcome.errors) == 5000

    @pytest.mark.parametrize("end", ["import os; os._exit(0)", "import os; os.abort()", "\0"])
    def test_no_end_is_told_from_another(self, isolated, end):
        outcome = run({"main.py": end}, isolated=isolated)
        assert (outcome.output, outcome.ended) == (b"", "itself")
        assert not {"returncode", "status", "exit"} & set(vars(outcome))

    def test_the_order_of_sets_is_the_same_every_time(self, isolated):
        assert len({output_of("print(set('abcdefgh'))", isolated) for _ in range(2)}) == 1


@needs_isolation
def test_a_bomb_of_processes_or_threads_is_small_and_gone():
    program = (
        "import threading, time\ntry:\n"
        "    for count in range(1000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "except RuntimeError: print(count, flush=True)\n"
    )
    assert output_of(program, processes=10, memory=1 << 30) == "9\n"
    assert output_of(program) == f"{Limits().processes - 1}\n"  # whatever memory allocators reserve per thread
    bomb = f"import os\n{named(f'{MARK}f')}while True:\n    try: os.fork()\n    except OSError: pass\n"
    assert run({"main.py": bomb}, limits=Limits(seconds=0.3)).ended == "timeout"
    assert processes_named(f"{MARK}f") == []


@needs_isolation
def test_threads_are_counted_by_sandbox():
    program = (
        "import threading, time\n"
        "for _ in range(7): threading.Thread(target=time.sleep, args=(0.3,)).start()\nprint('all')\n"
    )
    assert call(outputs_at_once, program, 3, processes=8, memory=1 << 30) == ["all\n"] * 3


TOTAL = """
import os, time
read, write = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b'x') * (48 << 20)
        os.write(write, b'1')
        time.sleep(60)
for _ in range(4): os.read(read, 1)
print('GOT', flush=True)
os.kill(0, 9)
"""


@needs_isolation
def test_memory_has_an_end():
    program = "x = bytearray(100 << 20)\nprint('GOT')\n"
    assert output_of(program, memory=64 << 20) == ""
    assert output_of(program, memory=256 << 20) == "GOT\n"


@needs_isolation
def test_memory_has_one_end_for_all_of_a_program():
    assert output_of(TOTAL, memory=128 << 20) == ""
    assert output_of(TOTAL, memory=128 << 20, isolated=False) == "GOT\n"


@needs_isolation
def test_the_disk_has_an_end():
    program = (
        "written = 0\ntry:\n    for name in range(100):\n        with open(str(name), 'wb', 0) as file:\n"
        "            written += file.write(bytes(1 << 20))\n"
        "except OSError as error: print(error.strerror, written >> 20)\n"
    )
    assert output_of(program, disk=8 << 20) == "No space left on device 7\n"
    program = "try: open('x', 'wb').truncate(9 << 20)\nexcept OSError as error: print(error.strerror)\n"
    assert output_of(program, disk=8 << 20) == "File too large\n"


OPTIMIST = "try: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass\n"


@needs_isolation
def test_where_memory_runs_out_the_program_goes_first():
    with running(OPTIMIST) as pid:
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


@needs_isolation
def test_no_core_is_dumped_to_a_file_or_to_a_crash_handler():
    program = "import resource\ntry: resource.setrlimit(4, (0, 0))\nexcept ValueError: pass\n"
    with running(program) as pid:
        limits = Path(f"/proc/{pid}/limits").read_text()
    [core] = [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core == ["1", "1"]  # 0 would still start a crash handler, see core(5)


def test_a_launcher_that_fails_is_no_outcome(monkeypatch, tmp_path):
    for text, reason in [("", "did not start"), ("import no_such_module", "No module named 'no_such_module'")]:
        (tmp_path / "launcher.py").write_text(text)
        monkeypatch.setattr(sandbox, "_LAUNCHER", str(tmp_path / "launcher.py"))
        with pytest.raises(SandboxError, match=reason):
            sandbox.run({"main.py": "print(1)"})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="the sandbox cannot be started"):
        sandbox.run({"main.py": "print(1)"})


@needs_isolation
def test_a_step_that_the_kernel_refuses_is_named(monkeypatch):
    with pytest.raises(SandboxError, match=r"mount /tmp: Invalid argument"):
        run({"main.py": "print(1)"}, limits=Limits(disk="much"))


def test_other_systems_are_told_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.unavailable.__wrapped__() == "namespaces need Linux, this is darwin"
