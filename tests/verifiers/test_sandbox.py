"""Programs in the sandbox: input, output, limits, ends; and those that try to get out, with a host that would notice.

What a program gets where nothing is isolated shows each time that the attack works.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import eventually

from rlenv import verifiers
from rlenv.verifiers.sandbox import run as sandbox
from rlenv.verifiers.sandbox.run import ProgramLimits, SandboxError

pytestmark = pytest.mark.skipif(bool(sandbox.unavailable()), reason="no sandbox here: programs are refused")
MARK = f"probe{os.getpid()}"
SECRET = "GOT the secret"
ENDLESS = [
    "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: time.sleep(9)",
    "import os, time\ntry:\n    os.fork()\n    os.fork()\nexcept OSError: pass\ntime.sleep(99)",
    "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(99,)).start()",
    "import time\nwhile True:\n    print('.', flush=True)\n    time.sleep(0.001)",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "while True: pass",
]


def run(files, stdin=b"", isolated=True, **limits):
    return sandbox.run(files, stdin, ProgramLimits(**limits), isolated)


def run_at_once(programs, isolated=True, **limits):
    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(lambda program: run({"main.py": program}, b"", isolated, **limits), programs))


def output_of(program, isolated=True, **limits):
    return run({"main.py": program}, b"", isolated, **limits).output.decode()


def named(name):
    """Return the lines by which a program gives itself a name that `processes_named` finds."""
    return f"import ctypes\nctypes.CDLL(None).prctl(15, b'{name}')\n"


def processes_named(name):
    """Return the processes alive on this machine, in whatever namespace, that gave themselves this name."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (fields := status_of(int(folder.name)))["Name"] == name:
                found += [int(folder.name)] * (fields["State"][0] not in "ZX")
    return found


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return dict(line.split(":\t") for line in lines if ":\t" in line)


