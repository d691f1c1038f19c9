"""Signals in a wait for verdicts, on a terminal that is gone, and ignored ones; `test_breaks.py` has the rest."""

import errno
import os
import signal

import pytest
from processes import MARK, eventually, new_mark, processes_of

import rlenv
from rlenv._scripts.process import progress

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


@pytest.mark.parametrize(
    ("evaluated", "name", "workers"), [(0, "hangs", 1), (0, "Silent", 1), (0, "Silent", 0), (4, "hangs", 1)]
)
def test_a_signal_ends_the_wait_for_verdicts_and_replies(evaluated, name, workers, tmp_path, monkeypatch):
    """In the rollout, or in the first evaluation: what waits for the rest takes an hour if verdicts hang."""
    monkeypatch.setenv(MARK, mark := new_mark())
    timeout = 60.0 if evaluated else 3.0  # the longer one outlasts the wait for workers that nobody has ended
    (tmp_path / "hangs.py").write_text(HANGS.format(trainer=os.getpid(), seconds=3 * timeout if workers else 0.3))
    (tmp_path / "problems.jsonl").write_text("".join(f'{{"prompt": "{letter}>"}}\n' for letter in "abcdefgh"))
    options = {"problems": tmp_path / "problems.jsonl", "verifier": f"{tmp_path / 'hangs.py'}:{name}", "report": False}
    options |= {"verifier_workers": workers, "verifier_timeout": timeout, "max_new_tokens": 1, "sft_steps": 0}
    config = rlenv.TrainConfig(**options, episodes=4, eval_episodes=evaluated, log_dir=tmp_path / "run", device="cpu")
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
