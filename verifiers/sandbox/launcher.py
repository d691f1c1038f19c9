"""Builds a sandbox around its own process, then executes the untrusted program in it.

`run.py` starts this file in a new interpreter, as `python -I -S -B launcher.py STATUS_FD`, and sends a job through
standard input: four bytes of length, a marshalled dict, then the program's own input. It becomes three processes:

    guard     outside, in the process group that the trainer made; ends after process 1
    process 1 of the new namespaces, in the same group; dies with the guard, ends after the program
    program   in a separate session, so that its signals do not reach the other two

When process 1 ends, the kernel kills every process of the namespace. From inside, no signal kills or stops process 1.

Imports are few, because json, typing, contextlib or pathlib take longer to import than the sandbox takes to build.

STATUS_FD is a socket. "ready" means that the program starts now; a pidfd of process 1 comes with it, which becomes
readable when the namespace is empty. Any other text says why the program cannot start.
"""

from __future__ import annotations

import _socket  # faster than socket
import ctypes
import errno
import marshal
import os
import resource
import signal
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534
GRACE_S = 20  # after the program's deadline, in case the trainer has died
PYTHON = os.path.realpath(sys.executable)
PREFIX = os.path.realpath(sys.base_prefix)
STANDARD_LIBRARY = os.path.basename(os.path.dirname(os.path.realpath(os.__file__)))  # python3.11
LIBRARIES = (f"{PREFIX}/lib", f"{PREFIX}/lib64", "/usr/lib", "/usr/lib64", "/lib", "/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # so that sets have the same order every time
    "MALLOC_ARENA_MAX": "1",  # otherwise every thread reserves 128 MB of address space, and 6 of them fill 256 MB
}

NEW_MOUNTS, NEW_CGROUP, NEW_NAMES = 1 << 17, 1 << 25, 1 << 26
NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = 1 << 27, 1 << 28, 1 << 29, 1 << 30
NEW_ANYTHING = NEW_MOUNTS | NEW_CGROUP | NEW_NAMES | NEW_IPC | NEW_USER | NEW_PIDS | NEW_NETWORK
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH = 2
AT_CWD, AT_RECURSIVE = -100, 0x8000
PIDFD_OPEN = 434  # os.pidfd_open is missing from a Python that was built on an old system
SET_DEATH_SIGNAL, SET_DUMPABLE, SET_SECCOMP, DROP_FROM_BOUNDS, SET_NO_NEW_PRIVILEGES = 1, 4, 22, 24, 38
CAPABILITIES_V3 = 0x20080522


