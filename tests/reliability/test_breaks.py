"""A run that a kill, a signal or a full disk breaks, in any part of it, goes on and ends as one without a break."""

import errno
import itertools
import json
import os
import signal
from functools import partial

import pytest
from diagonal import slow
from inprocess import done, run
from runs import SHARED, arguments, differences, everything

from rlenv._scripts.jobs import callbacks, session, warm_start
from rlenv.agents import Agent, files
from rlenv.agents.training import saving
from rlenv.agents.training.checkpoint import read_facts


def at(call, act):
    """Return a decorator that acts before a function runs, from its call number `call` on."""
    calls = itertools.count(1)

    def decorate(function):
        def acting(*args, **kwargs):
            if next(calls) >= call:
                act()
            return function(*args, **kwargs)

        return acting

    return decorate


def within(call, act):
    """Return a decorator of `run_evaluation` that acts at the second step of the evaluation number `call`."""
    calls = itertools.count(1)

    def decorate(real):
        def evaluate(*args, on_step, **kwargs):
            inner = at(2, act)(on_step) if next(calls) == call else on_step
            return real(*args, on_step=inner, **kwargs)

        return evaluate

    return decorate


PLACES = {  # the run, the function that is decorated, how, and which of its calls breaks
    "warm start": ("text", warm_start, "log_scalar", at, 2),
    "first evaluation": ("text", session, "run_evaluation", within, 1),
    "training": ("pole", callbacks.BetweenSteps, "_on_step", at, 4),
    "evaluation": ("pole", session, "run_evaluation", within, 2),
    "saving the best": ("text", files, "_sync_tree", at, 3),
    "saving the warm start": ("text", files, "_sync_tree", at, 1),
    "last evaluation": ("text", session, "run_evaluation", within, 4),
    "later in training": ("pole", callbacks.BetweenSteps, "_on_step", at, 60),
    "saving": ("text", files, "_sync_tree", at, 4),
    "saving CartPole": ("pole", files, "_sync_tree", at, 3),
    "tensors": ("text", saving, "save_file", at, 5),
    "tensors of CartPole": ("pole", saving, "save_file", at, 5),
}
UNSAVED = ("warm start", "saving the warm start")  # nothing of the run is saved before


def kill(train, folder):
    """End a fork of this process by SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            train(lambda: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(1)  # it was not killed
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert not (folder / "result.json").exists()


def fill_disk(train, folder):
    def fail():
        raise OSError(errno.ENOSPC, "full")

    outcome = train(fail)
    assert outcome.exit_code == 1
    last, where = outcome.stderr.splitlines()[-1], repr(str(folder / "checkpoint"))
    assert last == f"Error: cannot read or write {where}: No space left on device; free some space"
    assert f"--resume {folder}" in outcome.stderr


def send(number, times, train, folder):
    """Send a signal once, which saves, or twice, which does not wait for that."""
    left = [number] * times

    def raise_signals():
        while left:
            signal.raise_signal(left.pop())

    before = {each: signal.getsignal(each) for each in NUMBERS}
    outcome = train(raise_signals)
    assert outcome.exit_code == 128 + number, outcome.output
    assert {each: signal.getsignal(each) for each in NUMBERS} == before
    assert f"{number.name}: stopping and saving" in outcome.stderr
    assert f"rlenv train --resume {folder}" in outcome.stderr
    if times == 1:
        result = json.loads(outcome.stdout.splitlines()[-1])
        assert result["interrupted"] is True and result["eval"] is None
        assert json.loads((folder / "result.json").read_text()) == result


NUMBERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
ONCE = {number.name: partial(send, number, 1) for number in NUMBERS}
TWICE = {f"{number.name} twice": partial(send, number, 2) for number in NUMBERS}
BREAKS = {**ONCE, **TWICE, "kill": kill, "full disk": fill_disk}
FEW = [("evaluation", "SIGTERM"), ("training", "SIGINT twice"), ("saving CartPole", "kill")]
FEW += [("tensors of CartPole", "full disk")]
MANY = [*itertools.product(list(PLACES)[:7], [*ONCE, *TWICE]), *((place, "kill") for place in (*UNSAVED, "saving"))]
MANY += [("later in training", "kill"), ("tensors", "full disk")]


@pytest.mark.parametrize(("place", "how"), [*FEW, *(slow(*each) for each in MANY if each not in FEW)])
def test_a_broken_run_ends_as_one_without_a_break(place, how, request, tmp_path, monkeypatch):
    folder, (world, owner, name, where, call) = tmp_path / "run", PLACES[place]

    def train(act):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, where(call, act)(getattr(owner, name)))
            return run(*arguments(*SHARED[world]), "--log-dir", folder)

    BREAKS[how](train, folder)
    half_a_save = [path for path in folder.iterdir() if path.name.startswith(".checkpoint")]
    assert bool(half_a_save) == (how == "kill" and owner is files)
    assert (folder / "checkpoint").is_dir() == (place not in UNSAVED or how in ONCE)
    if (folder / "checkpoint").is_dir():
        acknowledged = read_facts(folder / "checkpoint")["num_updates"]
        assert Agent.load(folder / "checkpoint", device="cpu").num_updates == acknowledged < 8
    whole = request.getfixturevalue(f"{world}_run")
    done("train", "--resume", folder, "--json")
    assert differences(everything(whole), everything(folder)) == []
