"""What becomes of verdicts in training: missing ones, parts, levels, and a verifier that keeps failing."""

import warnings

import gymnasium as gym
import pytest
from diagonal import slow
from gymnasium.vector import AutoresetMode

from rlenv.agents import Distillation, Reinforce, ReinforceBaseline, VerifierError
from rlenv.agents.training.health import StartWatch
from rlenv.verifiers import Arith

EIGHT = {"episodes_per_update": 8, "device": "cpu"}


class Judging(gym.wrappers.TimeLimit):
    """A time limit that says what the episodes that it cuts off are worth."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        cut = truncated and not terminated
        return obs, -1.0 if cut else reward, terminated, truncated, info | ({"verdict_status": "ok"} if cut else {})


def cut_off(limit, mode):
    make = lambda: limit(gym.make("TextGen-v0", verifier=Arith(digits=1)), 2)  # noqa: E731
    return Reinforce("tiny", gym.vector.SyncVectorEnv([make] * 2, autoreset_mode=mode), **EIGHT)


@pytest.mark.parametrize("mode", [slow(AutoresetMode.NEXT_STEP), AutoresetMode.SAME_STEP, slow(AutoresetMode.DISABLED)])
def test_an_episode_cut_off_before_it_was_judged_is_refused_and_not_worth_0(mode):
    with pytest.raises(ValueError, match=r"ended without a verdict.*max_new_tokens") as error:
        cut_off(gym.wrappers.TimeLimit, mode).learn(200)
    assert "\n" not in str(error.value)
    agent = cut_off(Judging, mode).learn(total_episodes=16)
    assert agent.last_metrics["rollout/failed_frac"] == 0 and agent.last_metrics["rollout/ep_rew_mean"] < 0


def agent_with(function, **settings):
    env = {"verifier": function, "problems": ["a", "b", "c"], "test_fraction": 0.0, "max_new_tokens": 2}
    cls = Reinforce if settings.get("group_size") == 1 else ReinforceBaseline
    return cls("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=64, num_envs=64, device="cpu", **settings)


def breaks_on(share):
    calls = []

    def reward(prompts, completions):
        calls.append(len(completions))
        if len(completions) == 1 and sum(calls) % 100 < 100 * share:
            raise OSError("the judge is down")
        if len(completions) > 1:
            raise OSError("not the whole batch")
        return [0.5]

    return reward


def paying(reward):
    """Return a reward function of the index of a completion and its prompt."""
    return lambda prompts, completions: [reward(i, prompt) for i, prompt in enumerate(prompts)]


nothing = paying(lambda i, prompt: None)


def test_training_stops_and_says_why_where_verdicts_fail_too_often_or_there_are_none():
    agent = agent_with(breaks_on(0.5)).learn(total_episodes=64)
    agent.set_env(agent.env)  # which changes nothing in what is counted
    with pytest.raises(VerifierError, match=r"allowed: 10% \(max_failed_share\)") as stopped:
        agent.learn(total_episodes=10_000, reset_num_timesteps=False)
    assert "error: OSError: the judge is down (test_verdicts.py:" in str(stopped.value)
    assert 100 <= agent.num_episodes <= 256
    with pytest.warns(UserWarning, match=r"^none of the 64 episodes .*: the judge is down \(test_verdicts.py:"):
        agent_with(breaks_on(1.0)).learn(total_episodes=64)
    agent = agent_with(nothing, max_failed_share=1.0)
    with pytest.warns(UserWarning, match=r"^none of the 64 episodes got a verdict \(.*64 not_applicable\)"):
        agent.learn(total_episodes=64)  # too short to be stopped
    with pytest.raises(VerifierError, match=r"did not apply \(not_applicable\) to any of the last 128 episodes"):
        agent.learn(total_episodes=10_000)


@pytest.mark.parametrize(
    ("reward", "group_size", "warns"),
    [
        (lambda i, prompt: 0.25, 4, True),
        (lambda i, prompt: 0.5 * (prompt == "a"), 4, True),  # different rewards are not compared
        (lambda i, prompt: 0.5 * (prompt == "a"), 1, False),
        (lambda i, prompt: 1.0, 4, False),
    ],
)
def test_learning_warns_once_if_none_of_the_first_answers_is_right_and_none_earns_more(reward, group_size, warns):
    agent = agent_with(paying(reward), group_size=group_size)
    agent.learn(total_episodes=128)  # too few to know
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        agent.learn(total_episodes=192, reset_num_timesteps=False)
    assert [str(each.message)[:31] for each in seen] == ["none of the first 192 answers i"] * warns
    assert [each.filename for each in seen] == [__file__] * warns


def test_learning_from_a_teacher_or_without_a_word_about_success_needs_no_reward():
    silent = {"rollout/ep_rew_mean": 0.0, "rollout/reward_std": 0.0, "rollout/group_size_min": 1.0}
    watch = StartWatch()
    watch.add(silent, 1000)
    assert (watch.episodes, watch.hopeless) == (0, False)
    sums = {"env_kwargs": {"verifier": "arith"}, "device": "cpu"}
    others = [Distillation("tiny", "TextGen-v0", **sums), Reinforce("tiny", "TextGen-v0", reply_coef=0.1, **sums)]
    others.append(Reinforce("MlpPolicy", "CartPole-v1", device="cpu"))
    assert [agent.start_watch.warns for agent in others] == [False] * 3


def test_failed_verdicts_count_for_nothing_in_an_evaluation_and_nothing_but_them_is_a_fault():
    agent = agent_with(paying(lambda i, prompt: None if i % 2 else 1.0))
    figures, _ = agent.evaluate(agent.env, 64, seed=0)
    assert (figures["episodes"], figures["mean_reward"], figures["success_rate"]) == (32, 1.0, 1.0)
    agent = agent_with(nothing)
    with pytest.raises(VerifierError, match="the verifier reached no verdict on all 64 episodes"):
        agent.evaluate(agent.env, 64, seed=0)