AS_NOBODY = """
set -e
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
mount -t tmpfs tmpfs /mnt
for place in $PLACES; do mkdir -p /mnt$place; mount --rbind $place /mnt$place; done
for place in $PLACES; do $nobody test -x $place || mount -t tmpfs -o mode=755 tmpfs /$(echo $place | cut -d/ -f2); done
for place in $PLACES; do mkdir -p $place; mount --rbind /mnt$place $place; done
cd / && HOME=/var/tmp exec $nobody "$@"
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="all of it is tried as an ordinary user")
def test_all_of_it_holds_for_an_ordinary_user():
    """In mounts of its own, where a folder that is closed to others has nothing but Python and this repository."""
    places = {Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(__file__).parents[2]}
    environment = {**os.environ, "PLACES": " ".join(map(str, places))}
    tests = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-q", __file__]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", AS_NOBODY, "sh", *tests], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def test_elsewhere_than_on_linux_there_is_no_sandbox(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.unavailable.__wrapped__() == "namespaces need Linux, this is darwin"


@pytest.mark.parametrize("isolated", [True, False])
class TestRunning:
    def test_a_program_reads_and_writes(self, isolated):
        files = {"main.py": "import b; print(input() + b.B)", "b.py": "B = 'é'"}
        outcome = run(files, "á\n".encode(), isolated)
        assert (outcome.output, outcome.errors, outcome.ended) == ("áé\n".encode(), b"", "itself")

    @pytest.mark.parametrize(
        ("program", "output", "ended"),
        [
            ("import sys; print(len(sys.stdin.read()))", f"{3 << 20}\n", "itself"),
            ("print(1)", "1\n", "itself"),  # and reads no input
            *((end, "", "itself") for end in ("import os; os._exit(0)", "import os; os.abort()", "\0")),
            ("import sys\nwhile True: sys.stdout.write('x' * 999)", "x" * 5000, "flood"),
            ("import sys\nwhile True: sys.stderr.write('x' * 999)", "", "flood"),
        ],
    )
    def test_much_is_read_a_flood_is_cut_and_no_end_is_told_from_another(self, isolated, program, output, ended):
        outcome = run({"main.py": program}, bytes(3 << 20), isolated, output=5000)
        assert (outcome.output.decode(), outcome.ended) == (output, ended)
        assert ended == "itself" or len(outcome.output + outcome.errors) == 5000
        assert not {"returncode", "status", "exit"} & set(vars(outcome))

    def test_the_deadline_holds(self, isolated):
        run({"main.py": ""}, isolated=isolated)
        ends = run_at_once(ENDLESS, isolated, seconds=0.2, clock=0.5)
        assert [outcome.ended for outcome in ends] == ["timeout"] * len(ENDLESS)

    def test_time_is_that_of_the_processor_and_the_clock_has_a_larger_limit(self, isolated):
        """As on a busy machine, where a program waits for its turn."""
        waits = "import time\ntime.sleep(0.3)\nprint('done')"
        assert run({"main.py": waits}, isolated=isolated, seconds=0.2, clock=60).output == b"done\n"
        assert ProgramLimits(seconds=2).deadline == 20
        told, deaf = "import os\nos.kill(os.getpid(), 24)", "import signal\nsignal.signal(24, signal.SIG_IGN)"
        spends = [f"{told}\nwhile True: pass", f"{deaf}\nprint(1)\nwhile True: pass"]
        if isolated:
            ends = run_at_once(spends, seconds=1, clock=300)
            assert [outcome.ended for outcome in ends] == ["timeout"] * 2
        assert (
            run({"main.py": "import time\ntime.sleep(99)"}, isolated=isolated, seconds=9, clock=0.3).ended == "timeout"
        )


THREADS = (
    "import threading, time\ntry:\n"
    "    for count in range(1000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    "except RuntimeError: print(count, flush=True)\n"
)
FILES = (
    "written = 0\ntry:\n    for name in range(100):\n        with open(str(name), 'wb', 0) as file:\n"
    "            written += file.write(bytes(1 << 20))\n"
    "except OSError as error: print(error.strerror, written >> 20)\n"
)
FILE = "try: open('x', 'wb').truncate(9 << 20)\nexcept OSError as error: print(error.strerror)\n"
LARGE = "x = bytearray(100 << 20)\nprint('GOT')\n"
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


@pytest.mark.parametrize(
    ("program", "limits", "output"),
    [
        (THREADS, {"processes": 10, "memory": 1 << 30}, "9\n"),
        (THREADS, {}, f"{ProgramLimits().processes - 1}\n"),  # whatever memory allocators reserve per thread
        (LARGE, {"memory": 64 << 20}, ""),
        (LARGE, {"memory": 256 << 20}, "GOT\n"),
        (TOTAL, {"memory": 128 << 20}, ""),
        (TOTAL, {"memory": 128 << 20, "isolated": False}, "GOT\n"),
        (FILES, {"disk": 8 << 20}, "No space left on device 7\n"),
        (FILE, {"disk": 8 << 20}, "File too large\n"),
    ],
)
def test_threads_memory_and_disk_have_an_end(program, limits, output):
    assert output_of(program, **limits) == output


def test_a_bomb_of_processes_is_gone_and_threads_are_counted_by_sandbox():
    bomb = f"import os\n{named(f'{MARK}f')}while True:\n    try: os.fork()\n    except OSError: pass\n"
    assert run({"main.py": bomb}, seconds=0.3, clock=0.5).ended == "timeout"
    assert processes_named(f"{MARK}f") == []
    program = "for _ in range(7): threading.Thread(target=time.sleep, args=(0.3,)).start()\nprint('all')\n"
    outcomes = run_at_once([f"import threading, time\n{program}"] * 3, processes=8, memory=1 << 30)
    assert [outcome.output for outcome in outcomes] == [b"all\n"] * 3


def test_a_sandbox_that_fails_is_no_outcome_and_a_step_that_the_kernel_refuses_is_named(monkeypatch, tmp_path):
    with pytest.raises(SandboxError, match=r"mount /tmp: Invalid argument"):
        run({"main.py": "print(1)"}, disk="much")
    for text, reason in [("", "did not start"), ("import no_such_module", "No module named 'no_such_module'")]:
        (tmp_path / "launcher.py").write_text(text)
        monkeypatch.setattr(sandbox, "_LAUNCHER", str(tmp_path / "launcher.py"))
        with pytest.raises(SandboxError, match=reason):
            sandbox.run({"main.py": "print(1)"})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(SandboxError, match="the sandbox cannot be started"):
        sandbox.run({"main.py": "print(1)"})


# Programs that try to get out.


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(dir=Path.home(), prefix=".probe"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def victim():
    """A process of the same user with a secret in its environment."""
    process = subprocess.Popen(["sleep", "600"], env={"TOKEN": SECRET})
    yield process
    process.kill()
    process.wait()


READ = "    try: print('GOT', open(path).read())\n    except OSError: pass\n"
PTRACE = (
    "import ctypes, os\nlibc = ctypes.CDLL(None)\nSEIZE = 0x4206  # which, unlike ATTACH, stops nobody\n"
    "for pid in (PID, os.getppid()):\n"
    "    if pid and libc.ptrace(SEIZE, pid, None, None) == 0: print('GOT', pid)\n"
)
DAEMON = (
    "import ctypes, os, time\nread, write = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.closerange(0, 3)\n"
    f"        ctypes.CDLL(None).prctl(15, b'{MARK}d')\n"
    "        os.write(write, b'1')\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "os.close(write)\nif os.read(read, 1): print('GOT')\n"
)
ATTACKS = {  # and what they get
    "files": (f"for path in ('ANSWERS', {verifiers.__file__!r}, '/etc/passwd'):\n{READ}", SECRET),
    "links": (
        "import os\nos.symlink('ANSWERS', 'link')\nfor path in ("
        f"'link', '/proc/1/rootANSWERS', '/proc/self/rootANSWERS', '../../../../../../../..ANSWERS'):\n{READ}",
        SECRET,
    ),
    "environments": (
        f"import os\nfor path in ['/proc/' + name + '/environ' for name in os.listdir('/proc')]:\n{READ}",
        SECRET,
    ),
    **{
        name: (f"for path in ['/proc/' + task + '/{name}' for task in ('self', 'thread-self', '1')]:\n{READ}", "GOT")
        for name in ("mountinfo", "environ", "cgroup")
    },
    "daemon": (DAEMON, "GOT"),
    "descriptors": (
        "import os\nfor fd in range(3, 64):\n    try: os.fstat(fd); print('GOT', fd)\n    except OSError: pass\n",
        "",  # Python passes none on
    ),
    "tracing": (PTRACE, "GOT" if os.geteuid() == 0 else ""),  # else the machine may forbid it to everybody
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_program_is_after_is_out_of_reach(attack, folder, victim):
    answers = folder / "answers"
    answers.write_text(SECRET)
    program, gets = ATTACKS[attack]
    with answers.open() as held:
        os.set_inheritable(held.fileno(), True)
        program = program.replace("ANSWERS", str(answers)).replace("PID", str(victim.pid))
        assert "GOT" not in output_of(program)
        assert processes_named(f"{MARK}d") == []
        assert (os.geteuid() != 0 and attack == "tracing") or gets in output_of(program, isolated=False)
    survivors = processes_named(f"{MARK}d")
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert len(survivors) == (attack == "daemon")


def test_nothing_is_written_outside(folder):
    folders = [str(folder), str(Path(os.__file__).parent), "/", "/usr/lib", "/var/tmp", "/dev", "/proc"]
    folders += [str(path) for path in Path("/usr/lib").iterdir() if path.is_dir()]  # covered by empty ones
    program = (
        "for folder in FOLDERS:\n"
        f"    try: open(folder + '/{MARK}', 'w').close(); print('GOT', folder)\n"
        "    except OSError as error: print(error)\n"
    )
    assert "GOT" not in output_of(program.replace("FOLDERS", repr(folders)))
    assert not [name for name in folders if (Path(name) / MARK).exists()]
    assert output_of(program.replace("FOLDERS", repr(folders[:1])), isolated=False) == f"GOT {folder}\n"
    assert (folder / MARK).exists()


@pytest.mark.parametrize("kind", ["network", "unix", "abstract"])
def test_a_server_on_this_machine_is_not_reached(kind):
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_INET if kind == "network" else socket.AF_UNIX) as server,
    ):
        path = f"{folder}/socket"
        server.bind({"network": ("127.0.0.1", 0), "unix": path, "abstract": f"\0{MARK}"}[kind])
        server.listen()
        server.setblocking(False)
        family = server.family.name
        program = f"import socket\nsocket.socket(socket.{family}).connect({server.getsockname()!r})\nprint('GOT')\n"
        assert output_of(program) == ""
        with pytest.raises(BlockingIOError):
            server.accept()
        assert output_of(program, isolated=False) == "GOT\n"
        server.accept()[0].close()


OPTIMIST = "try: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass\n"
DUMPS = "import resource\ntry: resource.setrlimit(4, (0, 0))\nexcept ValueError: pass\n"


def test_what_the_kernel_says_of_a_program():
    """Namespaces and session are new, privileges are gone; where memory runs out it goes first; no core is dumped."""
    kinds, name = ("user", "mnt", "pid", "net", "ipc", "uts"), f"{MARK}r"
    program = f"{OPTIMIST}{DUMPS}{named(name)}import time\ntime.sleep(100)\n"
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, {"main.py": program}, seconds=60, clock=60)
        assert eventually(lambda: processes_named(name))
        [pid] = processes_named(name)
        inside = {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}
        assert os.getsid(pid) == os.getpgid(pid) == pid
        fields = status_of(pid)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
        limits = Path(f"/proc/{pid}/limits").read_text()
        os.kill(pid, signal.SIGKILL)
        assert outcome.result().ended == "itself"
    [core] = [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core == ["1", "1"]  # 0 would still start a crash handler, see core(5)
    outside = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    assert len(inside) == len(kinds) and not inside & outside
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert "0" not in fields["Uid"].split()


def test_what_is_there_is_what_python_needs():
    program = "import os, sys, math, ssl, sqlite3, asyncio; print(os.listdir('/tmp'), os.listdir('/dev'))"
    assert output_of(program) == "['main.py'] ['urandom', 'zero', 'null']\n"
    given = output_of("import os; print(sorted(os.environ), os.environ['PYTHONHASHSEED'])")
    assert given == "['LC_CTYPE', 'MALLOC_ARENA_MAX', 'PYTHONHASHSEED'] 0\n"
    folders = output_of("import os\nfor path in os.listdir('/'): print(path)").split()
    assert folders and not {"home", "work", "boot", "var", "old", "proc", "sys"} & set(folders)
    packages = (
        "import os\nfor folder, below, files in os.walk('/'):\n"
        "    if folder.endswith('-packages') and below + files: print('GOT', folder)\n"
    )
    assert output_of(packages) == "" and "GOT" in output_of(packages.replace("'/'", repr(sys.prefix)), isolated=False)


CALLS = {
    "a user namespace, with all capabilities in it": "libc.unshare(0x10000000)",
    "the same for a child": "libc.syscall(CLONE, 0x10000011, None, None, None, None)",
    "clone3": "libc.syscall(435, None, 0)",
    "System V memory": "libc.shmget(0, 4096, 0o1600)",
    "a file without a file system": "libc.memfd_create(b'x', 0)",
    "mount": "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
    "io_uring": "libc.syscall(425, 1, None)",
    "asynchronous reading": "libc.syscall(IO_SETUP, 1, ctypes.byref(ctypes.c_long()))",
    "pages that a pipe holds": "libc.vmsplice(pipe[1], (ctypes.c_void_p * 2)(id(libc), 1), 1, 0)",
    "a larger pipe": "libc.fcntl(pipe[1], 1031, 1 << 20)",
    "a child": "libc.fork()",
    "a child without a copy": "libc.syscall(CLONE, 0x4111, None, None, None, None)",
    "watching files": "libc.inotify_init1(0)",
    "watching mounts": "libc.fanotify_init(0x200, 0)",
    "watching a folder": "libc.fcntl(os.open('/usr/lib', os.O_RDONLY), 1026, 1)",
    "a lock on a shared file": "libc.flock(os.open(os.__file__, os.O_RDONLY), 6)",
    "a lock on a device": "libc.fcntl(os.open('/dev/null', os.O_RDWR), 6, struct.pack('hhqqi', 1, 0, 0, 0, 0))",
    "the same, waiting": "libc.fcntl(os.open('/dev/zero', os.O_RDWR), 7, struct.pack('hhqqi', 1, 0, 0, 0, 0))",
    "the same of a descriptor": "libc.fcntl(os.open('/dev/zero', os.O_RDWR), 37, struct.pack('hhqqi', 1, 0, 0, 0, 0))",
    "larger buffers of a socket": "libc.setsockopt(socket.socketpair()[0].fileno(), 1, 7, b'0000', 4)",
    "a lease": "libc.fcntl(os.open('main.py', os.O_RDONLY), 1024, 0)",
    "the list of mounts": "libc.syscall(458, (ctypes.c_uint64 * 4)(24, -1), ids, 99, 0)",
    "a mount": "libc.syscall(457, (ctypes.c_uint64 * 4)(24, 1, 1), ids, 512, 0)",
    "the kernel's log": "libc.klogctl(3, ids, 99)",
    "the limit of cores": "libc.setrlimit(4, (ctypes.c_uint64 * 2)(0, 0))",
    "the same by its other name": "libc.syscall(SETRLIMIT, 4, (ctypes.c_uint64 * 2)(0, 0))",
    "a descriptor of process 1": "libc.syscall(438, libc.syscall(434, 1, 0), 0, 0)",
}
NUMBERS = {
    "x86_64": {"CLONE": 56, "IO_SETUP": 206, "SETRLIMIT": 160},
    "aarch64": {"CLONE": 220, "IO_SETUP": 0, "SETRLIMIT": 164},
}


def test_all_ways_around_the_limits_are_closed():
    """All in one program, since every program needs a sandbox: what each returns, and its error."""
    program = (
        "import ctypes, os, socket, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "pipe = os.pipe()\nids = (ctypes.c_uint64 * 99)()\n"
    )
    for each in CALLS.values():
        program += f"ctypes.set_errno(0)\nprint({each}, ctypes.get_errno(), flush=True)\n"
    for name, number in NUMBERS[os.uname().machine].items():
        program = program.replace(name, str(number))
    outcomes = output_of(program + "os._exit(0)\n").splitlines()
    assert [(way, end) for way, end in zip(CALLS, outcomes, strict=True) if end not in ("-1 1", "-1 38")] == []


# Programs that go for the guard: what kills or stops everybody in its process group, and what would let it live on.
ALONE = "import ctypes\nctypes.CDLL(None).prctl(1, 0)  # no signal when the parent dies\n"
KILL = "import os\nos.kill(0, 9)\nos.kill(-1, 9)\n"
STOP = "import os\nos.kill(0, 19)\nos.kill(-1, 19)\nos.kill(1, 19)\nos.kill(1, 2)\n"


@pytest.mark.parametrize("attack", [KILL, STOP], ids=["kill", "stop"])
def test_the_guard_is_out_of_reach(attack):
    outcome = run({"main.py": f"{ALONE}{attack}{named(f'{MARK}g')}while True: pass\n"}, seconds=0.3, clock=0.5)
    assert outcome.ended in ("itself", "timeout")
    assert processes_named(f"{MARK}g") == []


TRAINER = (
    "import sys\nfrom rlenv.verifiers.sandbox import run as sandbox\nsandbox._STOP_S = 0.3\n"
    "print(sandbox.run({'main.py': sys.argv[1]}, b'', sandbox.ProgramLimits(clock=float(sys.argv[2]))).ended)\n"
)


@pytest.mark.parametrize(
    ("to_the_guard", "trainer_dies", "ended", "seconds"),
    [
        (signal.SIGKILL, False, "itself\n", 2),
        (signal.SIGSTOP, False, "timeout\n", 0.7),
        (None, True, "", 100),
        (signal.SIGKILL, True, "", 100),
    ],
    ids=["guard killed", "guard stopped", "trainer killed", "both killed"],
)
def test_a_program_ends_whatever_becomes_of_guard_and_trainer(to_the_guard, trainer_dies, ended, seconds):
    name = f"{MARK}e"
    program = f"{ALONE}{named(name)}import time\ntime.sleep(100)\n"
    command = [sys.executable, "-c", TRAINER, program, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert eventually(lambda: processes_named(name))
        if trainer_dies:
            trainer.send_signal(signal.SIGSTOP)  # else it may still say that the guard has died
        if to_the_guard:
            parents = [processes_named(name)[0]]
            while parents[-1] != trainer.pid:
                parents.append(int(status_of(parents[-1])["PPid"]))
            os.kill(parents[-2], to_the_guard)
        if trainer_dies:
            trainer.kill()
        assert trainer.communicate(timeout=60)[0] == ended
    assert eventually(lambda: not processes_named(name))
