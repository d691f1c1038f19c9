"""A replay: the prompts of a rollout in fresh episodes, row by row, and a training that goes on as without it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from architectures import generated
from continued import bytes_of
from diagonal import slow
from dialogues import talking
from fake_engine import FakeEngine
from tiny_models import hash_reward, text_envs, tiny_policy, won

from rlenv._status import ERROR
from rlenv.agents import DAPO, RLOO, Agent, ReinforceBaseline
from rlenv.agents.training.callbacks import as_callback

N, K, MOST = 6, 2, 5
LATE = {"verifier_workers": 1, "late_verdicts": True}


def envs_of(slots=4, reward=hash_reward, **settings):
    return text_envs(slots, reward, group_size=K, max_new_tokens=MOST, **settings)


ENVS = {
    "fewer slots": partial(envs_of, 2),
    "more slots": partial(envs_of, 7),
    "slots that restart": partial(envs_of, autoreset_mode="NextStep"),
    "slots that restart at once": partial(envs_of, autoreset_mode="SameStep"),
    "a choice": partial(envs_of, 2, won, prompt_choice="thompson"),
    "late verdicts": partial(envs_of, **LATE),
    "a late choice": partial(envs_of, 2, won, prompt_choice="thompson", **LATE),
}


def each_env(*fast):
    return pytest.mark.parametrize("env", [name if name in fast else slow(name) for name in ENVS])


def made(envs, cls: type[Agent] = RLOO, **settings):
    return cls(tiny_policy("gpt2", envs), envs, episodes_per_update=N, learning_rate=0.02, seed=3, **settings)


def collected(agent):
    return agent.collect_rollout(as_callback(None, agent))


def prompts_of(rollout):
    rows = zip(rollout.observations["tokens"], rollout.observations["length"].tolist(), strict=True)
    return [tuple(row[:length].tolist()) for row, length in rows]


def said(rollout):
    return [row[own].tolist() for row, own in zip(rollout.actions, rollout.mask, strict=True)]


def likeliest(agent, prompts):
    """Return what transformers generates after each prompt, of likeliest tokens."""
    encoding = agent.env.unwrapped.task.encoding
    found = {prompt: generated(agent.policy.model, prompt, encoding) for prompt in set(prompts)}
    return [found[prompt] for prompt in prompts]


@each_env("fewer slots", "a choice")
def test_every_row_answers_the_prompt_of_its_row_by_the_likeliest_tokens(env):
    agent = made(ENVS[env]())
    for rows in (slice(None), torch.tensor([5, 0, 4, 1])):
        asked = collected(agent).select(rows)
        greedy = agent.replay(asked)
        assert prompts_of(greedy) == prompts_of(asked) and greedy.groups.equal(asked.groups)
        assert said(greedy) == likeliest(agent, prompts_of(asked)) != said(asked)
    text = partial(agent.env.metadata["tokenizer"].decode, skip_special_tokens=True)
    judge = won if env in ("a choice", "a late choice") else hash_reward
    assert greedy.returns.tolist() == judge(list(map(text, prompts_of(greedy))), list(map(text, said(greedy))))


def stream(envs, replays):
    """Return the episodes and the state of a run of some updates, with so many replays in each, and the agent."""
    agent, found = made(envs), []
    for _ in range(2):
        rollout = collected(agent)
        for times in range(replays):
            agent.replay(rollout.select(slice(0, N - 3 * times)))
        found.append((prompts_of(rollout), said(rollout), rollout.rewards.tolist()))
        agent.update(rollout)
    state = agent.env.unwrapped.state_dict()
    return found, state, bytes_of([agent.generator.get_state(), *agent.policy.parameters()]), agent


@each_env("a choice")
def test_training_goes_on_as_without_it(env):
    *alone, before = stream(ENVS[env](), 0)
    *replayed, after = stream(ENVS[env](), 2)
    assert replayed == alone
    assert after.num_timesteps > before.num_timesteps and after.num_episodes == before.num_episodes


@pytest.mark.parametrize("late", [{}, slow({"late_replies": True, "verifier_workers": 1})], ids=["", "late"])
def test_dialogues_are_played_anew(late):
    agent = made(talking(4, group_size=K, **late))
    rollout = collected(agent)
    first, second = agent.replay(rollout), agent.replay(rollout)
    assert prompts_of(first) == prompts_of(rollout) and first.extras["turns"].max() > 1
    assert said(first) == said(second) != said(rollout) and first.rewards.equal(second.rewards)


def test_a_greedy_prompt_is_played_once_and_its_steps_are_counted():
    agent = made(envs_of())
    rollout, before = collected(agent), agent.num_timesteps
    greedy = agent.replay(rollout)
    assert agent.num_timesteps - before == int(greedy.lengths[::K].sum())


def test_a_replay_may_be_sampled_and_then_each_row_has_its_own_episode():
    agent, twin = (made(envs_of(3)) for _ in range(2))
    rollout, _ = collected(agent), collected(twin)
    asked, before = rollout.select(torch.tensor([5, 0, 4, 1, 3, 2])), agent.num_timesteps
    other = agent.replay(asked, deterministic=False)
    assert prompts_of(other) == prompts_of(asked) and len({tuple(each) for each in said(other)}) > 3
    assert said(other) == said(twin.replay(asked, deterministic=False)) != said(agent.replay(asked, False))
    assert agent.num_timesteps - before > int(other.lengths.sum())


def test_rounds_that_were_joined_are_played_again_as_one():
    agent = made(envs_of(reward=lambda prompts, completions: [0.0] * len(prompts)), DAPO, max_rounds=2)
    for _ in range(2):
        rollout = collected(agent)
        assert len(rollout) == 2 * N and prompts_of(agent.replay(rollout)) == prompts_of(rollout)


class InTheUpdate(RLOO):
    def advantages(self, rollout):
        greedy, prompts = self.replay(rollout), prompts_of(rollout)
        assert prompts_of(greedy) == prompts and said(greedy) == likeliest(self, prompts)
        return super().advantages(rollout)


@pytest.mark.parametrize("staleness", [slow(0), 1])
def test_an_engine_plays_it_also_while_the_next_rollout_is_written(staleness):
    envs = envs_of()
    agent = made(envs, InTheUpdate, engine=FakeEngine(tiny_policy("gpt2", envs)), staleness=staleness)
    agent.learn(total_episodes=2 * N)
    assert agent.num_updates == 2 and agent.player.dropped == 0


def test_where_the_greedy_answer_has_no_verdict_nothing_is_subtracted():
    agent = made(envs_of(), ReinforceBaseline, baseline="greedy")
    play = agent.replay

    def replay(rollout):
        found = play(rollout)
        return replace(found, status=torch.where(found.groups == found.groups[0], ERROR, found.status))

    agent.replay = replay
    rollout = collected(agent)
    paid, failed = rollout.extras["greedy_return"], rollout.groups == rollout.groups[0]
    assert paid.isnan().equal(failed) and paid[~failed].equal(play(rollout).returns[~failed])
    assert agent.prepare(rollout).advantages[:, 0].equal(rollout.returns - paid.nan_to_num(0.0))


def test_scaled_rewards_are_compared_with_a_scaled_one():
    agent = made(envs_of(), ReinforceBaseline, baseline="greedy", normalize_rewards=True)
    rollout = collected(agent)
    plain, scaled = agent.prepare(rollout), agent.prepare(agent.reward_scale(rollout, agent.gamma))
    ratio = (scaled.advantages / plain.advantages)[plain.learnable]
    assert ratio.std() < 1e-4 and abs(float(ratio[0]) - 1) > 1e-2
    ((rollout, metrics),) = agent.updates(total_episodes=N)
    assert metrics["rollout/greedy_return"] == pytest.approx(float(rollout.extras["greedy_return"].mean()))
