"""Programs that try to get out of the sandbox, each with a host that would notice."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from host import MARK, ancestors, named, output_of, processes_named, run, run_impatiently, running, status_of
from other_user import USERS, OtherUser, uid
from processes import eventually

import verifiers
from verifiers.sandbox import run as sandbox
from verifiers.sandbox.run import Limits

pytestmark = [
    pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_without_a_sandbox_programs_are_refused"),
    pytest.mark.usefixtures("user"),
]
each_user = pytest.mark.parametrize("user", USERS, indirect=True)  # in the fast suite, too
SECRET = "GOT the secret"


@pytest.fixture
def folder(user):
    """A folder of this user that nobody else sees, in the home where the user has one."""
    path = Path(tempfile.mkdtemp(dir=Path.home() if uid() == os.geteuid() else "/var/tmp", prefix=".probe"))
    os.chown(path, uid(), -1)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def victim(user):
    """A process of this user with a secret in its environment."""
    options = {} if uid() == os.geteuid() else {"user": uid(), "group": uid(), "extra_groups": []}
    process = subprocess.Popen(["sleep", "600"], env={"TOKEN": SECRET}, **options)
    yield process
    process.kill()
    process.wait()


# What a program does to its host if it can; it prints GOT and more where it could. Every one of them works where
# nothing is isolated, which the second run of each shows.
READ = "    try: print('GOT', open(path).read())\n    except OSError: pass\n"
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
}
PTRACE = (
    "import ctypes, os\nlibc = ctypes.CDLL(None)\nSEIZE = 0x4206  # which, unlike ATTACH, stops nobody\n"
    "for pid in (PID, os.getppid()):\n"
    "    if pid and libc.ptrace(SEIZE, pid, None, None) == 0: print('GOT', pid)\n"
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_program_is_after_is_out_of_reach(attack, folder, victim):
    answers = folder / "answers"
    answers.write_text(SECRET)
    os.chown(answers, uid(), -1)
    program, gets = ATTACKS[attack]
    program = program.replace("ANSWERS", str(answers))
    assert "GOT" not in output_of(program)
    assert gets in output_of(program, isolated=False)


@each_user
def test_no_process_can_be_traced(victim):
    program = PTRACE.replace("PID", str(victim.pid))
    assert "GOT" not in output_of(program)
    if uid() == 0:  # else the machine may forbid it to everybody
        assert f"GOT {victim.pid}" in output_of(program, isolated=False)


def test_nothing_is_written_outside(folder):
    folders = [str(folder), str(Path(os.__file__).parent), "/", "/usr/lib", "/var/tmp", "/dev", "/proc"]
    folders += [str(path) for path in Path("/usr/lib").iterdir() if path.is_dir()]  # covered by empty ones
    program = (
        f"import os\nfor folder in {folders!r}:\n"
        "    try: open(folder + '/MARK', 'w').close(); print('GOT', folder)\n"
        "    except OSError as error: print(error)\n"
    ).replace("MARK", MARK)
    assert "GOT" not in output_of(program)
    assert not [name for name in folders if (Path(name) / MARK).exists()]
    assert output_of(program.replace(repr(folders), repr(folders[:1])), isolated=False).count("GOT") == 1
    assert (folder / MARK).exists()


@pytest.mark.parametrize("kind", ["network", "unix", "abstract"])
def test_a_server_on_this_machine_is_not_reached(kind):
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_INET if kind == "network" else socket.AF_UNIX) as server,
    ):
        os.chown(folder, uid(), -1)
        path = f"{folder}/socket"
        server.bind({"network": ("127.0.0.1", 0), "unix": path, "abstract": f"\0{MARK}"}[kind])
        if kind == "unix":
            os.chown(path, uid(), -1)
        server.listen()
        server.setblocking(False)
        family = server.family.name
        program = f"import socket\nsocket.socket(socket.{family}).connect({server.getsockname()!r})\nprint('GOT')\n"
        assert output_of(program) == ""
        with pytest.raises(BlockingIOError):
            server.accept()
        assert output_of(program, isolated=False) == "GOT\n"
        server.accept()[0].close()


def test_every_namespace_is_a_new_one_and_the_session_too():
    kinds = ("user", "mnt", "pid", "net", "ipc", "uts")
    with running() as pid:
        inside = {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}
        assert os.getsid(pid) == os.getpgid(pid) == pid
    outside = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    assert len(inside) == len(kinds)
    assert not inside & outside


def test_what_is_there_is_what_python_needs():
    program = "import os, sys, math, ssl, sqlite3, asyncio; print(os.listdir('/tmp'), os.listdir('/dev'))"
    assert output_of(program) == "['main.py'] ['urandom', 'zero', 'null']\n"
    assert output_of("import os; print(sorted(os.environ))") == "['LC_CTYPE', 'MALLOC_ARENA_MAX', 'PYTHONHASHSEED']\n"
    folders = output_of("import os, sys\nfor path in os.listdir('/'): print(path)").split()
    assert not {"home", "work", "etc/passwd", "boot", "var", "old", "proc", "sys"} & set(folders)
    assert output_of("import torch") == ""
    assert output_of("import os\nprint(os.listdir(os.path.dirname(os.__file__) + '/site-packages'))") == "[]\n"


@each_user
def test_privileges_are_gone_for_good():
    with running() as pid:
        fields = status_of(pid)
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert "0" not in fields["Uid"].split()


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


def outcomes_of(*calls):
    """Return what each of some calls returns in the sandbox, and its error."""
    program = (
        "import ctypes, os, socket, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "pipe = os.pipe()\nids = (ctypes.c_uint64 * 99)()\n"
    )
    for each in calls:
        program += f"ctypes.set_errno(0)\nprint({each}, ctypes.get_errno(), flush=True)\n"
    for name, number in NUMBERS[os.uname().machine].items():
        program = program.replace(name, str(number))
    return output_of(program + "os._exit(0)\n").splitlines()


def test_all_ways_around_the_limits_are_closed():
    """All in one program, since every program needs a sandbox."""
    outcomes = outcomes_of(*CALLS.values())
    assert len(outcomes) == len(CALLS)
    assert [(way, end) for way, end in zip(CALLS, outcomes, strict=True) if end not in ("-1 1", "-1 38")] == []


# Programs that go for the guard: what kills or stops everybody in its process group, and what would let it live on.
ALONE = "import ctypes\nctypes.CDLL(None).prctl(1, 0)  # no signal when the parent dies\n"
KILL = "import os\nos.kill(0, 9)\nos.kill(-1, 9)\n"
STOP = "import os\nos.kill(0, 19)\nos.kill(-1, 19)\nos.kill(1, 19)\nos.kill(1, 2)\n"
LIVE_ON = f"{named(f'{MARK}g')}while True: pass\n"


@pytest.mark.parametrize("attack", [ALONE + KILL, ALONE + STOP], ids=["kill", "stop"])
def test_the_guard_is_out_of_reach(attack):
    outcome = run({"main.py": attack + LIVE_ON}, limits=Limits(seconds=0.3))
    assert outcome.ended in ("itself", "timeout")
    assert processes_named(f"{MARK}g") == []


@pytest.mark.parametrize(
    ("to_the_guard", "trainer_dies", "ended"),
    [
        (signal.SIGKILL, False, "itself"),
        (signal.SIGSTOP, False, "timeout"),
        (None, True, ""),
        (signal.SIGKILL, True, ""),
    ],
    ids=["guard killed", "guard stopped", "trainer killed", "both killed"],
)
def test_a_program_ends_whatever_becomes_of_guard_and_trainer(to_the_guard, trainer_dies, ended):
    name = f"{MARK}e"
    trainer = OtherUser(uid())
    try:
        program = f"{ALONE}{named(name)}import time\ntime.sleep(100)\n"
        trainer.send(
            run_impatiently, {"main.py": program}, limits=Limits(seconds={"timeout": 0.7, "itself": 2, "": 100}[ended])
        )
        assert eventually(lambda: processes_named(name))
        if to_the_guard:
            parents = ancestors(processes_named(name)[0])
            os.kill(parents[parents.index(trainer.process.pid) - 1], to_the_guard)
        if not trainer_dies:
            assert trainer.receive().ended == ended
    finally:
        trainer.close()
    assert eventually(lambda: not processes_named(name))


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
    "os.close(write)\nif os.read(read, 1): print('left')\n"
)


def test_a_daemon_is_not_even_started():
    assert output_of(DAEMON) == ""
    assert processes_named(f"{MARK}d") == []
    assert output_of(DAEMON, isolated=False) == "left\n"
    survivors = processes_named(f"{MARK}d")
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert len(survivors) == 1


def test_open_files_of_the_trainer_stay_its_own(folder):
    program = "import os\nfor fd in range(64):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass\n"
    with (folder / "answers").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        assert output_of(program).split() == ["0", "1", "2"]


def test_packages_are_hidden_however_deep_they_are(monkeypatch):
    """With one more folder of libraries, which holds a library, packages deep inside, and the machine's folder."""
    program = "import os\nfor folder, _, files in os.walk({!r}): print(os.path.basename(folder), *files)\n"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as library:
        for path in ("libx.so", "x86_64-linux-gnu/liby.so", "tool/lib/python3.9/site-packages/answers.py"):
            Path(library, path).parent.mkdir(parents=True, exist_ok=True)
            Path(library, path).write_text(SECRET)
        for path in (Path(library), *Path(library).rglob("*")):
            path.chmod(0o755)
        launcher = Path(library).with_suffix(".py")
        listed = f'"/lib64", "{library}")'
        launcher.write_text(Path(sandbox._LAUNCHER).read_text().replace('"/lib64")', listed))
        monkeypatch.setattr(sandbox, "_LAUNCHER", str(launcher))
        outcome = sandbox.run({"main.py": program.format(library)})
        launcher.unlink()
    lines = outcome.output.decode().splitlines()
    assert sorted(lines) == sorted([f"{Path(library).name} libx.so", "tool", "x86_64-linux-gnu liby.so"])
