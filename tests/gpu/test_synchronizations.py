"""How often the host waits for the device, by phase: counted on the pretend one, where the counts are exact."""

import numpy as np
import pytest
import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import AGENTS
from rlenv.agents.rollouts.steps import Steps
from rlenv.agents.training.metrics import rollout_metrics

TEXT = {"episodes_per_update": 8, "num_envs": 4, "group_size": 4, "env_kwargs": {"verifier": "arith"}}
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device does not count")


def trained(name, env="TextGen-v0", **settings):
    """Return an agent on the device after an update, so that everything is captured and set up."""
    policy = "tiny" if env == "TextGen-v0" else "MlpPolicy"
    agent = AGENTS[name](policy, env, device="cuda", **(TEXT if env == "TextGen-v0" else {}) | settings)
    return agent.learn(total_episodes=agent.episodes_per_update)


def of_collecting(agent, device, monkeypatch, episodes):
    """Return the largest number of synchronizations of a step, by what happened in it, and of the rollout's end.

    A step goes from one step of the environment to the next. In a quiet one no episode ends or starts.
    """
    kinds, last, restarted = {}, device.synchronizations.copy(), True
    restart = agent.collector.slots.restart

    def note(kind):
        nonlocal last
        found, last = device.synchronizations - last, device.synchronizations.copy()
        kinds[kind] = max(kinds.get(kind, found), found, key=lambda counts: counts.total())

    def on_step(taken, local):
        ended = bool(local["dones"].any())
        note(("quiet", "ends", "restart", "both")[ended + 2 * restarted] if kinds else "reset")
        return True

    def watched(*args):
        nonlocal restarted
        begun = restart(*args)
        restarted = bool(begun[1].any())
        return begun

    monkeypatch.setattr(agent.collector.slots, "restart", watched)
    agent.collector.collect(agent.policy, episodes, agent.generator, on_step=on_step)
    note("rollout")
    return kinds


def of_update(agent, device, monkeypatch):
    """Return the synchronizations of an update and all its metrics, and its optimizer steps."""
    rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
    steps, take = [], agent.policy_optimizer.step
    monkeypatch.setattr(
        agent.policy_optimizer, "step", lambda *args, **kwargs: steps.append(1) or take(*args, **kwargs)
    )
    before = device.synchronizations.copy()
    rollout_metrics(rollout) | agent.update(rollout)
    agent.failure_watch.add(agent.collector.statuses, "", 1.0)
    return device.synchronizations - before, len(steps)


def test_grpo_on_text_waits_once_per_step_and_a_few_times_per_update(device, monkeypatch):
    """In a step once more for ends or restarts."""
    agent = trained("grpo")
    kinds = of_collecting(agent, device, monkeypatch, 24)
    for kind, most in {"quiet": 1, "ends": 2, "both": 3, "reset": 2, "rollout": 1}.items():
        assert kinds[kind].total() <= most, (kind, kinds[kind])
    assert kinds["quiet"].total() == 1, "what is counted is there"
    found, steps = of_update(agent, device, monkeypatch)
    assert steps == 1 and found.total() <= 8, found


def test_an_update_of_ppo_on_text_waits_four_times_per_optimizer_step(device, monkeypatch):
    found, steps = of_update(trained("ppo"), device, monkeypatch)
    assert steps == 4 and found.total() <= 6 + 4 * steps, found


def test_control_waits_once_per_step_and_three_times_per_optimizer_step(device, monkeypatch):
    agent = trained("ppo", "CartPole-v1", episodes_per_update=4, num_envs=2, num_epochs=1)
    kinds = of_collecting(agent, device, monkeypatch, 4)
    assert {counts.total() for counts in kinds.values()} == {1}
    found, steps = of_update(agent, device, monkeypatch)
    assert steps == 4 and found.total() <= 7 + 3 * steps, found


@pytest.mark.slow
def test_without_captured_graphs_a_step_waits_twice(device, monkeypatch):
    agent = trained("grpo", policy_kwargs={"cuda_graphs": False})
    assert of_collecting(agent, device, monkeypatch, 64)["quiet"].total() == 2 and device.captures == 0


@pytest.mark.slow
def test_the_copies_of_16_bit_weights_are_compared_in_one_look(device, monkeypatch):
    agent = trained("grpo", policy_kwargs={"dtype": "bfloat16"})
    assert len(agent.policy_optimizer.weights.masters) > 12
    assert of_update(agent, device, monkeypatch)[0].total() <= 8 + 1


def test_a_rollout_is_put_together_with_as_many_launches_for_many_episodes(device):
    launches = []
    for rows in (2, 40):
        steps, sent = Steps(), device.transfers
        for column in range(33):
            steps.place(np.arange(rows), np.full(rows, column), np.zeros(rows, dtype=bool))
            steps.note("actions", torch.ones(rows, 2, device="cuda"))
            steps.note("rewards", torch.ones(rows, device="cuda"))
        assert device.transfers == sent, "a step sends nothing"
        before = device.launches
        steps.put_together(np.full(rows, 33))
        launches.append(device.launches - before)
    assert launches[0] == launches[1]
