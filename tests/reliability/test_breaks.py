"""A run that a kill, a signal or a full disk breaks, in any part of it, goes on and ends as one without a break.

And what --resume allows, and what it says.
"""

import errno
import itertools
import json
import os
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
from diagonal import slow
from inprocess import done, error_of, result_of, run
from processes import MARK, eventually, new_mark, processes_of
from refused import refusal
from runs import SHARED, arguments, differences, everything, scalars, table

import rlenv
from rlenv._scripts.jobs import callbacks, session, warm_start
from rlenv._scripts.process import progress
from rlenv._scripts.run.folder import RunFolder, choose
from rlenv._scripts.run.log import flush, open_log
from rlenv.agents import Agent, files
from rlenv.agents.files import Lock
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.training import saving
from rlenv.agents.training.checkpoint import read_facts
from rlenv.agents.training.supervised import WarmStart


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
    "update": ("pole", torch.optim.Adam, "step", at, 9),
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


def fail_with(error, said, train, folder):
    """Raise an error that ends the run with one line."""

    def fail():
        raise error

    outcome = train(fail)
    assert outcome.exit_code == 1
    where, last = repr(str(folder / "checkpoint")), outcome.stderr.splitlines()[-1]
    assert last.startswith(said.format(where=where)) and outcome.stderr.count(said.partition("{")[0]) == 1
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
FULL = "Error: cannot read or write {where}: No space left on device; free some space"
MEMORY = "Error: out of memory: lower --micro-batch-tokens (training)"
BREAKS = {**ONCE, **TWICE, "kill": kill}
BREAKS["full disk"] = partial(fail_with, OSError(errno.ENOSPC, "full"), FULL)
BREAKS["out of memory"] = partial(fail_with, torch.OutOfMemoryError("CUDA out of memory"), MEMORY)
FEW = [("evaluation", "SIGTERM"), ("training", "SIGINT twice"), ("saving CartPole", "kill")]
FEW += [("tensors of CartPole", "full disk"), ("update", "out of memory")]
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


