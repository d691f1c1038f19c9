"""Programs that try to get out of the sandbox, each with a host that would notice."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import verifiers
from verifiers import Code, sandbox
from verifiers.sandbox import Limits, SandboxError, run

needs_isolation = pytest.mark.skipif(
    bool(sandbox.unavailable()), reason="see test_without_a_sandbox_programs_are_refused"
)
MARK = f"probe{os.getpid()}"
SECRET = "GOT the secret"


def test_without_a_sandbox_programs_are_refused():
    if sandbox.unavailable():
        with pytest.raises(ValueError, match="programs cannot be isolated here"):
            Code()
    else:
        assert Code().isolating


def output_of(program, isolated=True, stdin=b"", **limits):
    return run({"main.py": program}, stdin, Limits(**limits), isolated).output.decode()


def processes_named(name):
    """Return the process ids on this machine, in whatever namespace, that gave themselves this name."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
    return found


@pytest.fixture
def home():
    """A folder in the home of this user, which nobody else sees and which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(dir=Path.home(), prefix=".probe"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def victim():
    """A process of this user with a secret in its environment."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"TOKEN": SECRET})
    yield process
    process.kill()
    process.communicate()


# What a program does to its host if it can; it prints GOT and more where it could. Every one of them works where
# nothing is isolated, which the second run of each shows.
READ = (
    "import sys\nfor path in {paths!r}:\n    try: print(open(path).read())\n    except OSError as error: print(error)\n"
)
SYMLINK = (
    "import os\nos.symlink({path!r}, 'link')\n"
    "for path in ('link', '/proc/1/root{path}', '/proc/self/root{path}', '../../../../../../../..{path}'):\n"
    "    try: print(open(path).read())\n"
    "    except OSError as error: print(error)\n"
)
ENVIRONMENTS = (
    "import os\nfor name in os.listdir('/proc'):\n    try: print(open(f'/proc/{name}/environ').read())\n"
    "    except OSError: pass\n"
)
PTRACE = (
    "import ctypes, os\nlibc = ctypes.CDLL(None)\nSEIZE = 0x4206  # which, unlike ATTACH, stops nobody\n"
    "for pid in (PID, os.getppid()):\n"
    "    if pid and libc.ptrace(SEIZE, pid, None, None) == 0: print('GOT', pid)\n"
)


@needs_isolation
def test_files_of_the_home_and_answers_are_out_of_reach(home, tmp_path):
    paths = [str(home / "key"), str(tmp_path / "answers.jsonl")]
    for path in paths:
        Path(path).write_text(SECRET)
    program = READ.format(paths=[*paths, verifiers.__file__, "/etc/passwd"])
    assert output_of(program).count("No such file or directory") == 4
    assert output_of(program, isolated=False).count(SECRET) == 2


@needs_isolation
def test_a_link_leads_nowhere(tmp_path):
    (tmp_path / "answers").write_text(SECRET)
    program = SYMLINK.replace("{path!r}", repr(str(tmp_path / "answers"))).replace("{path}", str(tmp_path / "answers"))
    assert "GOT" not in output_of(program)
    assert SECRET in output_of(program, isolated=False)


@needs_isolation
def test_the_environment_of_other_processes_is_unseen(victim, monkeypatch):
    monkeypatch.setenv("TOKEN", SECRET)
    assert "GOT" not in output_of(ENVIRONMENTS)
    assert SECRET in output_of(ENVIRONMENTS, isolated=False)
    assert output_of("import os; print(sorted(os.environ))") == "['LC_CTYPE', 'PYTHONHASHSEED']\n"


@needs_isolation
def test_no_process_can_be_traced(victim):
    program = PTRACE.replace("PID", str(victim.pid))
    assert "GOT" not in output_of(program)
    if os.geteuid() == 0:  # else the machine may forbid it to everybody
        assert f"GOT {victim.pid}" in output_of(program, isolated=False)


@needs_isolation
def test_nothing_is_written_outside(home, tmp_path):
    folders = [str(home), str(tmp_path), str(Path(os.__file__).parent), "/", "/usr/lib", "/var/tmp", "/dev", "/proc"]
    program = (
        f"import os\nfor folder in {folders!r}:\n"
        "    try: open(folder + '/MARK', 'w').close(); print('GOT', folder)\n"
        "    except OSError as error: print(error)\n"
    ).replace("MARK", MARK)
    assert "GOT" not in output_of(program)
    assert not [folder for folder in folders if (Path(folder) / MARK).exists()]
    inside = program.replace(repr(folders), repr(folders[:2]))
    assert output_of(inside, isolated=False).count("GOT") == 2
    assert (tmp_path / MARK).exists() and (home / MARK).exists()


