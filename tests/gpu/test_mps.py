"""What has to hold on Apple's device as far as it can be pretended; see `conftest.py`."""

import pytest
import torch
from agent_kinds import fitting, with_teacher
from tiny_models import text_envs, tiny_model

from rlenv.agents import AGENTS, PPO, ReinforceBaseline
from rlenv.agents.devices import to_device, to_host

DEVICE = "mps:0"
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the device is a pretended one")


def is_finite(agent):
    return bool(torch.isfinite(torch.tensor(list(agent.last_metrics.values()))).all())


def test_numbers_go_there_in_single_precision_and_come_back_as_they_are():
    there = to_device(torch.tensor([0.1, 0.2], dtype=torch.float64), torch.device("mps"))
    assert there.dtype is torch.float32 and there.device.type == "mps"
    large = to_device(torch.tensor([2**62 + 1, -1]), torch.device("mps"))
    here = to_host(large, torch.ones(1), there)
    assert [tensor.tolist() for tensor in here] == [[2**62 + 1, -1], [1.0], torch.tensor([0.1, 0.2]).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_trains_without_double_precision(name):
    settings = fitting(name, {"ent_coef": 0.01, "kl_coef": 0.01, "episodes_per_update": 16, "device": "mps"})
    envs = text_envs(8, max_new_tokens=12, group_size=4, device="mps")
    agent = with_teacher(AGENTS[name](tiny_model("llama"), envs, **settings))
    assert is_finite(agent.learn(total_episodes=32))


def test_an_agent_learns_and_is_evaluated_there_and_moves_to_the_cpu(tmp_path):
    settings = {"env_kwargs": {"verifier": "arith"}, "episodes_per_update": 16, "device": "mps"}
    agent = ReinforceBaseline("tiny", "TextGen-v0", **settings).learn(total_episodes=16)
    assert is_finite(agent)
    figures, _ = agent.evaluate("TextGen-v0", 8, seed=0)
    agent.save(tmp_path / "agent")
    loaded = ReinforceBaseline.load(tmp_path / "agent", device="cpu")
    assert figures["episodes"] == 8
    assert loaded.evaluate("TextGen-v0", 8, seed=0)[0]["mean_reward"] == pytest.approx(figures["mean_reward"])


@pytest.mark.slow
def test_control_trains_there():
    settings = {"episodes_per_update": 2, "num_envs": 2, "num_epochs": 2, "ent_coef": 0.01}
    assert is_finite(PPO("MlpPolicy", "CartPole-v1", device="mps", **settings).learn(total_episodes=2))
