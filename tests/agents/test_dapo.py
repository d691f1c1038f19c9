"""Dynamic sampling: bounded, honest about what was collected, and nothing is learned from groups that say nothing."""

import copy

import pytest
import torch
from diagonal import slow
from identity_checks import collect
from tiny_models import reward_of, text_envs, tiny_policy

from rlenv.agents import DAPO
from rlenv.agents.rollout import join

EPISODES, GROUP = 12, 4


def equal_reward(prompts, completions):
    return [0.1] * len(prompts)


def mixed_reward(prompts, completions):
    """Nothing that is said after a long prompt makes a difference."""
    pairs = zip(prompts, completions, strict=True)
    return [0.1 if len(prompt) > 4 else reward_of(prompt, completion) for prompt, completion in pairs]


def dapo(reward=mixed_reward, **settings):
    """Return an agent, and what it collects from now on."""
    envs = text_envs(EPISODES, reward=reward, group_size=GROUP)
    settings = {"episodes_per_update": EPISODES, "lr_schedule": "constant", "seed": 1, "device": "cpu", **settings}
    agent, rounds = DAPO(tiny_policy("gpt2", envs), envs, **settings), []
    gather = agent.collector.collect

    def listen(*args, **kwargs):
        rounds.append(gather(*args, **kwargs))
        return rounds[-1]

    agent.collector.collect = listen
    return agent, rounds


def informative(rollout):
    """Return which episodes are in a group whose returns differ, bool [N], group by group."""
    rows = torch.zeros(len(rollout), dtype=torch.bool)
    for group in rollout.groups.unique():
        own = rollout.groups == group
        rows |= own & (rollout.returns[own].unique().numel() > 1)
    return rows


@pytest.mark.parametrize(
    ("max_rounds", "settings"), [slow(1, {}), (2, {}), (2, {"overlong_buffer": 12}), (2, {"kl_coef": 0.1})]
)
def test_where_rewards_are_always_equal_resampling_ends_and_nothing_is_changed(max_rounds, settings):
    """With a penalty or an anchor in the reward, equal rewards are not equal returns."""
    agent, rounds = dapo(equal_reward, max_rounds=max_rounds, learning_rate=0.01, **settings)
    agent.anchor.freeze_reference(tiny_policy("gpt2", agent.env, seed=1))
    before = copy.deepcopy((agent.policy.state_dict(), agent.optimizer.state_dict()["state"]))
    agent.learn(total_episodes=2 * max_rounds * EPISODES)
    assert len(rounds) == 2 * max_rounds and agent.num_updates == 2
    assert agent.num_episodes == len(rounds) * EPISODES
    assert agent.num_timesteps == sum(int(rollout.mask.sum()) for rollout in rounds)
    assert agent.last_metrics["train/grad_norm"] == 0.0
    assert agent.last_metrics["rollout/frac_reward_zero_std"] == 1.0
    torch.testing.assert_close(
        (agent.policy.state_dict(), agent.optimizer.state_dict()["state"]), before, rtol=0, atol=0
    )


def test_informative_groups_are_trained_the_first_ones_and_whole_and_figures_are_of_all():
    agent, rounds = dapo(max_rounds=20, overlong_buffer=12)
    prepared, prepare = [], agent.prepare
    agent.prepare = lambda rollout: prepared.append(prepare(rollout)) or prepared[-1]
    agent.learn(1)
    taught = [int(informative(rollout).sum()) for rollout in rounds]
    assert sum(taught[:-1]) < EPISODES, "no more rounds than needed"
    (trained,) = prepared
    assert len(rounds) > 1 and sum(taught) > EPISODES == len(trained), "the last round brings more than needed"
    everything = join(rounds, obs_from_actions=True)
    rows = informative(everything).nonzero()[:, 0][:EPISODES]
    for name in ("actions", "rewards", "mask", "groups"):  # rewards without a penalty
        assert torch.equal(getattr(trained, name), getattr(everything, name)[rows]), name
    assert (trained.advantages.abs().sum(1) > 0).all() and (trained.groups.bincount() % GROUP == 0).all()
    assert float(trained.weights.sum()) == pytest.approx(1), "weights are those of what is trained"
    figures = {
        "ep_rew_mean": everything.returns,
        "ep_len_mean": everything.lengths,
        "frac_reward_zero_std": torch.cat([~informative(rollout)[::GROUP] for rollout in rounds]),
    }
    for name, values in figures.items():
        assert agent.last_metrics[f"rollout/{name}"] == pytest.approx(float(values.double().mean())), name
    assert (agent.num_episodes, agent.num_timesteps) == (len(everything), int(everything.mask.sum()))


def test_groups_that_say_nothing_leave_no_trace_in_the_update():
    """Collected or not, they change no weight: neither the denominator nor the order of what is trained."""
    (both, _), (alone, _) = (dapo(num_epochs=2, num_minibatches=2) for _ in range(2))
    rollout = collect(both.policy, both.env, 40)
    rows = informative(rollout)
    assert 0 < int(rows.sum()) < 40
    both.update(rollout)
    alone.update(rollout.select(rows))
    for name, value in both.policy.state_dict().items():
        assert torch.equal(value, alone.policy.state_dict()[name]), name


def test_a_callback_that_returns_false_ends_the_training_in_any_round():
    agent, rounds = dapo(equal_reward, max_rounds=3)
    agent.learn(10_000, callback=lambda local, _: len(rounds) < 2)
    assert len(rounds) == 3 and rounds[-1] is None
    assert agent.num_updates == 0 and agent.num_episodes == 2 * EPISODES
