"""How often the host waits for the device: counted on the pretend one, where the counts are exact."""

import pytest
import torch
from synchronizations import CONTROL, TEXT, of_collecting, of_update, trained

UPDATED = TEXT | {"episodes_per_update": 16, "num_envs": 8}
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device does not count")


def most(counts):
    return max(sum(each.values()) for each in counts)


def test_a_step_on_text_waits_once_and_once_more_for_ends_or_restarts(device):
    phases = of_collecting(trained("grpo", "TextGen-v0", seed=3, **TEXT | {"num_envs": 8}), device)
    assert all(phases[kind] for kind in ("quiet", "ends", "both", "rollout"))
    assert most(phases["quiet"]) == 1
    assert most(phases["ends"]) <= 2
    assert most(phases["both"]) <= 3, "the step, its ends and a restart"
    assert most(phases["reset"]) <= 2, "the step and the prompts"
    assert most(phases["rollout"]) <= 1


def test_an_update_of_grpo_waits_a_few_times(device):
    found, steps = of_update(trained("grpo", "TextGen-v0", **UPDATED), device)
    assert steps == 1 and found.total() <= 8, found


def test_an_update_of_ppo_on_text_waits_four_times_per_optimizer_step(device):
    found, steps = of_update(trained("ppo", "TextGen-v0", **TEXT), device)
    assert steps == 4 and found.total() <= 6 + 4 * steps, found


def test_control_waits_once_per_step_and_three_times_per_optimizer_step(device):
    agent = trained("ppo", "CartPole-v1", **CONTROL | {"episodes_per_update": 4, "num_envs": 2, "num_epochs": 1})
    assert {sum(each.values()) for kind in of_collecting(agent, device).values() for each in kind} == {1}
    found, steps = of_update(agent, device)
    assert steps == 4 and found.total() <= 7 + 3 * steps, found


@pytest.mark.slow
def test_without_captured_graphs_a_step_waits_twice(device):
    settings = TEXT | {"num_envs": 8, "policy_kwargs": {"cuda_graphs": False}}
    phases = of_collecting(trained("grpo", "TextGen-v0", seed=3, **settings), device)
    assert most(phases["quiet"]) == 2 and device.captures == 0


@pytest.mark.slow
def test_the_copies_of_16_bit_weights_are_compared_in_one_look(device):
    settings = TEXT | {"policy_kwargs": {"dtype": "bfloat16"}}
    agent = trained("grpo", "TextGen-v0", **settings)
    assert len(agent.policy_optimizer.weights.state()) > 12
    assert of_update(agent, device)[0].total() <= 8 + 1
