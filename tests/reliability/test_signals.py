"""SIGTERM, SIGHUP and Ctrl-C, once and twice, in every part of a run: a checkpoint each time, and the same end."""

import errno
import itertools
import json
import signal

import pytest
from _rlenv_scripts import callbacks, job, progress, session
from inprocess import done
from inprocess import run as invoke
from runs import differences, everything

from agents import Agent, files

TINY = ["train", "--episodes", 12, "--episodes-per-update", 4, "--group-size", 2, "--verifier-arg", "digits=1"]
TINY += ["--eval-episodes", 2, "--eval-every", 2, "--sft-steps", 4, "--sft-examples", 4, "--sft-batch-size", 4]
TINY += ["--save-every-updates", 1, "--log-interval", 1, "--device", "cpu", "--json", "--kl-coef", 0.1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return everything about a run without a break."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done(*TINY, "--log-dir", folder)
    return everything(folder)


def at(call, send):
    """Return a decorator that sends signals when a function is called for the time number `call`, and only then."""
    calls = itertools.count(1)

    def decorate(function):
        def signalled(*args, **kwargs):
            if next(calls) == call:
                send()
            return function(*args, **kwargs)

        return signalled

    return decorate


def evaluation_steps(call, send):
    """Return a `run_evaluation` that sends signals at the second step of the evaluation number `call`."""
    calls, real = itertools.count(1), session.run_evaluation

    def run(*args, on_step, **kwargs):
        inner = at(2, send)(on_step) if next(calls) == call else on_step
        return real(*args, on_step=inner, **kwargs)

    return run


PHASES = {
    "warm start": lambda patch, send: patch.setattr(job, "log_scalar", at(2, send)(job.log_scalar)),
    "first evaluation": lambda patch, send: patch.setattr(session, "run_evaluation", evaluation_steps(1, send)),
    "training": lambda patch, send: patch.setattr(
        callbacks.ShowProgress, "_on_step", at(4, send)(callbacks.ShowProgress._on_step)
    ),
    "evaluation": lambda patch, send: patch.setattr(session, "run_evaluation", evaluation_steps(2, send)),
    "saving": lambda patch, send: patch.setattr(files, "_sync_tree", at(3, send)(files._sync_tree)),
    "saving the warm start": lambda patch, send: patch.setattr(files, "_sync_tree", at(1, send)(files._sync_tree)),
    "last evaluation": lambda patch, send: patch.setattr(session, "run_evaluation", evaluation_steps(3, send)),
}
NUMBERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
EVERY = list(itertools.product(PHASES, NUMBERS, [1, 2]))
FEW = [("evaluation", signal.SIGHUP, 1), ("training", signal.SIGINT, 2), ("saving", signal.SIGTERM, 1)]
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in EVERY if each not in FEW]


@pytest.mark.parametrize(("phase", "number", "times"), [*FEW, *SLOW])
def test_a_signal(phase, number, times, whole, tmp_path, monkeypatch):
    def send():
        for _ in range(times):
            signal.raise_signal(number)

    folder = tmp_path / "run"
    before = {each: signal.getsignal(each) for each in NUMBERS}
    with monkeypatch.context() as patch:
        PHASES[phase](patch, send)
        outcome = invoke(*TINY, "--log-dir", folder)
    assert outcome.exit_code == 128 + number, outcome.output
    assert {each: signal.getsignal(each) for each in NUMBERS} == before
    assert f"{signal.Signals(number).name}: stopping and saving" in outcome.stderr
    assert f"rlenv train --resume {folder}" in outcome.stderr
    nothing_yet = times == 2 and phase in ("warm start", "saving the warm start")
    assert (folder / "checkpoint").is_dir() == (not nothing_yet)
    if not nothing_yet:
        Agent.load(folder / "checkpoint", device="cpu")
    if times == 1:
        result = json.loads(outcome.stdout.splitlines()[-1])
        assert result["interrupted"] is True and result["eval"] is None
        assert json.loads((folder / "result.json").read_text()) == result
    done("train", "--resume", folder, "--json")
    assert differences(whole, everything(folder)) == []


def test_a_signal_that_was_ignored_stays_ignored():
    """`nohup rlenv train` goes on when its terminal closes."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with progress.Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.asked
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.asked == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "gone"), RuntimeError("reentrant call")], ids=["gone", "busy"])
def test_a_terminal_that_cannot_be_written_to_does_not_get_in_the_way_of_a_signal(error, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("rich.console.Console.print", fail)
    with progress.Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        assert interrupt.asked == signal.SIGHUP
