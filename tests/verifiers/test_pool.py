"""Worker processes: whatever a verifier does there, every verdict comes, it is counted, and nothing is left behind."""

import ctypes
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time

import cloudpickle
import pytest
from processes import eventually, open_descriptors, processes_of

from rlenv._loop import runs_in
from rlenv.verifiers import Arith, Execution, Isolated, Problem, Verdict, Verifier, isolate
from rlenv.verifiers.sandbox import worker
from rlenv.verifiers.sandbox.pool import LOOP

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found and cleared away with Linux's means")
LATE = 60.0  # seconds after which a verdict is lost
ASKED = Problem("1+1=", "2")


@pytest.fixture
def judged(mark):
    """Return a function that judges completions one after another, and see that nothing is left of the workers."""
    runs_in(LOOP)  # the loop of all pools has descriptors, too
    before, started = open_descriptors(), []

    def judge(verifier, completions, timeout=LATE / 2):
        if not started:
            started.append(Isolated(verifier, workers=1, timeout=timeout))
        futures = started[0].submit([ASKED] * len(completions), completions)
        verdicts = [future.result(LATE) for future in futures]
        assert eventually(lambda: len(processes_of(mark)) <= 1)  # the worker, no daemon
        return verdicts

    yield judge
    for verifier in started:
        verifier.close()
    assert eventually(lambda: not processes_of(mark), 20)
    assert open_descriptors() <= before


class By(Verifier):
    """Judges by a function of the completion."""

    def __init__(self, judge):
        self.judge = judge

    def verify(self, problem, completion):
        return self.judge(completion)


def hang():
    while True:
        time.sleep(60)


def ignore_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hang()


def start_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"\xff) Z 1", 0, 0, 0)  # its name is no text
            hang()
        os._exit(0)
    os.wait()
    return Verdict(1.0)


def fork():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return Verdict(float(child > 0))


def flood():
    while True:
        os.write(1, b"x" * 65536)


FAULTS = {
    "raise": (lambda: {}["mine"], "error"),
    "os._exit": (lambda: os._exit(0), "error"),
    "daemon": (start_a_daemon, "ok"),
    "daemon, then ignored SIGTERM": (lambda: (start_a_daemon(), ignore_sigterm()), "timeout"),
    "fork that returns": (fork, "ok"),
    "output flood": (flood, "error"),
    "memory bomb": (lambda: bytearray(1 << 40), "error"),
    "wrong type": (lambda: "1.0", "error"),
}


def faulty(completion):
    """Do what the completion names; anything else is right."""
    return FAULTS[completion][0]() if completion in FAULTS else Verdict(1.0)


@linux
def test_a_fault_is_counted_contained_and_cleared_away(judged):
    for kind, (_, expected) in FAULTS.items():
        verdict, fine = judged(By(faulty), [kind, "fine"], timeout=0.5)
        assert verdict.status == expected, (kind, verdict)
        assert verdict.reward == float(expected == "ok") and bool(verdict.reason) == (expected != "ok")
        assert fine == Verdict(1.0), kind


def imported(completion):
    """Name the modules of the completion that the process has imported, beside the built-in verifiers."""
    import rlenv.verifiers.builtin  # noqa: F401

    return Verdict(0.0, reason=" ".join(sorted({*completion.split()} & sys.modules.keys())))


def test_a_worker_imports_no_library_that_it_has_no_use_for(judged):
    (verdict,) = judged(By(imported), ["asyncio click gymnasium json numpy torch transformers"])
    assert verdict.reason == "json"


def prints(completion):
    """Print as many bytes as the completion says."""
    os.write(1, b"x" * int(completion))
    return Verdict(1.0)


@pytest.mark.parametrize("limit", [9, worker.OUTPUT_LIMIT])
def test_output_counts_for_the_completion_that_it_came_with(judged, limit, monkeypatch):
    """Also if the answer is there before the output was read."""
    answer = worker.Worker._answer

    async def late(asked):
        time.sleep(0.1)  # so that the loop reads nothing
        return await answer(asked)

    monkeypatch.setattr(worker.Worker, "_answer", late)
    monkeypatch.setattr(worker, "OUTPUT_LIMIT", limit)
    verdicts = judged(By(prints), [str(limit), "0", str(limit + 1), "0"])
    assert [verdict.status for verdict in verdicts] == ["ok", "ok", "error", "ok"]


def frame(body, length=None):
    return struct.pack(">I", len(body) if length is None else length) + body


BROKEN = {
    "no JSON": frame(b"[1,"),
    "unknown parts": frame(b'{"leftover":false,"more":1}'),
    "no number": frame(b'{"leftover":false,"reward":"1"}'),
    "too long": frame(b"", 1 << 30),
}


