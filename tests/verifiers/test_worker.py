"""What reaches the trainer, and what is left, where a verifier forks, writes nonsense or stops its supervisor."""

import ctypes
import os
import signal
import sys
import time

import pytest
from processes import MARK, eventually, kill_all, new_mark, open_descriptors, processes_of

from verifiers import Isolated, Problem, Verdict, Verifier

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found and cleared away with Linux's means")
LATE = 60.0  # seconds after which a verdict is lost


@pytest.fixture
def judged(monkeypatch):
    """Return a function that judges completions one after another in one worker, and see that nothing is left of it."""
    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    before, started = open_descriptors(), []

    def judge(verifier, completions, timeout=LATE / 2):
        started.append(Isolated(verifier, workers=1, timeout=timeout))
        return [started[0].submit([Problem("p")], [text])[0].result(LATE) for text in completions]

    try:
        yield judge
        for verifier in started:
            verifier.close()
        assert eventually(lambda: not processes_of(mark), 20)
        assert open_descriptors() <= before
    finally:
        kill_all(mark)


class Escapes(Verifier):
    """Leaves a daemon behind that gives itself a name which is no text, then does what the completion says."""

    def verify(self, problem, completion):
        if completion == "fine":
            return Verdict(1.0)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, b"\xff) Z 1", 0, 0, 0)
                time.sleep(3600)
            os._exit(0)
        os.wait()
        if completion == "stop the supervisor":
            os.kill(os.getppid(), signal.SIGSTOP)
        return time.sleep(3600)


@linux
@pytest.mark.parametrize("meanwhile", ["hang", "stop the supervisor"])
def test_no_daemon_outlives_its_worker(meanwhile, judged):
    verdicts = judged(Escapes(), ["fine", meanwhile, "fine"], timeout=5.0)
    assert [verdict.status for verdict in verdicts] == ["ok", "timeout", "ok"]
