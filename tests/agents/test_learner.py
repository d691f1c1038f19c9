"""What the critic says of the state behind a time limit, and what it is then fitted to."""

from dataclasses import replace

import pytest
import torch
from diagonal import diagonal
from identity_checks import EXACT, ROUNDING, assert_close, collect
from time_limits import CutOff, endless_envs
from tiny_models import text_envs, tiny_model

from agents import A2C, PPO

GAMMA = 0.9


@diagonal("cls, critic", [A2C, PPO], ["head", "separate"])
def test_final_values_of_text_are_the_critics_of_prompt_and_completion(cls, critic):
    envs = CutOff(text_envs(4))
    settings = {"policy_kwargs": {"dtype": "float64", "critic": critic}, "gamma": GAMMA}
    agent = cls(tiny_model("gpt2"), envs, episodes_per_update=12, device="cpu", **settings)
    rollout = collect(agent.policy, envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12
    prepared = agent.prepare(rollout)
    one_more = torch.arange(rollout.mask.shape[1] + 1) <= rollout.lengths[:, None]
    longer = replace(rollout, actions=torch.nn.functional.pad(rollout.actions, (0, 1)), mask=one_more)
    wanted = agent.policy.values(longer).detach().gather(1, rollout.lengths[:, None])[:, 0]
    assert_close(prepared.final_values, wanted * cut, EXACT, "final values")
    assert (prepared.final_values[cut] != 0).all()
    agent.micro_batch_size = 1  # most parts then have no final observation at all
    row_by_row = agent.prepare(rollout)
    assert_close(row_by_row.final_values, prepared.final_values, EXACT, "final values, row by row")
    assert_close(row_by_row.values, prepared.values, EXACT, "values, row by row")


@pytest.mark.parametrize("cls", [A2C, PPO])
@pytest.mark.parametrize(("terminates", "lam"), [(False, 0.0), (False, 0.95), (False, 1.0), (True, 1.0)])
def test_a_critic_that_knows_the_endless_world_learns_nothing_from_a_time_limit_but_from_an_end(cls, terminates, lam):
    """A world without end, watched for four steps at a time, of which the critic says 1 / (1 - γ) everywhere."""
    envs, worth = endless_envs(terminates=terminates), 1 / (1 - GAMMA)
    settings = {"normalize_advantage": False} if cls is PPO else {}
    agent = cls("MlpPolicy", envs, gamma=GAMMA, gae_lambda=lam, episodes_per_update=8, device="cpu", **settings)
    with torch.no_grad():
        agent.policy.net.value_net.weight.zero_()
        agent.policy.net.value_net.bias.fill_(worth)
    prepared = agent.prepare(collect(agent.policy, envs, 8))
    left = [sum(GAMMA**k for k in range(steps)) if terminates else worth for steps in (4, 3, 2, 1)]
    assert_close(prepared.value_targets, torch.tensor(left).expand(8, 4), ROUNDING, "targets")
    assert_close(prepared.advantages, torch.tensor(left).expand(8, 4) - worth, ROUNDING, "advantages")
