"""SIGTERM, SIGHUP and Ctrl-C, once and twice, in every part of a run: a checkpoint each time, and the same end."""

import errno
import itertools
import json
import os
import signal

import pytest
from diagonal import slow
from inprocess import done
from inprocess import run as invoke
from processes import MARK, eventually, new_mark, processes_of
from runs import SHARED, arguments, differences, everything

import rlenv
from rlenv._scripts.jobs import callbacks, imitation, session
from rlenv._scripts.process import progress
from rlenv.agents import Agent, files


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


def within(call, send):
    """Return a decorator of `run_evaluation` that sends signals at the second step of the evaluation number `call`."""
    calls = itertools.count(1)

    def decorate(real):
        def run(*args, on_step, **kwargs):
            inner = at(2, send)(on_step) if next(calls) == call else on_step
            return real(*args, on_step=inner, **kwargs)

        return run

    return decorate


PHASES = {  # the run, the function that is decorated, and which of its calls sends
    "warm start": ("text", imitation, "log_scalar", at, 2),
    "first evaluation": ("text", session, "run_evaluation", within, 1),
    "training": ("pole", callbacks.ShowProgress, "_on_step", at, 4),
    "evaluation": ("pole", session, "run_evaluation", within, 2),
    "saving": ("text", files, "_sync_tree", at, 3),
    "saving the warm start": ("text", files, "_sync_tree", at, 1),
    "last evaluation": ("text", session, "run_evaluation", within, 4),
}
NUMBERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
EVERY = list(itertools.product(PHASES, NUMBERS, [1, 2]))
FEW = [("evaluation", signal.SIGTERM, 1), ("training", signal.SIGINT, 2)]


@pytest.mark.parametrize(("phase", "number", "times"), [*FEW, *(slow(*each) for each in EVERY if each not in FEW)])
def test_a_signal(phase, number, times, request, tmp_path, monkeypatch):
    def send():
        for _ in range(times):
            signal.raise_signal(number)

    folder, (world, owner, name, where, call) = tmp_path / "run", PHASES[phase]
    whole = request.getfixturevalue(f"{world}_run")
    before = {each: signal.getsignal(each) for each in NUMBERS}
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, where(call, send)(getattr(owner, name)))
        outcome = invoke(*arguments(*SHARED[world]), "--log-dir", folder)
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
    assert differences(everything(whole), everything(folder)) == []


HANGS = """
import os, signal, time
from pathlib import Path
from rlenv.verifiers import Dialogue, Verifier

def hangs(prompts, completions):
    begun = Path(__file__).with_suffix(".begun")
    first = not begun.exists()
    with begun.open("a") as file:
        print("asked", file=file)
    if first:
        os.kill({trainer}, signal.SIGINT)
    time.sleep({seconds})
    return [1.0] * len(completions)

class Silent(Verifier):
    def dialogue(self, problem):
        made = Dialogue()
        made.reply = lambda turn: hangs([problem], [turn])
        return made
"""


@pytest.mark.parametrize(("name", "workers"), [("hangs", 1), ("Silent", 1), ("Silent", 0)])
@pytest.mark.parametrize("evaluated", [0, 4])
def test_a_signal_ends_the_wait_for_verdicts_and_replies(evaluated, name, workers, tmp_path, monkeypatch):
    """In the rollout, or in the first evaluation: what waits for the rest takes an hour if verdicts hang."""
    monkeypatch.setenv(MARK, mark := new_mark())
    (tmp_path / "hangs.py").write_text(HANGS.format(trainer=os.getpid(), seconds=9 if workers else 0.3))
    (tmp_path / "problems.jsonl").write_text("".join(f'{{"prompt": "{letter}>"}}\n' for letter in "abcdefgh"))
    options = {"problems": tmp_path / "problems.jsonl", "verifier": f"{tmp_path / 'hangs.py'}:{name}", "report": False}
    options |= {
        "verifier_workers": workers,
        "verifier_timeout": 3.0,
        "max_new_tokens": 1,
        "sft_steps": 0,
        "device": "cpu",
    }
    config = rlenv.TrainConfig(**options, episodes=4, eval_episodes=evaluated, log_dir=tmp_path / "run")
    run = rlenv.train(config.set(episodes_per_update=4, group_size=2))
    assert run.signal == signal.SIGINT and run.result["updates"] == 0
    assert (run.result["initial_eval"], run.result["episodes"]) == (None, 0)
    assert (tmp_path / "hangs.begun").read_text() == "asked\n", "nothing more is waited for"
    assert run.agent.collector.goes_on(), "who trains on with the agent waits for its verdicts"
    run.agent.env.close()
    assert eventually(lambda: not processes_of(mark), 20), "the workers of the evaluation went on with what hangs"


def test_a_signal_that_was_ignored_stays_ignored():
    """`nohup rlenv train` goes on when its terminal closes."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with progress.Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.signal
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "gone"), RuntimeError("reentrant call")], ids=["gone", "busy"])
def test_a_terminal_that_cannot_be_written_to_does_not_get_in_the_way_of_a_signal(error, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("click.echo", fail)
    with progress.Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        assert interrupt.signal == signal.SIGHUP