@needs_isolation
@pytest.mark.parametrize("kind", ["network", "unix", "abstract"])
def test_a_server_on_this_machine_is_not_reached(kind, tmp_path):
    address = {"network": ("127.0.0.1", 0), "unix": str(tmp_path / "socket"), "abstract": f"\0{MARK}"}[kind]
    family = "AF_INET" if kind == "network" else "AF_UNIX"
    with socket.socket(getattr(socket, family)) as server:
        server.bind(address)
        server.listen()
        server.setblocking(False)
        program = f"import socket\nsocket.socket(socket.{family}).connect({server.getsockname()!r})\nprint('GOT')\n"
        assert output_of(program) == ""
        with pytest.raises(BlockingIOError):
            server.accept()
        assert output_of(program, isolated=False) == "GOT\n"
        server.accept()[0].close()


@needs_isolation
def test_every_namespace_is_a_new_one():
    kinds = ("user", "mnt", "pid", "net", "ipc", "uts")
    program = f"import os\nfor kind in {kinds}: print(os.readlink('/proc/self/ns/' + kind))\n"
    inside = output_of(program).split()
    outside = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds]
    assert [text.partition(":")[0] for text in inside] == list(kinds)
    assert not set(inside) & set(outside)


@needs_isolation
def test_what_is_there_is_what_python_needs():
    program = "import os, sys, math, ssl, sqlite3, asyncio; print(os.listdir('/tmp'), os.listdir('/dev'), os.getpid())"
    assert output_of(program) == "['main.py'] ['urandom', 'zero', 'null'] 1\n"
    folders = output_of("import os, sys\nfor path in os.listdir('/'): print(path)").split()
    assert not {"home", "work", "etc/passwd", "boot", "var", "old"} & set(folders)
    assert output_of("import torch") == ""
    assert output_of("import os\nprint(os.listdir(os.path.dirname(os.__file__) + '/site-packages'))") == "[]\n"


@needs_isolation
def test_privileges_are_gone_for_good():
    status = output_of("print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t") for line in status.strip().splitlines() if ":\t" in line)
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert "0" not in fields["Uid"].split()


@needs_isolation
@pytest.mark.parametrize(
    "call",
    [
        "libc.unshare(0x10000000)",  # a user namespace, with all capabilities in it
        "libc.syscall(CLONE, 0x10000011, None, None, None, None)",
        "libc.syscall(435, None, 0)",
        "libc.shmget(0, 4096, 0o1600)",
        "libc.memfd_create(b'x', 0)",
        "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
        "libc.syscall(425, 1, None)",
    ],
)
def test_ways_around_the_limits_are_closed(call):
    call = call.replace("CLONE", {"x86_64": "56", "aarch64": "220"}[os.uname().machine])
    program = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint({call}, ctypes.get_errno())\n"
    assert output_of(program) in ("-1 1\n", "-1 38\n")


DAEMON = (
    "import ctypes, os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.closerange(0, 3)\n"
    f"        ctypes.CDLL(None).prctl(15, b'{MARK}d')\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "time.sleep(0.5)\nprint('left')\n"
)


@needs_isolation
def test_a_daemon_dies_with_its_program():
    assert output_of(DAEMON) == "left\n"
    assert processes_named(f"{MARK}d") == []
    assert output_of(DAEMON, isolated=False) == "left\n"
    survivors = processes_named(f"{MARK}d")
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert len(survivors) == 1


@needs_isolation
def test_a_fork_bomb_is_small_and_gone():
    program = (
        "import ctypes, os, time\n"
        f"ctypes.CDLL(None).prctl(15, b'{MARK}f')\n"
        "try:\n    for count in range(1000):\n        if os.fork() == 0: time.sleep(60)\n"
        "except OSError: print(count)\n"
    )
    assert output_of(program, processes=10) == "9\n"
    bomb = (
        f"import ctypes, os\nctypes.CDLL(None).prctl(15, b'{MARK}f')\n"
        "while True:\n    try: os.fork()\n    except OSError: pass\n"
    )
    assert run({"main.py": bomb}, limits=Limits(seconds=1)).ended == "timeout"
    assert processes_named(f"{MARK}f") == []


@needs_isolation
def test_processes_are_counted_by_sandbox():
    from concurrent.futures import ThreadPoolExecutor

    program = (
        "import os, time\nfor _ in range(7):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(0.5)\nprint('all')\n"
    )
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: output_of(program, processes=8), range(3))) == ["all\n"] * 3


@needs_isolation
def test_memory_has_an_end():
    program = "x = bytearray(300 << 20)\nprint('GOT')\n"
    assert output_of(program, memory=256 << 20) == ""
    assert output_of(program, memory=512 << 20) == "GOT\n"


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