# Folders of runs that were killed before their first checkpoint, or while they were overwritten.


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(pole_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(pole_run / "checkpoint", folder / ".checkpoint-new")  # killed in the first save
    for path in (*pole_run.glob("*/events*"), *pole_run.glob("progress.csv"), pole_run / "config.json"):
        copy = folder / path.relative_to(pole_run)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (folder / ".lock").touch()
    (folder / "notes.txt").write_text("mine")
    first, *_ = done("train", "--resume", folder, "--json").stderr.splitlines()
    assert differences(everything(pole_run), everything(folder)) == []
    assert (folder / "notes.txt").read_text() == "mine"
    assert first == f"'{folder}' has no checkpoint yet: the run starts again from its beginning"


def test_an_overwritten_run_that_is_killed_on_the_way_can_be_overwritten_again(pole_run, pole_copy, monkeypatch):
    class KilledError(BaseException):
        pass

    def kill(folder, **_):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise KilledError

    again = *arguments(*SHARED["pole"]), "--log-dir", pole_copy, "--overwrite"
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(shutil, "rmtree", kill)
        done(*again)
    done(*again)
    assert differences(everything(pole_run), everything(pole_copy)) == []


@pytest.mark.parametrize("left", [[".lock"], [".lock", ".config.json-new"]], ids=" and ".join)
def test_a_folder_of_a_run_that_was_killed_before_it_began_is_free(left, tmp_path):
    for name in left:
        (tmp_path / name).touch()
    assert choose(tmp_path, False, "run", ExitStack()) == tmp_path
    (tmp_path / "mine.txt").touch()
    refusal(lambda: choose(tmp_path, False, "run", ExitStack()), "exists")


def test_runs_without_a_folder_that_start_together_have_one_each_and_one_that_fails_leaves_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as first, ExitStack() as second:
        chosen = [choose(None, False, "run", held) for held in (first, second)]
        (chosen[0] / "config.json").touch()
    assert chosen == [Path("runs/run"), Path("runs/run-2")]
    assert list(Path("runs").iterdir()) == [chosen[0]]


# Signals in a wait for verdicts, on a terminal that is gone, and ignored ones.

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


# What --resume allows, and what it says.

UNCHANGEABLE = {  # the option, and what the run began with
    "--gamma": (0.5, "no --gamma"),
    "--seed": (4, "3"),
    "--agent": ("a2c", "ppo"),
    "--env": ("Acrobot-v1", "CartPole-v1"),
    "--kl-coef": (0.1, "0.05"),
    "--agent-arg": ("num_epochs=3", "{'num_epochs': 2, 'num_minibatches': 2}"),
}


def test_a_finished_run_says_how_to_go_on_and_what_may_not_change(pole_run):
    for more in ([], ["--episodes", 32], ["--episodes", 8]):
        line = error_of(run("train", "--resume", pole_run, *more))
        assert f"'{pole_run}' is complete" in line and "pass --episodes above 32" in line
    for option, (value, begun) in UNCHANGEABLE.items():
        line = error_of(run("train", "--resume", pole_run, "--episodes", 36, option, value))
        assert line.startswith(f"Error: {option} ") and "--episodes" in line
        assert "is not what the run began with" in line and f"({begun})" in line


def test_a_finished_run_is_extended(pole_copy, tmp_path):
    """Until the last evaluation, an extended run is what a longer run would have been."""
    result = result_of(run("train", "--resume", pole_copy, "--episodes", 40, "--json"))
    assert (result["episodes"], result["updates"]) == (40, 10)
    long = tmp_path / "long"
    done(*arguments("CartPole", "ppo", "--lr-schedule", "constant", "--episodes", 40, "--log-dir", long))
    assert differences(everything(long), everything(pole_copy)) == []
    assert json.loads((pole_copy / "config.json").read_text())["episodes"] == 40


def checkpoints(folder):
    """Return the updates of each checkpoint, the newest first."""
    return [read_facts(path)["num_updates"] for path in (folder / "checkpoint", *RunFolder(folder).earlier().values())]


def test_a_resume_where_a_checkpoint_was_due_keeps_the_one_before(pole_copy, monkeypatch):
    """Each resume begins with the save of the same moment, and ends at once."""
    assert checkpoints(pole_copy) == [8, 7]
    with monkeypatch.context() as patch:
        patch.setattr(callbacks.BetweenSteps, "_on_step", lambda self: signal.raise_signal(signal.SIGTERM) is not None)
        for _ in range(2):
            assert run("train", "--resume", pole_copy, "--episodes", 36).exit_code == 128 + signal.SIGTERM
            assert checkpoints(pole_copy) == [8, 7]


def test_a_second_error_while_saving_is_named_beside_the_first(tmp_path, monkeypatch):
    def fail(self, rollout):
        monkeypatch.setattr(Agent, "save", disk_is_full)
        self.num_updates += 1
        raise KeyError("first")

    def disk_is_full(*_):
        raise OSError(errno.ENOSPC, "second")

    monkeypatch.setattr(Agent, "update", fail)
    outcome = run(*arguments("CartPole", "reinforce", "--log-dir", tmp_path / "run"))
    assert isinstance(outcome.exception, KeyError) and outcome.exception.args == ("first",)
    assert "nothing was saved after the error: OSError: [Errno 28] second" in outcome.stderr


def test_rows_are_kept_where_tensorboard_could_not_write(pole_copy, monkeypatch):
    def fail(logger):
        raise OSError(errno.EFBIG, "too large")

    with monkeypatch.context() as patch:
        patch.setattr("rlenv._scripts.run.checkpoints.flush", fail)
        done("train", "--resume", pole_copy, "--episodes", 48)
    before = table(pole_copy)[:-1]  # without the last evaluation, which comes after the last checkpoint
    done("train", "--resume", pole_copy, "--episodes", 52)
    assert len(before) > 6 and table(pole_copy)[: len(before)] == before


def test_what_is_written_is_forced_to_the_disk(pole_copy, monkeypatch):
    forced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (forced.append(os.fstat(fd).st_ino), real(fd)))
    RunFolder(pole_copy).write("config.json", {})
    assert (pole_copy / "config.json").stat().st_ino in forced
    agent = Agent.load(pole_copy / "checkpoint", device="cpu")
    agent.set_logger(open_log(RunFolder(pole_copy), agent.extra_state["log"]))
    flush(agent.logger)
    RunFolder(pole_copy).log_place()
    agent.logger.close()
    assert {path.stat().st_ino for path in (pole_copy / "progress.csv", *pole_copy.glob("*/events*"))} <= set(forced)