def main() -> None:
    """Read the job and execute its program, or report why that is impossible."""
    status = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(status.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 receives only signals that it has a handler for
    descriptors = b""
    try:
        job = marshal.loads(read_exactly(int.from_bytes(read_exactly(4), "big")))
        if job["isolated"]:
            descriptors = isolate(job, status)
        become_program(job, status, descriptors)
    except Exception as error:
        status.send(f"{type(error).__name__}: {error}".encode(errors="replace"))
        os._exit(1)


def read_exactly(size: int) -> bytes:
    """Return the next bytes of standard input and leave the rest to the program."""
    parts = []
    while size:
        parts.append(os.read(0, size))
        if not parts[-1]:
            raise EOFError("the job is cut off")
        size -= len(parts[-1])
    return b"".join(parts)


def isolate(job: dict, status: _socket.socket) -> bytes:
    """Become guard and process 1; return in a third, isolated process, with a pidfd of process 1."""
    root = os.geteuid() == 0
    job["processes"] += 1 if root else 2  # process 1, and without root the guard, count as well
    proc = os.open("/proc", os.O_DIRECTORY)  # opened now, because the new root has none
    if not root:
        enter_user_namespace(proc)  # this allows an ordinary user to make the other namespaces
    kernel("unshare", NEW_MOUNTS | NEW_PIDS | NEW_NETWORK | NEW_IPC | NEW_NAMES, about="other namespaces")
    endings = (signal.SIGCHLD, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    first = os.fork()
    if first:
        status.close()
        kernel("prctl", SET_DEATH_SIGNAL, signal.SIGTERM)
        signal.sigtimedwait(endings, job["clock"] + GRACE_S)
        os.kill(first, signal.SIGKILL)
        os._exit(code_of(os.waitpid(first, 0)[1]))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    build_root(job["disk"])
    if root:
        become_nobody()
        enter_user_namespace(proc)
    os.close(proc)
    os.chdir("/tmp")
    give_up_privileges()
    pidfd = kernel("syscall", PIDFD_OPEN, os.getpid(), 0, about="pidfd_open")
    kernel("prctl", SET_DUMPABLE, 0)  # hides process 1 from the program; execve resets it for the program
    program = os.fork()
    if program:
        status.close()
        _, ended, used = os.wait4(program, 0)
        code, spent = code_of(ended), used.ru_utime + used.ru_stime >= job["seconds"]
        os._exit(128 + signal.SIGXCPU if spent and code == 128 + signal.SIGKILL else code)  # if it ignores the first
    os.setsid()
    return struct.pack("i", pidfd)


def code_of(status: int) -> int:
    """Return the exit code of a process that was waited for, or 128 and the signal that killed it, as shells do."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def enter_user_namespace(proc: int) -> None:
    """Become the only user of a new user namespace, so that processes are counted per sandbox, not per user."""
    user, group = os.geteuid(), os.getegid()
    kernel("unshare", NEW_USER, about="user namespace")
    for name, text in (("setgroups", "deny"), ("gid_map", f"{NOBODY} {group} 1"), ("uid_map", f"{NOBODY} {user} 1")):
        with open(os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc), "w") as file:
            file.write(text)


def become_nobody() -> None:
    """Give up root, because root could read files that are only for root."""
    kernel("setgroups", 0, None)
    kernel("setresgid", NOBODY, NOBODY, NOBODY)
    kernel("setresuid", NOBODY, NOBODY, NOBODY)
    kernel("prctl", SET_DUMPABLE, 1)  # otherwise /proc/self still belongs to root


def build_root(disk: int) -> None:
    """Replace the root folder by one with the files that Python needs, read-only, and an empty /tmp."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, the kernel kills the sandbox before the trainer
    os.umask(0o022)
    kernel("sethostname", b"sandbox", 7)
    mount(None, "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", NO_SUID | NO_DEVICES, "size=1m,mode=755")
    os.mkdir("/tmp/old")
    kernel("syscall", PIVOT_ROOT[machine_index()], b"/tmp", b"/tmp/old", about="pivot_root")
    os.chdir("/")
    for path in outermost((*LIBRARIES, "/etc/ld.so.cache", PYTHON)):
        show(path, READ_ONLY | NO_SUID | NO_DEVICES)
    for path in DEVICES:
        show(path, READ_ONLY | NO_SUID | NO_EXEC)
    hide_packages()
    os.mkdir("/tmp")
    kernel("umount2", b"/old", DETACH)
    os.rmdir("/old")
    mount(None, "/", None, REMOUNT | BIND | READ_ONLY | NO_SUID | NO_DEVICES)
    mount("tmpfs", "/tmp", "tmpfs", NO_SUID | NO_DEVICES | NO_EXEC, f"size={disk},nr_inodes=1024,mode=1777")


def outermost(paths: tuple[str, ...]) -> list[str]:
    """Return the paths that exist in the old root, without paths inside another one."""
    found = [path for path in dict.fromkeys(paths) if os.path.lexists(f"/old{path}")]
    return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]


def show(path: str, attributes: int) -> None:
    """Bind a file or folder of the old root at its old path."""
    source = f"/old{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), path)
        return
    if os.path.isdir(source):
        os.mkdir(path)
    else:
        open(path, "x").close()
    mount(source, path, None, BIND | RECURSIVE)
    settings = struct.pack("QQQQ", attributes, 0, 0, 0)
    arguments = (AT_CWD, path.encode(), AT_RECURSIVE, settings, len(settings))
    kernel("syscall", MOUNT_SETATTR, *arguments, about=f"mount_setattr {path} (Linux 5.12)")


def hide_packages() -> None:
    """Cover all packages installed beside the standard library, because they could hold answers.

    Of the folders of libraries remain their files, Python's own folder without its packages, the machine's, such as
    x86_64-linux-gnu, and locales.
    """
    libraries = [path for path in dict.fromkeys(LIBRARIES) if os.path.isdir(path) and not os.path.islink(path)]
    names = [(path, name) for path in libraries for name in os.listdir(path)]
    covered = [f"{path}/{name}" for path, name in names if "-linux-" not in name and name != "locale"]
    own = [f"{path}/{STANDARD_LIBRARY}" for path in libraries]
    covered += [f"{path}/{name}" for path in own for name in ("site-packages", "dist-packages")]
    os.mkdir("/empty")
    mount("tmpfs", "/empty", "tmpfs", READ_ONLY | NO_SUID | NO_DEVICES, "size=4k")
    for path in covered:
        needed = any(f"{other}/".startswith(f"{path}/") for other in (*own, PYTHON))
        if os.path.isdir(path) and not os.path.islink(path) and not needed:
            mount("/empty", path, None, BIND)


def give_up_privileges() -> None:
    """Drop all capabilities for good, and die with the guard."""
    capability = 0
    while LIBC.prctl(DROP_FROM_BOUNDS, capability, 0, 0, 0) == 0:
        capability += 1
    kernel("capset", struct.pack("Ii", CAPABILITIES_V3, 0), bytes(24))
    kernel("prctl", SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kernel("prctl", SET_DEATH_SIGNAL, signal.SIGKILL)


# Refused calls, with their numbers on x86_64 and aarch64: memory outside all limits (System V and POSIX objects, files
# without a file system, pages in pipes, larger buffers of sockets, further processes), sockets (some families ignore
# namespaces), the memory of other processes, the user's keys, further namespaces (a new user namespace has all
# capabilities), programmable parts of the kernel, and information about mounts, the kernel and other users of the same
# files.
REFUSED = """
    shmget 29 194, semget 64 190, msgget 68 186, mq_open 240 180, memfd_create 319 279, memfd_secret 447 447,
    vmsplice 278 75, fork 57 -, vfork 58 -,
    socket 41 198, setsockopt 54 208, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271,
    add_key 248 217, request_key 249 218, keyctl 250 219, unshare 272 97, setns 308 268,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425, io_setup 206 0,
    syslog 103 116, statmount 457 457, listmount 458 458,
    inotify_init 253 -, inotify_init1 294 26, fanotify_init 300 262, flock 73 32
"""
MACHINES = ("x86_64", "aarch64")
AUDIT, PIVOT_ROOT = (0xC000003E, 0xC00000B7), (155, 41)
CLONE, FCNTL, SETRLIMIT, PRLIMIT = (56, 220), (72, 25), (160, 164), (302, 261)
NEW_THREAD = 1 << 16
SET_LEASE, NOTIFY, SET_PIPE_SIZE = 1024, 1026, 1031
SET_LOCKS = 6, 7, 37, 38  # of a process or a descriptor, waiting or not
CLONE3, MOUNT_SETATTR = 435, 442  # the same on all machines
ALLOW, KILL, FAIL_WITH = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, RETURN, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, JUMP_IF_ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0, 4, 16
# Calls that are refused for some values of an argument: call, argument, test, operand, refused result. Only threads are
# allowed, because the memory limit holds per process; a lock on a file or device of the host would be seen outside;
# RLIMIT_CORE must stay 1.
REFUSED_ARGUMENTS = (
    (CLONE, 0, JUMP_IF_ANY_BIT, NEW_ANYTHING, True),
    (CLONE, 0, JUMP_IF_ANY_BIT, NEW_THREAD, False),
    *((FCNTL, 1, JUMP_IF_EQUAL, lock, True) for lock in SET_LOCKS),
    (FCNTL, 1, JUMP_IF_EQUAL, SET_LEASE, True),
    (FCNTL, 1, JUMP_IF_EQUAL, NOTIFY, True),
    (FCNTL, 1, JUMP_IF_EQUAL, SET_PIPE_SIZE, True),
    (SETRLIMIT, 0, JUMP_IF_EQUAL, resource.RLIMIT_CORE, True),
    (PRLIMIT, 1, JUMP_IF_EQUAL, resource.RLIMIT_CORE, True),
)


def system_call_filter(machine: int) -> bytes:
    """Return the filter as the kernel's instructions: operation, jumps if true and if false, operand."""
    refused = [call.split()[1 + machine] for call in REFUSED.split(",")]
    steps = [(LOAD, 0, 0, AT_ARCHITECTURE), (JUMP_IF_EQUAL, 1, 0, AUDIT[machine]), (RETURN, 0, 0, KILL)]
    steps += [(LOAD, 0, 0, AT_NUMBER)]
    steps += [(JUMP_IF_AT_LEAST, 0, 1, 1 << 30), (RETURN, 0, 0, FAIL_WITH | errno.ENOSYS)]  # the x32 numbers of x86
    steps += [(JUMP_IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, FAIL_WITH | errno.ENOSYS)]  # a filter cannot read its flags
    for number in refused:
        if number != "-":
            steps += [(JUMP_IF_EQUAL, 0, 1, int(number)), (RETURN, 0, 0, FAIL_WITH | errno.EPERM)]
    for call, argument, test, operand, result in REFUSED_ARGUMENTS:
        steps += [(JUMP_IF_EQUAL, 0, 4, call[machine]), (LOAD, 0, 0, AT_ARGUMENTS + 8 * argument)]
        steps += [(test, not result, result, operand), (RETURN, 0, 0, FAIL_WITH | errno.EPERM)]
        steps += [(LOAD, 0, 0, AT_NUMBER)]
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def machine_index() -> int:
    """Return the column of the tables for this machine."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(f"no table of system calls for {machine}; known: {', '.join(MACHINES)}")
    return MACHINES.index(machine)


def refuse_system_calls() -> None:
    """Make the kernel apply the filter to this process and its descendants."""
    instructions = ctypes.create_string_buffer(system_call_filter(machine_index()))
    program = struct.pack("HxxxxxxP", (len(instructions) - 1) // 8, ctypes.addressof(instructions))
    kernel("prctl", SET_SECCOMP, 2, program, 0, 0)


def become_program(job: dict, status: _socket.socket, descriptors: bytes) -> None:
    """Write the files, set the limits, report readiness and pass descriptors, and execute the first file."""
    for name, text in job["files"].items():
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
    limits = {"CPU": job["seconds"], "FSIZE": job["disk"], "NOFILE": 64, "CORE": 0, "AS": job["memory"]}
    if job["isolated"]:
        limits |= {"NPROC": job["processes"], "MSGQUEUE": 0, "MEMLOCK": 0, "SIGPENDING": 64}
        limits["CORE"] = 1  # with 0, the kernel would still start a crash handler, see core(5)
    for name, value in limits.items():
        set_limit(getattr(resource, f"RLIMIT_{name}"), value, job["isolated"])
    if job["isolated"]:
        refuse_system_calls()
    status.sendmsg([b"ready"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)] if descriptors else [])
    os.execve(PYTHON, [PYTHON, "-s", "-S", "-B", "-X", "utf8", next(iter(job["files"]))], ENVIRONMENT)


def set_limit(limit: int, value: int, required: bool) -> None:
    """Lower a limit, never raise it; some systems lack some limits."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    last = value + (limit == resource.RLIMIT_CPU and value != hard)  # at this one SIGKILL, after a SIGXCPU
    try:
        resource.setrlimit(limit, (value, last))
    except (OSError, ValueError):
        if required:
            raise


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount(2) with text arguments."""
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    kernel("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3], about=target)


def kernel(name: str, *arguments: object, about: str = "") -> int:
    """Call a function of the C library; raise an OSError if it fails."""
    result: int = LIBC[name](*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name} {about}: {os.strerror(number)}".replace(" :", ":"))
    return result


if __name__ == "__main__":
    main()