def scribbles(completion):
    """Write into the pipe that verdicts go through."""
    if completion in BROKEN:
        os.write(int(sys.argv[2]), BROKEN[completion])
        hang()
    return Verdict(1.0)


def test_a_malformed_answer_is_an_error_and_the_next_verdict_is_right(judged):
    verdicts = judged(By(scribbles), ["fine", *(text for broken in BROKEN for text in (broken, "fine"))])
    assert [verdict.status for verdict in verdicts] == ["ok", *["error", "ok"] * len(BROKEN)]
    for broken, verdict in zip(BROKEN, verdicts[1::2], strict=True):
        assert "worker" in verdict.reason and "\n" not in verdict.reason, broken


def test_a_verdict_says_in_another_process_too_whether_it_is_a_success(judged):
    solves = By(lambda said: Verdict(0.0, success={"yes": True, "no": False}.get(said)))
    assert [verdict.success for verdict in judged(solves, ["yes", "no", "-"])] == [True, False, None]


def right(completion):
    return Verdict(float(completion == "2"))


@pytest.mark.parametrize("executable", [None, "/nowhere/python"])
def test_without_an_interpreter_there_is_an_error_each_time(executable, judged, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        for verdict in judged(By(right), ["2", "2"]):
            assert verdict.status == "error"
            assert verdict.reason.startswith("a worker process cannot be started: ")
    assert eventually(lambda: judged(By(right), ["2"]) == [Verdict(1.0)])


class Arrives(Verifier):
    """Is unpickled by a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


BREAKS, NEVER = Arrives(exec, ("raise OSError('no disk')",)), Arrives(time.sleep, (3600,))


def test_what_cannot_be_pickled_or_brought_up_is_an_error_each_time():
    pools = [Isolated(each, workers=1) for each in (By(right), BREAKS)]
    verdict = pools[0].verify(Problem("1+1=", "2", {"lock": threading.Lock()}), "2")
    assert verdict.status == "error" and verdict.reason.startswith("the problem cannot be pickled: TypeError")
    assert pools[0].verify(ASKED, "2") == Verdict(1.0)
    assert all("OSError: no disk" in pools[1].verify(ASKED, "x").reason for _ in range(2))
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("verifier", [By(lambda completion: hang()), NEVER], ids=["hangs", "never arrives"])
def test_what_is_not_judged_when_the_pool_closes_is_an_error(verifier, monkeypatch):
    monkeypatch.setattr(worker, "START_SECONDS", 3600.0)
    pool = Isolated(verifier, workers=1)
    futures = pool.submit([ASKED] * 2, ["", ""])
    assert eventually(lambda: pool._workers.running)
    closing = threading.Thread(target=pool.close, daemon=True)
    closing.start()
    assert [future.result(LATE).status for future in futures] == ["error", "error"]
    closing.join(LATE)
    assert not closing.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit([ASKED], [""])


def test_isolation_is_for_those_who_want_it():
    class Dangerous(Arith):
        execution = Execution(isolated=True)

    assert isolate(Arith()) is None and isinstance(isolate(Arith(), timeout=1.0), Isolated)
    assert isinstance(isolate(Dangerous()), Isolated) and isolate(Dangerous(), workers=0) is None
    again = pickle.loads(pickle.dumps(Isolated(Arith(), workers=1, timeout=2.0, memory_mb=99)))
    assert (again.workers, again.timeout, again.memory_mb) == (1, 2.0, 99)


TRAINER = """
import time

from rlenv.verifiers import Isolated, Problem, Verifier


class Hangs(Verifier):
    def verify(self, problem, completion):
        time.sleep(3600)


Isolated(Hangs(), workers=2, timeout=3600).verify_batch([Problem("p")] * 2, ["", ""])
"""


FORKS = """
import os

from rlenv.verifiers import Arith, Isolated, Problem

pool, asked = Isolated(Arith(), workers=1), ([Problem("1+1=", "2")], ["2"])
pool.verify_batch(*asked)
child = os.fork()
if child == 0:
    try:
        pool.submit(*asked)
    except RuntimeError:
        pool.close()
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pool.verify_batch(*asked)[0].reward)
"""


@linux
def test_the_child_of_a_fork_has_no_part_in_the_workers_of_its_parent():
    strict = ["-W", "ignore", "-X", "dev"]  # in which asyncio checks what it is given
    done = subprocess.run([sys.executable, *strict, "-c", FORKS], capture_output=True, text=True, timeout=LATE)
    assert done.stdout == "7 1.0\n", done.stderr


@linux
def test_no_worker_outlives_a_trainer_that_is_killed(mark):
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER])
    try:
        assert eventually(lambda: len(processes_of(mark)) == 3)
    finally:
        trainer.kill()
        trainer.wait()
    assert eventually(lambda: not processes_of(mark))
