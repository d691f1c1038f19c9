"""The log of a run: its table, what TensorBoard shows of it, and what damage costs."""

import json
import os
import sys
from importlib.machinery import ModuleSpec
from unittest.mock import Mock

import numpy as np
import pytest
from inprocess import done, result_of, run
from refused import refusal
from runs import arguments, events_of, scalars
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat
from tensorboard.plugins.hparams import plugin_data_pb2

import rlenv  # noqa: F401
from rlenv._scripts.reports.history import History
from rlenv._scripts.run.folder import RunFolder
from rlenv._scripts.run.log import open_log
from rlenv._scripts.run.trackers import TRACKERS, Wandb
from rlenv.agents import Agent
from rlenv.agents.training import log_entry
from rlenv.agents.training.kl_anchor import weights_digest


def test_a_new_column_of_the_table_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    log = open_log(RunFolder(tmp_path))
    log.record("a", 1)
    log.dump(1)
    log.record("a", 2)
    log.record("b", "x,y")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="killed"):
        patched.setattr(os, "fsync", Mock(side_effect=OSError("killed")))
        log.dump(2)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(TensorBoardOutputFormat, "write", Mock(side_effect=OSError("full")))
        log.dump(2)  # its figures go into the next row, and so into no row before
    assert (tmp_path / "progress.csv").read_text() == "a\n1\n"
    log.dump(2)
    log.close()
    log = open_log(RunFolder(tmp_path), RunFolder(tmp_path).log_place())
    log.record("c", 3)
    log.dump(3)
    log.close()
    assert (tmp_path / "progress.csv").read_text() == 'a,b,c\n1,,\n2,"x,y",\n,,3\n'


def test_tensorboard_gets_the_settings_and_the_outcome(text_run):
    events, result = events_of(text_run), json.loads((text_run / "result.json").read_text())
    contents = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(contents).session_start_info.hparams
    assert (settings["agent"].string_value, settings["learning_rate"].number_value) == ("ppo", 3e-4)
    experiment = events.summary_metadata["_hparams_/experiment"].plugin_data.content
    metrics = plugin_data_pb2.HParamsPluginData.FromString(experiment).experiment.metric_infos
    assert {info.name.tag for info in metrics} == {"eval/mean_reward", "eval/mean_ep_length", "eval/success_rate"}
    assert events.Scalars("eval/mean_reward")[-1].value == result["eval"]["mean_reward"]
    assert len(events.Scalars("sft/loss")) == 4


def test_the_curve_does_not_change_the_training_of_a_controller(tmp_path):
    pole = ["--env", "CartPole-v1", "--env-arg", "max_episode_steps=20", "--num-envs", 4, "--eval-episodes", 2]
    pole += ["--episodes", 12, "--episodes-per-update", 4]
    for every in (1, 0):
        done("train", *pole, "--device", "cpu", "--eval-every", every, "--log-dir", tmp_path / str(every))
    assert [len(scalars(tmp_path / name)["eval/mean_reward"]) for name in "10"] == [4, 2]
    with_curve, without = (Agent.load(tmp_path / name / "checkpoint", device="cpu") for name in "10")
    assert weights_digest(with_curve.policy) == weights_digest(without.policy)


# An entry of the log.


def entry(*metrics):
    logger = Logger(None, [])
    for each in metrics:
        log_entry.record_metrics(logger, each)
    return dict(logger.name_to_value)


def test_an_entry_has_means_largest_smallest_and_newest_and_no_skipped_update_counts():
    names = ("rollout/ep_rew_mean", "train/logp_gap_max", "rollout/group_size_min", "train/skipped_updates")
    updates = [dict(zip(names, values, strict=True)) for values in ((1, 5, 4, 0), (2, 9, 2, 1), (6, 7, 3, 1))]
    assert entry(*updates) == dict(zip(names, (3, 9, 2, 1), strict=True))
    for values in ((np.nan, 2, 4), (2, 4, np.nan)):
        assert entry(*({"train/loss": value, "train/logp_gap_max": value} for value in values)) == {
            "train/loss": 3,
            "train/logp_gap_max": 4,
        }


# Damaged lines: they cost their figures; the run goes on, and the others are shown.

HEADER = "time/iterations,rollout/ep_rew_mean,rollout/ep_len_mean\n"
ROWS = [f"{i},{i / 4},{10 * i}\n" for i in range(1, 7)]


