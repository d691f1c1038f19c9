"""Another library's agent, unmodified, learns in the environment: the reward and the observations carry the task."""

import gymnasium as gym
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

pytestmark = pytest.mark.slow
SUMS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in ((1, 2), (2, 2), (4, 4))]


def test_ppo_of_stable_baselines3_learns_three_sums():
    env = Monitor(
        gym.make(
            "rlenv:TextGen-v0",
            verifier="arith",
            verifier_kwargs={"digits": 1},
            problems=SUMS,
            test_fraction=0.0,
            max_new_tokens=2,
        )
    )
    agent = PPO(
        "MultiInputPolicy",
        env,
        n_steps=512,
        batch_size=64,
        ent_coef=0.05,
        learning_rate=3e-3,
        policy_kwargs={"net_arch": [64]},
        seed=1,
        device="cpu",
    )
    before, _ = evaluate_policy(agent, env, n_eval_episodes=300, deterministic=False)
    agent.learn(10_240)
    after, _ = evaluate_policy(agent, env, n_eval_episodes=300, deterministic=False)
    assert before < 0.1
    assert after > 0.5
