"""What a run logs beside the learner's figures: the KL to the start, and its settings for TensorBoard."""

import numpy as np
import pytest
from _rlenv_scripts.tracking import KLFromStart
from inprocess import result_of, run
from runs import events_of, table
from tensorboard.plugins.hparams import plugin_data_pb2

from agents import Reinforce


def curve(folder, column):
    return [float(row[column]) for row in table(folder) if row[column]]


def train(folder, *args):
    options = ["--env", "CartPole-v1", "--eval-episodes", 2, "--log-interval", 1, "--log-dir", folder, "--json"]
    return result_of(run("train", *options, *args))


def test_the_kl_to_the_start_is_the_anchors_without_an_anchor(tmp_path):
    """An anchor too weak to move anything measures the same KL, as train/kl_ref, on the same episodes."""
    train(tmp_path / "free", "--episodes", 48, "--log-kl")
    train(tmp_path / "held", "--episodes", 48, "--kl-coef", 1e-30)
    free, held = curve(tmp_path / "free", "rollout/kl_start"), curve(tmp_path / "held", "train/kl_ref")
    assert len(free) == 3
    assert free == pytest.approx(held, abs=1e-6)
    assert free[0] == pytest.approx(0, abs=1e-6)
    assert abs(free[-1]) > 1e-4


def test_the_kl_is_estimated_when_the_log_is_written_and_in_micro_batches(tmp_path):
    class Spy(KLFromStart):
        def _on_rollout_end(self):
            super()._on_rollout_end()
            figures.append(self.logger.name_to_value.get("rollout/kl_start"))

    curves = []
    for micro_batch_size in (None, 3):
        figures = []
        agent = Reinforce("MlpPolicy", "CartPole-v1", micro_batch_size=micro_batch_size)
        agent.learn(total_episodes=64, callback=Spy(2), log_interval=2)
        curves.append(figures)
    assert [figure is None for figure in curves[0]] == [False, False, True, False]  # the first, and every second
    assert np.allclose([curves[0][i] for i in (0, 1, 3)], [curves[1][i] for i in (0, 1, 3)], atol=1e-6)


def test_tensorboard_gets_the_settings_and_the_outcome(tmp_path):
    result = train(tmp_path / "run", "--episodes", 16, "--agent", "reinforce", "--seed", 7)
    events = events_of(tmp_path / "run")
    contents = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(contents).session_start_info.hparams
    assert settings["agent"].string_value == "reinforce"
    assert (settings["seed"].number_value, settings["learning_rate"].number_value) == (7, 3e-3)
    experiment = events.summary_metadata["_hparams_/experiment"].plugin_data.content
    metrics = plugin_data_pb2.HParamsPluginData.FromString(experiment).experiment.metric_infos
    assert {info.name.tag for info in metrics} == {"eval/mean_reward", "eval/mean_ep_length"}
    *_, reward = events.Scalars("eval/mean_reward")
    assert reward.value == result["eval"]["mean_reward"]
