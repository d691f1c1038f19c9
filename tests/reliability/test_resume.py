"""What --resume allows, and what it says; tests/reliability/test_breaks.py has how resumed runs end."""

import errno
import json
import os
import signal

import pytest
from inprocess import done, error_of, result_of
from inprocess import run as invoke
from runs import arguments, differences, everything, scalars, table

from rlenv._scripts.jobs import callbacks, session
from rlenv._scripts.run.folder import RunFolder
from rlenv._scripts.run.log import flush, open_log
from rlenv.agents import Agent
from rlenv.agents.files import Lock
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.training.checkpoint import read_facts
from rlenv.agents.training.supervised import WarmStart

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
        line = error_of(invoke("train", "--resume", pole_run, *more))
        assert f"'{pole_run}' is complete" in line and "pass --episodes above 32" in line
    for option, (value, begun) in UNCHANGEABLE.items():
        line = error_of(invoke("train", "--resume", pole_run, "--episodes", 36, option, value))
        assert line.startswith(f"Error: {option} ") and "--episodes" in line
        assert "is not what the run began with" in line and f"({begun})" in line


def test_a_finished_run_is_extended(pole_copy, tmp_path):
    """Until the last evaluation, an extended run is what a longer run would have been."""
    result = result_of(invoke("train", "--resume", pole_copy, "--episodes", 40, "--json"))
    assert (result["episodes"], result["updates"]) == (40, 10)
    long = tmp_path / "long"
    done(*arguments("CartPole", "ppo", "--lr-schedule", "constant", "--episodes", 40, "--log-dir", long))
    assert differences(everything(long), everything(pole_copy)) == []
    assert json.loads((pole_copy / "config.json").read_text())["episodes"] == 40


def checkpoints(run):
    """Return the updates of each checkpoint, the newest first."""
    return [read_facts(path)["num_updates"] for path in (run / "checkpoint", *RunFolder(run).earlier().values())]


def test_a_resume_where_a_checkpoint_was_due_keeps_the_one_before(pole_copy, monkeypatch):
    """Each resume begins with the save of the same moment, and ends at once."""
    assert checkpoints(pole_copy) == [8, 7]
    with monkeypatch.context() as patch:
        patch.setattr(callbacks.BetweenSteps, "_on_step", lambda self: signal.raise_signal(signal.SIGTERM) is not None)
        for _ in range(2):
            assert invoke("train", "--resume", pole_copy, "--episodes", 36).exit_code == 128 + signal.SIGTERM
            assert checkpoints(pole_copy) == [8, 7]


def test_a_second_error_while_saving_is_named_beside_the_first(tmp_path, monkeypatch):
    def fail(self, rollout):
        monkeypatch.setattr(Agent, "save", disk_is_full)
        self.num_updates += 1
        raise KeyError("first")

    def disk_is_full(*_):
        raise OSError(errno.ENOSPC, "second")

    monkeypatch.setattr(Agent, "update", fail)
    outcome = invoke(*arguments("CartPole", "reinforce", "--log-dir", tmp_path / "run"))
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
    run = tmp_path / "run"
    done(*arguments("CartPole", "reinforce", "--lr-schedule", "linear", "--episodes", 16, "--log-dir", run))
    done("train", "--resume", run, "--episodes", 32, "--learning-rate", 0.25)
    rates = [float(row["train/learning_rate"]) for row in table(run) if row["train/learning_rate"]]
    assert rates[-1] == pytest.approx(0.25 * (1 - 28 / 32)) and rates[0] < 0.1
    assert json.loads((run / "config.json").read_text())["learning_rate"] == 0.25
    assert Agent.load(run / "checkpoint", device="cpu").learning_rate == 0.25


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
    outcome = invoke(*command, pole_copy)
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
    whole, backward = result_of(invoke("sft", *small, straight, "--json")), WarmStart._backward
    line = error_of(invoke("train", "--resume", straight))
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
        assert invoke("sft", *small, half).exit_code == 130
        line = error_of(invoke("sft", "--resume", half, "--epochs", 3))
        assert line.startswith("Error: --epochs 3 is not what the run began")
        before = len(taken)
        again = result_of(invoke("sft", "--resume", half, "--json"))
        assert len(taken) - before == whole["steps"] - 3
        assert {**whole, "seconds": 0, "run_dir": ""} == {**again, "seconds": 0, "run_dir": ""}
        digests = {weights_digest(Agent.load(path / "checkpoint", device="cpu").policy) for path in (straight, half)}
        assert len(digests) == 1, stop
        assert scalars(half) == scalars(straight), "no step of the loss twice"
        assert "is complete" in error_of(invoke("sft", "--resume", half))
