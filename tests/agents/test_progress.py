"""What reward functions learn about the training, through reset alone."""

import inspect

import gymnasium as gym
import numpy as np
import pytest

import rlenv  # noqa: F401
from agents import RLOO

PROBLEMS = [{"prompt": f"{n}+{n}=", "answer": str(2 * n), "split": "test" if n == 4 else "train"} for n in range(5)]
SEEN = []


def reward(completions, completion_ids, trainer_state):
    assert all(len(text) in (len(ids), len(ids) - 1) for text, ids in zip(completions, completion_ids, strict=True))
    SEEN.append((trainer_state.global_step, trainer_state.max_steps))
    return [1.0] * len(completions)


def by_step(trainer_state, completions):
    return [float(trainer_state.global_step)] * len(completions)


def agent_with(function, **env):
    env = {"verifier": function, "problems": PROBLEMS, "max_new_tokens": 3, **env}
    return RLOO("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=8, group_size=4, device="cpu")


def test_a_reward_function_learns_the_number_of_updates():
    SEEN.clear()
    agent = agent_with(reward).learn(total_episodes=24)
    assert sorted(set(SEEN)) == [(0, 3), (1, 3), (2, 3)]
    SEEN.clear()
    agent.evaluate(agent.env, 4)
    assert set(SEEN) == {(3, 3)}
    SEEN.clear()
    agent.learn(total_timesteps=20, reset_num_timesteps=False)
    assert SEEN[0] == (3, None), "how many updates so many steps make is not known"


@pytest.mark.parametrize("late", [{}, {"verifier_workers": 1, "verifier_timeout": 60.0}], ids=["here", "workers"])
def test_the_number_reaches_verdicts_in_any_process(late, tmp_path):
    (tmp_path / "stepped.py").write_text(inspect.getsource(by_step))  # this module takes a worker seconds to import
    agent = agent_with(f"{tmp_path}/stepped.py:by_step", **late)
    rewards = [float(rollout.returns.mean()) for rollout, _ in agent.updates(total_episodes=24)]
    agent.env.close()
    assert rewards == [0.0, 1.0, 2.0]


def test_the_single_environment_takes_it_too():
    env = gym.make("TextGen-v0", verifier=by_step, problems=PROBLEMS, max_new_tokens=1)
    env.reset(seed=0, options={"progress": {"num_updates": 7, "max_updates": None}})
    assert env.step(np.int64(3))[1] == 7.0


def test_a_column_that_no_problem_has_is_refused_before_the_first_episode():
    def scored(completions, solution):
        return [0.0]

    with pytest.raises(ValueError, match=r"asks for the columns \['solution'\]; the problems have: answer, split"):
        agent_with(scored)