@needs_isolation
def test_open_files_of_the_trainer_stay_its_own(tmp_path):
    with (tmp_path / "answers").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        assert output_of("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))") == "[0, 1, 2, 3]\n"


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=needs_isolation), False])
class TestRunning:
    def test_a_program_reads_and_writes(self, isolated):
        outcome = run(
            {"main.py": "import b; print(input() + b.B)", "b.py": "B = 'é'"}, "á\n".encode(), isolated=isolated
        )
        assert (outcome.output, outcome.errors, outcome.ended) == ("áé\n".encode(), b"", "itself")

    def test_much_is_read_and_input_that_nobody_reads_does_no_harm(self, isolated):
        text = bytes(3 << 20)
        assert output_of("import sys; print(len(sys.stdin.read()))", isolated, text) == f"{3 << 20}\n"
        assert output_of("print(1)", isolated, text) == "1\n"

    @pytest.mark.parametrize(
        "program",
        [
            "while True: pass",
            "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: time.sleep(9)",
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "import os, time\nos.fork()\nos.fork()\ntime.sleep(99)",
            "import time\nwhile True:\n    print('.', flush=True)\n    time.sleep(0.001)",
        ],
    )
    def test_the_deadline_holds(self, isolated, program):
        run({"main.py": ""}, isolated=isolated)
        start = time.monotonic()
        assert run({"main.py": program}, limits=Limits(seconds=0.5), isolated=isolated).ended == "timeout"
        assert time.monotonic() - start < 10  # start, deadline and end, on a busy machine

    def test_a_flood_is_cut(self, isolated):
        for stream in ("stdout", "stderr"):
            program = f"import sys\nwhile True: sys.{stream}.write('x' * 999)"
            outcome = run({"main.py": program}, limits=Limits(output=5000), isolated=isolated)
            assert outcome.ended == "flood"
            assert len(outcome.output + outcome.errors) == 5000

    @pytest.mark.parametrize(
        "end",
        [
            "import os; os._exit(0)",
            "raise SystemExit(1)",
            "import os; os.abort()",
            "import ctypes; ctypes.string_at(0)",
            "\0",
        ],
    )
    def test_no_end_is_told_from_another(self, isolated, end):
        outcome = run({"main.py": end}, isolated=isolated)
        assert (outcome.output, outcome.ended) == (b"", "itself")
        assert not {"returncode", "status", "exit"} & set(vars(outcome))

    def test_the_order_of_sets_is_the_same_every_time(self, isolated):
        assert len({output_of("print({'a', 'b', 'c', 'd', 'e'})", isolated) for _ in range(3)}) == 1


def test_a_launcher_that_fails_is_no_outcome(monkeypatch, tmp_path):
    for text, reason in [("", "did not start"), ("import no_such_module", "No module named 'no_such_module'")]:
        (tmp_path / "launcher.py").write_text(text)
        monkeypatch.setattr(sandbox, "_LAUNCHER", str(tmp_path / "launcher.py"))
        with pytest.raises(SandboxError, match=reason):
            run({"main.py": "print(1)"})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="the sandbox cannot be started"):
        run({"main.py": "print(1)"})


@needs_isolation
def test_a_step_that_the_kernel_refuses_is_named(monkeypatch):
    with pytest.raises(SandboxError, match=r"mount /tmp: Invalid argument"):
        run({"main.py": "print(1)"}, limits=Limits(disk="much"))


def test_other_systems_are_told_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.unavailable.__wrapped__() == "namespaces need Linux, this is darwin"


@needs_isolation
def test_a_sandbox_whose_trainer_is_killed_ends():
    program = f"import ctypes, time\nctypes.CDLL(None).prctl(15, b'{MARK}')\nprint(1, flush=True)\ntime.sleep(60)\n"
    code = f"from verifiers.sandbox import *; run({{'main.py': {program!r}}}, limits=Limits(seconds=60))"
    root = Path(verifiers.__file__).parent.parent
    trainer = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    try:
        assert eventually(lambda: processes_named(MARK))
    finally:
        trainer.kill()
        trainer.wait()
    assert eventually(lambda: not processes_named(MARK))


def eventually(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="the other tests run as an ordinary user")
def test_an_ordinary_user_has_the_same_sandbox():
    code = (  # the module alone, for another interpreter may lack what the package needs
        "import importlib.util as util, os, sys\n"
        "spec = util.spec_from_file_location('sandbox', sys.argv[1])\n"
        "sys.modules['sandbox'] = sandbox = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(sandbox)\n"
        "assert os.getuid() == 65534\n"
        'program = \'import os; print(os.getpid(), os.listdir("/"), os.listdir("/tmp"))\'\n'
        "print(sandbox.unavailable() or sandbox.run({'main.py': program}))\n"
    )
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [python, "-B", "-c", code, sandbox.__file__],
                user=65534,
                group=65534,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
            )
        except PermissionError:
            continue
        if done.returncode == 0:
            assert "output=b\"1 ['tmp'" in done.stdout
            assert "['main.py']" in done.stdout
            return
    pytest.skip("no interpreter and sources that another user can read")
