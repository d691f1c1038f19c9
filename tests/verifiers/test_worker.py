"""What reaches the trainer, and what is left, where a verifier forks, writes nonsense or stops its supervisor."""

import ctypes
import os
import signal
import struct
import sys
import time

import cloudpickle
import pytest
from processes import MARK, eventually, kill_all, new_mark, open_descriptors, processes_of

from verifiers import Isolated, Problem, Verdict, Verifier

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

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


class Forks(Verifier):
    """Pays as much as the completion says; before that a child of it is done in the way that it says, too."""

    reward_range = (-1.0, 7.0)

    def verify(self, problem, completion):
        reward, _, end = completion.partition(" ")
        if end:
            child = os.fork()
            if child == 0:
                if end == "return":
                    return Verdict(-1.0)
                sys.exit(int(end) if end.isdigit() else end)
            _, status = os.waitpid(child, 0)
            return Verdict(float(reward), {"code": float(os.waitstatus_to_exitcode(status))})
        return Verdict(float(reward))


@linux
def test_the_child_of_a_fork_gives_no_verdict(judged):
    verdicts = judged(Forks(), ["1 0", "2", "3 return", "4", "5 7", "6", "7 words"])
    assert [verdict.reward for verdict in verdicts] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert [verdict.parts.get("code") for verdict in verdicts] == [0.0, None, 0.0, None, 7.0, None, 1.0]


def frame(number, body, length=None):
    return struct.pack(">QI", number, len(body) if length is None else length) + body


BROKEN = {
    "no JSON": lambda number: frame(number, b"[1,"),
    "no text": lambda number: frame(number, b"\xff\xff"),
    "a list": lambda number: frame(number, b"[]"),
    "nothing in it": lambda number: frame(number, b"{}"),
    "unknown parts": lambda number: frame(number, b'{"leftover":false,"more":1}'),
    "no number": lambda number: frame(number, b'{"leftover":false,"reward":"1"}'),
    "not finite": lambda number: frame(number, b'{"leftover":false,"reward":1e999}'),
    "too long": lambda number: frame(number, b"", 1 << 30),
    "an answer to come": lambda number: frame(number + 1, b"{}"),
    "noise": lambda number: b"x" * 100,
}


class Scribbles(Verifier):
    """Writes into the pipe that its verdicts go through."""

    asked = 1  # the verifier itself was the first message

    def verify(self, problem, completion):
        self.asked += 1
        if completion in BROKEN:
            os.write(int(sys.argv[3]), BROKEN[completion](self.asked))
            time.sleep(3600)
        if completion == "late":
            os.write(int(sys.argv[3]), frame(self.asked - 1, b'{"leftover":false,"reward":-1}'))
        return Verdict(1.0)


def test_a_malformed_answer_is_an_error_and_the_next_verdict_is_right(judged):
    verdicts = judged(Scribbles(), ["fine", *(text for broken in BROKEN for text in (broken, "fine"))])
    assert [verdict.status for verdict in verdicts] == ["ok", *["error", "ok"] * len(BROKEN)]
    for broken, verdict in zip(BROKEN, verdicts[1::2], strict=True):
        assert "worker" in verdict.reason and "\n" not in verdict.reason, broken


def test_an_answer_to_an_earlier_question_is_not_taken_for_this_one(judged):
    assert judged(Scribbles(), ["fine", "late", "fine"]) == [Verdict(1.0)] * 3


class Escapes(Verifier):
    """Leaves a daemon behind that gives itself a name which is no text, then stops its supervisor."""

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
        os.kill(os.getppid(), signal.SIGSTOP)
        return time.sleep(3600)


@linux
def test_no_daemon_outlives_its_worker_whose_supervisor_is_stopped(judged):
    verdicts = judged(Escapes(), ["fine", "escape", "fine"], timeout=0.5)
    assert [verdict.status for verdict in verdicts] == ["ok", "timeout", "ok"]
