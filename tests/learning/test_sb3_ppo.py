"""Other libraries' agents, unmodified, learn in the environment: the reward and the observations carry the task."""

import gymnasium as gym
import pytest
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.evaluation import evaluate_policy

from rlenv.agents import TokenExtractor, as_vec_env

pytestmark = pytest.mark.slow
PEERS = {  # least success, settings
    PPO: (0.5, {"n_steps": 32, "batch_size": 512, "n_epochs": 4, "ent_coef": 0.05}),
    A2C: (0.25, {"n_steps": 8, "ent_coef": 0.02}),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cls", PEERS)
def test_agents_of_stable_baselines3_learn_one_digit_sums_with_the_token_extractor(cls, seed):
    env = as_vec_env(gym.make_vec("rlenv:TextGen-v0", num_envs=64, verifier="arith", verifier_kwargs={"digits": 1}))
    network = {"features_extractor_class": TokenExtractor, "net_arch": [128]}
    least, own = PEERS[cls]
    settings = {**own, "learning_rate": 3e-3, "gamma": 1.0, "gae_lambda": 1.0, "policy_kwargs": network}
    agent = cls("MultiInputPolicy", env, seed=seed, device="cpu", **settings)
    before, _ = evaluate_policy(agent, env, n_eval_episodes=500, deterministic=False)
    agent.learn(250_000)
    after, _ = evaluate_policy(agent, env, n_eval_episodes=500)
    print(f"{cls.__name__}, seed {seed}: success {before:.3f} -> {after:.3f}")
    assert before < 0.05
    assert after > least
