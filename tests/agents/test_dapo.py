"""What DAPO and GDPO add: dynamic sampling, bounded and honest about what was collected; parts of a reward, by hand."""

import contextlib
import copy
import math
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from diagonal import slow
from refused import refusal
from tabular import make_agent
from tiny_models import reward_of, text_envs, tiny_policy
from updates import N, sample

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._status import ERROR
from rlenv.agents import DAPO, GDPO, Agent
from rlenv.agents.rollout import join
from rlenv.verifiers import make_verifier

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
    agent.collector.collect = lambda *given, **more: rounds.append(gather(*given, **more)) or rounds[-1]
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


def test_a_callback_that_returns_false_ends_the_training_in_any_round():
    agent, rounds = dapo(equal_reward, max_rounds=3)
    agent.learn(10_000, callback=lambda local, _: len(rounds) < 2)
    assert len(rounds) == 3 and rounds[-1] is None
    assert agent.num_updates == 0 and agent.num_episodes == 2 * EPISODES


# GDPO: parts and weights come from the verifier, through every kind of environment.


SUM = {"verifier": "weighted", "verifier_kwargs": {"parts": {"arith": 1, "length": {"weight": 0.25, "maximum": 2}}}}
WEIGHTS = {"arith": 1.0, "length": 0.25}
SMALL = {"group_size": 4, "episodes_per_update": 16, "num_envs": 8, "seed": 3, "device": "cpu"}


def made(**settings):
    return GDPO("tiny", "TextGen-v0", **{"env_kwargs": SUM, **SMALL, **settings})


def test_parts_and_weights_are_those_of_the_verifier_in_every_kind_of_environment():
    assert gym.make("TextGen-v0", **SUM).metadata["part_weights"] == WEIGHTS
    assert make_verifier(["arith", "length=0.25"]).part_weights == WEIGHTS
    assert made().weight_of == WEIGHTS
    for more in ({}, {"vectorization_mode": "sync"}, {"verifier_workers": 1}):
        with contextlib.closing(gym.make_vec("TextGen-v0", num_envs=2, **SUM, **more)) as envs:
            assert envs.metadata["part_weights"] == WEIGHTS


def test_parts_stay_with_their_episodes_where_rollouts_are_joined():
    """Several processes join what each has collected."""
    rollout = replace(sample(), extras={"parts/right": torch.rand(N), "parts/tidy": torch.rand(N)})
    agent = made(part_weights={"right": 1.0, "tidy": 0.5})
    whole = agent.advantages(rollout)
    one, two = rollout.select(slice(0, 8)), rollout.select(slice(8, N))
    torch.testing.assert_close(agent.advantages(join([one, two], False)), whole, rtol=0, atol=1e-12)
    del one.extras["parts/tidy"]  # as if none of its verdicts had the part
    lacking = torch.where(torch.arange(N) < 8, torch.nan, rollout.extras["parts/tidy"])
    wanted = agent.advantages(replace(rollout, extras=rollout.extras | {"parts/tidy": lacking}))
    torch.testing.assert_close(agent.advantages(join([one, two], False)), wanted, rtol=0, atol=1e-12)


def test_weights_come_back_from_a_checkpoint(tmp_path):
    agent = made(part_weights={"length": 2.0}).learn(total_episodes=16)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert isinstance(again, GDPO)
    assert again.part_weights == again.weight_of == {"length": 2.0}
    ours, theirs = (next(one.updates(16, reset_num_timesteps=False))[1] for one in (agent, again))
    assert ours == theirs


# Parts in a group.


def with_columns(**columns):
    """Return a rollout of groups of 4 whose verdicts have these parts; NaN for none."""
    rows = len(next(iter(columns.values())))
    rollout = sample().select(torch.arange(rows))
    return replace(rollout, extras={f"parts/{name}": torch.tensor(part) for name, part in columns.items()})


def test_a_part_that_a_verdict_lacks_adds_nothing_and_enters_no_mean():
    nan = float("nan")
    rollout = with_columns(right=[1.0, 0, 1, 0, 1, 0, 1, 0], tidy=[nan, 1.0, 0.0, nan, nan, nan, nan, 5.0])
    right, tidy = 0.5 / (math.sqrt(1 / 3) + 1e-4), 0.5 / (math.sqrt(1 / 2) + 1e-4)
    sums = [right, tidy - right, right - tidy, -right, right, -right, right, -right]
    wanted = [one / math.sqrt(sum(each**2 for each in sums) / 8) for one in sums]
    found = make_agent(GDPO, 4, part_weights={"right": 1, "tidy": 1}).prepare(rollout).advantages[:, 0].tolist()
    assert found == pytest.approx(wanted, abs=1e-6)


def test_a_part_that_no_verdict_has_is_named_in_the_first_update():
    agent = make_agent(GDPO, 4, part_weights={"right": 1.0, "tody": 1.0})
    with pytest.raises(ValueError, match=r"^part_weights names 'tody', but the verdicts .* the parts right, tidy$"):
        agent.update(with_columns(right=[1.0, 0, 1, 0], tidy=[0.0, 10, 0, 0]))
    refusal(lambda: agent.update(sample()), "part_weights names 'right', but the verdicts", "no named parts")
    failed = replace(sample(), status=torch.full((N,), ERROR))
    assert agent.update(failed)["train/grad_norm"] == 0  # they say nothing of names