def test_another_learning_rate_is_used_by_the_schedule_too(tmp_path):
    folder = tmp_path / "run"
    done(*arguments("CartPole", "reinforce", "--lr-schedule", "linear", "--episodes", 16, "--log-dir", folder))
    done("train", "--resume", folder, "--episodes", 32, "--learning-rate", 0.25)
    rates = [float(row["train/learning_rate"]) for row in table(folder) if row["train/learning_rate"]]
    assert rates[-1] == pytest.approx(0.25 * (1 - 28 / 32)) and rates[0] < 0.1
    assert json.loads((folder / "config.json").read_text())["learning_rate"] == 0.25
    assert Agent.load(folder / "checkpoint", device="cpu").learning_rate == 0.25


def test_minutes_between_checkpoints_replace_updates(pole_copy):
    done("train", "--resume", pole_copy, "--episodes", 48, "--save-every", 60)
    assert checkpoints(pole_copy) == [12, 8]
    assert "save_every_updates" not in json.loads((pole_copy / "config.json").read_text())


def test_the_demonstrations_of_a_finished_warm_start_are_not_made_again(text_copy, monkeypatch):
    monkeypatch.setattr(session, "demonstrate", None)
    done("train", "--resume", text_copy, "--episodes", 28)


@pytest.mark.parametrize("command", [["train", "--resume"], ["evaluate"]], ids=lambda command: command[0])
def test_an_error_of_an_environment_is_not_taken_for_a_damaged_checkpoint(command, pole_copy, monkeypatch):
    def fail(*_, **__):
        raise TypeError("a bug")

    monkeypatch.setattr("rlenv.agents.rollouts.envs.make_envs", fail)
    outcome = run(*command, pole_copy)
    assert "cannot be loaded" not in outcome.stderr and str(outcome.exception) == "a bug"


def test_a_lock_is_not_held_by_a_child(tmp_path):
    """A child that outlives a killed run keeps nobody out."""
    read, write = os.pipe()
    forked, ready = os.pipe()
    lock = Lock(tmp_path / "lock", "busy")
    child = os.fork()
    if child == 0:
        os.write(ready, b".")
        os.close(write)  # so that it ends with its parent
        os.read(read, 1)
        lock.close()  # does nothing in the child
        os._exit(0)
    os.read(forked, 1)
    os.close(lock._descriptor)  # as a kill does
    with Lock(tmp_path / "lock", "busy"):
        os.write(write, b".")
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / "lock").exists()
    os.close(read)
    os.close(write)


def test_supervised_training_that_is_stopped_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    """Of a file, in epochs; three steps of eight are taken before the stop, with a checkpoint after each."""
    rows = [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(20)]
    (tmp_path / "sums.json").write_text(json.dumps(rows))
    small = ["--problems", tmp_path / "sums.json", "--epochs", 2, "--sft-batch-size", 4, "--save-every", 0]
    small += ["--max-new-tokens", 4, "--device", "cpu", "--log-dir"]
    straight = tmp_path / "straight"
    whole, backward = result_of(run("sft", *small, straight, "--json")), WarmStart._backward
    line = error_of(run("train", "--resume", straight))
    assert "is a run of rlenv sft" in line and line.endswith(f"rlenv train --model {straight} --sft-steps 0")
    for stop in ("kill", "signal"):
        taken, half = [], tmp_path / stop

        def stopped(self, shown, stop=stop, taken=taken):
            taken.append(len(shown))
            if len(taken) == 4 and stop == "kill":
                raise KeyboardInterrupt
            if len(taken) == 3 and stop == "signal":
                os.kill(os.getpid(), signal.SIGINT)
            return backward(self, shown)

        monkeypatch.setattr(WarmStart, "_backward", stopped)
        assert run("sft", *small, half).exit_code == 130
        line = error_of(run("sft", "--resume", half, "--epochs", 3))
        assert line.startswith("Error: --epochs 3 is not what the run began")
        before = len(taken)
        again = result_of(run("sft", "--resume", half, "--json"))
        assert len(taken) - before == whole["steps"] - 3
        assert {**whole, "seconds": 0, "run_dir": ""} == {**again, "seconds": 0, "run_dir": ""}
        digests = {weights_digest(Agent.load(path / "checkpoint", device="cpu").policy) for path in (straight, half)}
        assert len(digests) == 1, stop
        assert scalars(half) == scalars(straight), "no step of the loss twice"
        assert "is complete" in error_of(run("sft", "--resume", half))
