"""The threads of the pool live through whatever happens, so every verdict that is waited for comes."""

import os
import sys
import threading
import time

import cloudpickle
import pytest
from processes import eventually, open_descriptors

from verifiers import Isolated, Problem, Verdict, Verifier
from verifiers.sandbox import worker

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers import nothing but the pool's own

LATE = 60.0  # seconds after which a verdict is lost
RIGHT = (Problem("1+1=", "2"), "2")


class Exact(Verifier):
    def verify(self, problem, completion):
        return Verdict(float(completion == problem.answer))


def judged(verifier):
    return verifier.submit([RIGHT[0]], [RIGHT[1]])[0].result(LATE)


@pytest.fixture
def pool():
    verifier = Isolated(Exact(), workers=1, timeout=LATE / 2)
    yield verifier
    verifier.close()


@pytest.mark.parametrize("executable", [None, pytest.param("", marks=pytest.mark.slow), "/nowhere/python"])
def test_without_an_interpreter_there_is_an_error_each_time(executable, pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        for _ in range(2):
            verdict = judged(pool)
            assert verdict.status == "error"
            assert verdict.reason.startswith("a worker process cannot be started: ")
    assert eventually(lambda: judged(pool) == Verdict(1.0))


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_without_descriptors_there_is_an_error_each_time_and_none_is_lost(pool):
    import resource

    before = open_descriptors()
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 8, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        while len(held) > 1 and (verdict := judged(pool)).status != "ok":
            assert verdict.status == "error"
            assert "Too many open files" in verdict.reason
            os.close(held.pop())
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert judged(pool) == Verdict(1.0)
    pool.close()
    assert open_descriptors() <= before


def test_a_problem_that_cannot_be_pickled_is_an_error(pool):
    verdict = pool.verify(Problem("1+1=", "2", {"lock": threading.Lock()}), "2")
    assert verdict.status == "error"
    assert verdict.reason.startswith("the problem cannot be pickled: TypeError")
    assert judged(pool) == Verdict(1.0)


def test_verdicts_that_are_no_longer_wanted_hold_nobody_up(pool):
    futures = pool.submit([RIGHT[0]] * 20, [RIGHT[1]] * 20)
    cancelled = [future.cancel() for future in futures[1:-1]]
    assert any(cancelled)
    assert futures[-1].result(LATE) == Verdict(1.0)


class Comes(Verifier):
    """Never arrives in its worker."""

    def __reduce__(self):
        return time.sleep, (3600,)


def test_closing_does_not_wait_for_a_worker_that_is_being_started(monkeypatch):
    monkeypatch.setattr(worker, "START_SECONDS", 3600.0)
    verifier = Isolated(Comes(), workers=1)
    (future,) = verifier.submit([RIGHT[0]], [RIGHT[1]])
    assert eventually(lambda: verifier._threads.busy)
    closing = threading.Thread(target=verifier.close, daemon=True)
    closing.start()
    assert future.result(LATE).status == "error"
    closing.join(LATE)
    assert not closing.is_alive()


def test_a_pool_may_be_closed_by_one_of_its_own_threads():
    verifier, faults = Isolated(Exact(), workers=2), []

    def close(_):
        try:
            verifier.close()
        except RuntimeError as error:
            faults.append(error)

    futures = verifier.submit([RIGHT[0]] * 2, [RIGHT[1]] * 2)
    futures[0].add_done_callback(close)
    assert all(future.result(LATE).status in ("ok", "error") for future in futures)
    assert eventually(lambda: not any(thread.is_alive() for thread in verifier._threads.threads))
    assert faults == []
