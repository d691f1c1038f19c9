"""What TensorBoard shows of a run: settings, curves, the KL to the start, samples, names."""

import json
import os
from unittest.mock import Mock

import numpy as np
import pytest
from inprocess import done
from runs import events_of, scalars
from stable_baselines3.common.logger import Logger
from tensorboard.plugins.hparams import plugin_data_pb2

import rlenv  # noqa: F401
from rlenv._scripts.run.folder import RunFolder
from rlenv._scripts.run.log import open_log
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
