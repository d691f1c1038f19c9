"""Kinds of faults, each in a worker process: training goes on, nothing is left behind, everything counts."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time

import cloudpickle
import pytest
from processes import MARK, eventually, kill_all, new_mark, processes_of

from verifiers import Arith, Isolated, Problem, Verdict, Verifier, isolate

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

LIMIT = 0.5


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
            hang()
        os._exit(0)
    os.wait()
    return Verdict(1.0)


def flood():
    while True:
        os.write(1, b"x" * 65536)


def segmentation_fault():
    ctypes.string_at(0)


def raise_error():
    raise KeyError("mine")


FAULTS = {
    "raise": (raise_error, "error"),
    "os._exit": (lambda: os._exit(0), "error"),
    "segmentation fault": (segmentation_fault, "error"),
    "ignored SIGTERM": (ignore_sigterm, "timeout"),
    "daemon": (start_a_daemon, "ok"),
    "output flood": (flood, "error"),
    "memory bomb": (lambda: bytearray(1 << 40), "error"),
    "NaN": (lambda: Verdict(float("nan")), "error"),
    "wrong type": (lambda: "1.0", "error"),
}


class Faulty(Verifier):
    """Does what the completion names; anything else is right."""

    def verify_batch(self, problems, completions):
        if completions[0] not in FAULTS:
            return [Verdict(1.0)]
        made = FAULTS[completions[0]][0]()
        return made if isinstance(made, list) else [made]


def inject(kind, monkeypatch, workers=2):
    """Judge faults among right answers; return the completions with their verdicts."""
    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    verifier = Isolated(Faulty(), workers=workers, timeout=LIMIT)
    try:
        completions = [kind, "fine"] * 2
        verdicts = verifier.verify_batch([Problem("p")] * len(completions), completions)
        assert eventually(lambda: len(processes_of(mark)) <= 2 * workers)  # a supervisor and a worker each, no daemon
    finally:
        verifier.close()
    assert processes_of(mark) == []
    return zip(completions, verdicts, strict=True)


@pytest.mark.skipif(sys.platform != "linux", reason="faults are cleared away with Linux's means")
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_counted_contained_and_cleared_away(kind, monkeypatch):
    for said, verdict in inject(kind, monkeypatch):
        expected = FAULTS[said][1] if said in FAULTS else "ok"
        assert verdict.status == expected, verdict
        assert verdict.reward == (1.0 if expected == "ok" else 0.0)
        assert bool(verdict.reason) == (expected != "ok")


class Sleepy(Verifier):
    def verify(self, problem, completion):
        time.sleep(float(completion))
        return Verdict(float(completion), {"pid": float(os.getpid())})


def test_verdicts_come_in_order_and_workers_work_at_once():
    verifier = Isolated(Sleepy(), workers=3)
    waits = [0.3, 0.0, 0.1, 0.0, 0.2, 0.0]
    verdicts = verifier.verify_batch([Problem("p")] * 6, [str(wait) for wait in waits])
    verifier.close()
    assert [verdict.reward for verdict in verdicts] == waits
    assert len({verdict.parts["pid"] for verdict in verdicts}) > 1


def test_what_is_not_judged_when_the_pool_closes_is_an_error():
    verifier = Isolated(Sleepy(), workers=1)
    futures = verifier.submit([Problem("p")] * 3, ["0", "60", "60"])
    assert futures[0].result().status == "ok"
    verifier.close()
    assert [future.result().status for future in futures[1:]] == ["error", "error"]
    with pytest.raises(RuntimeError, match="closed"):
        verifier.submit([Problem("p")], ["0"])


def test_a_verifier_that_cannot_be_brought_up_is_an_error_each_time():
    class Breaks(Verifier):
        def __reduce__(self):
            return exec, ("raise OSError('no disk')",)

    verifier = Isolated(Breaks(), workers=1)
    reasons = [verifier.verify(Problem("p"), "x").reason for _ in range(2)]
    verifier.close()
    assert all("OSError: no disk" in reason for reason in reasons)


def test_problems_and_settings_are_the_verifiers():
    inner = Arith(digits=3)
    verifier = Isolated(inner, workers=1)
    assert verifier.prompt_length == inner.prompt_length
    problem = Problem("34+12=", "46")
    assert verifier.split_key(problem) == inner.split_key(problem) == "12+34"
    assert verifier.demonstration(problem) == "46"
    again = pickle.loads(pickle.dumps(verifier))
    assert (again.workers, again.timeout, again.memory_mb) == (1, verifier.timeout, verifier.memory_mb)


def test_isolation_is_for_those_who_want_it():
    class Dangerous(Arith):
        isolated = True

    assert not isinstance(isolate(Arith()), Isolated)
    assert isinstance(isolate(Arith(), timeout=1.0), Isolated)
    assert isinstance(isolate(Dangerous()), Isolated)
    assert not isinstance(isolate(Dangerous(), workers=0), Isolated)
    once = isolate(Dangerous())
    assert isolate(once) is once


TRAINER = """
import os
import time

from verifiers import Isolated, Problem, Verifier


class Leaves(Verifier):
    def verify(self, problem, completion):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(0)
        time.sleep(3600)


Isolated(Leaves(), workers=2, timeout=3600).verify_batch([Problem("p")] * 2, ["", ""])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="faults are cleared away with Linux's means")
def test_nothing_outlives_a_trainer_that_is_killed():
    mark = new_mark()
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], env={**os.environ, MARK: mark})
    try:
        # The trainer, and of each worker the supervisor, the worker itself, and its daemon.
        assert eventually(lambda: len(processes_of(mark)) >= 7)
        trainer.kill()
        assert eventually(lambda: not processes_of(mark))
    finally:
        trainer.kill()
        trainer.wait()
        kill_all(mark)