def damage(file, line, byte):
    """Flip a bit of a byte in a line, counted from 1, so that the byte is not UTF-8."""
    content = bytearray(file.read_bytes())
    content[sum(map(len, content.splitlines(keepends=True)[: line - 1])) + byte] ^= 128
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("old", "new", "skipped"),
    [
        ("".join(ROWS[1:4]), "\udcff\n" * 3, 3),
        (ROWS[2], '3,"0.75,30\n', 1),
    ],
)
def test_damaged_lines_are_skipped_and_counted(old, new, skipped, tmp_path, capsys):
    table = (HEADER + "".join(ROWS)).replace(old, new) + "7,9"
    (tmp_path / "progress.csv").write_bytes(table.encode("utf-8", "surrogateescape"))
    read = History(RunFolder(tmp_path).log)["rollout/ep_rew_mean"]
    assert set(read.updates) >= {1, 6} and not {3, 7} & set(read.updates)
    assert set(zip(read.updates, read.values, strict=True)) <= {(i, i / 4) for i in range(1, 7)}
    assert f"skipped {skipped} damaged line" in capsys.readouterr().err


LEFT_OUT = {  # file: line and byte, and what is said of it
    "progress.csv": (3, 1, "skipped 1 damaged line of {}"),
    "samples.jsonl": (2, 9, "skipped 1 damaged line of {}"),
    "result.json": (1, 5, "{} is damaged"),
}


def test_what_is_damaged_is_left_out_and_said(text_copy):
    for name, (line, byte, _) in LEFT_OUT.items():
        damage(text_copy / name, line, byte)
    for command, read in (("report", [*LEFT_OUT]), ("doctor", ["progress.csv", "result.json"])):
        said = done(command, text_copy).stderr
        assert all(LEFT_OUT[name][-1].format(repr(str(text_copy / name))) in said for name in read)


# --track: what Weights & Biases and trackio are sent, by fakes that record calls.

TINY = [*arguments("TextGen"), "--episodes", 8, "--log-interval", 1]


@pytest.fixture
def libraries(monkeypatch):
    """Return a fake of every tracker's library."""
    found = {name: Mock(__spec__=ModuleSpec(name, None)) for name in TRACKERS}  # transformers asks for it
    for name, library in found.items():
        library.errors.Error = type("RefusedError", (Exception,), {})
        library.Table.side_effect = lambda columns, data: (columns, data)
        monkeypatch.setitem(sys.modules, name, library)
    return found


def first_of(mock):
    """Return the first argument of every call."""
    return [call.args[0] for call in mock.call_args_list]


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_configuration_metrics_and_samples_are_sent_and_a_resumed_run_goes_on(tracker, libraries, tmp_path):
    library = libraries[tracker]
    sent = library.init.return_value
    result = result_of(run(*TINY, "--track", tracker, "--log-dir", tmp_path / "mine"))
    begun = library.init.call_args.kwargs
    assert begun["config"]["episodes"] == 8 and begun["resume"] == "allow"
    logged = first_of(sent.log)
    names = {name for row in logged for name in row}
    assert {"sft/loss", "train/loss", "eval/success_rate", "eval/samples"} <= names

    result_of(run("train", "--resume", tmp_path / "mine", "--episodes", 16, "--json"))
    identity = "id" if tracker == "wandb" else "name"
    assert [call.kwargs[identity] for call in library.init.call_args_list] == [begun[identity]] * 2
    later = [call for call in sent.log.call_args_list[len(logged) :] if "train/loss" in call.args[0]]
    steps = [call.kwargs.get("step") or call.args[0]["time/total_timesteps"] for call in later]
    assert len(steps) == 2 and min(steps) > result["timesteps"]
    if tracker == "trackio":
        assert library.finish.call_count == 2
    else:
        assert all(STEPS & {*row} for row in logged)
        assert first_of(sent.summary.update)[0]["result"]["eval"] == result["eval"]
        sent.finish.assert_called_with(exit_code=0)


STEPS = {"time/total_timesteps", "sft/step"}


@pytest.mark.parametrize("name", TRACKERS)
def test_whatever_fails_in_a_tracker_does_not_end_the_training(name, libraries, tmp_path, capsys):
    library = libraries[name]
    sent = library.init.return_value
    for method in (sent.log, sent.finish, library.Table, library.finish):
        method.side_effect = ConnectionResetError("the server is away\nwith a long trace")
    tracker = TRACKERS[name](tmp_path, {})
    tracker.write({"train/loss": 1.0}, {}, 1)
    tracker.add_table("eval/samples", ["prompt"], [["1+1="]], 1)
    tracker.close()
    said = "the server is away; the training goes on, and figures may be missing there"
    assert capsys.readouterr().err.splitlines() == [f"{name}: {said}"]


def test_a_tracker_that_refuses_is_one_line(libraries, tmp_path):
    libraries["wandb"].init.side_effect = libraries["wandb"].errors.Error("No API key configured")
    refusal(lambda: Wandb(tmp_path, {}), "wandb login")
