"""The features extractor that reads token contexts for stable-baselines3's own agents."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.preprocessing import preprocess_obs

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import TokenExtractor, as_vec_env

ID, SUMS = "rlenv:TextGen-v0", {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
CONTEXTS = spaces.Dict({"tokens": spaces.Box(0, 4, (6,), np.int64), "length": spaces.Discrete(7)})


def features(extractor, rows, lengths):
    """Return the features of contexts as stable-baselines3 passes them on."""
    obs = {"tokens": torch.tensor(rows), "length": torch.tensor(lengths)}
    return extractor(preprocess_obs(obs, CONTEXTS))


def test_the_newest_tokens_stand_side_by_side_and_what_is_behind_the_end_has_no_effect():
    extractor = TokenExtractor(CONTEXTS, window=3, embedding_dim=2)
    assert extractor.features_dim == 6
    vectors = extractor.embedding.weight
    seen = features(extractor, [[1, 2, 3, 4, 0, 0], [1, 2, 3, 4, 2, 2], [3, 0, 0, 0, 0, 0]], [4, 4, 1])
    assert torch.equal(seen[0], torch.cat([vectors[2], vectors[3], vectors[4]]))
    assert torch.equal(seen[1], seen[0])
    assert torch.equal(seen[2], torch.cat([vectors[5], vectors[5], vectors[3]]))  # 5 stands before the first token


def test_every_token_is_seen_by_default():
    extractor = TokenExtractor(CONTEXTS, embedding_dim=2)
    assert extractor.window == TokenExtractor(CONTEXTS, window=99).window == 6
    one, other = features(extractor, [[1, 2, 3, 4, 0, 1], [2, 2, 3, 4, 0, 1]], [6, 6])
    assert not torch.equal(one[:2], other[:2]) and torch.equal(one[2:], other[2:])


@pytest.mark.filterwarnings("ignore:.*render_mode='rgb_array'")  # which its make_vec_env asks for first
@pytest.mark.parametrize("cls", [PPO, A2C])
def test_an_agent_of_stable_baselines3_trains_it_saves_and_loads(cls, tmp_path):
    native = cls is PPO
    env = as_vec_env(gym.make_vec("TextGen-v0", num_envs=4, **SUMS)) if native else make_vec_env(ID, 4, env_kwargs=SUMS)
    kwargs = {"features_extractor_class": TokenExtractor, "features_extractor_kwargs": {"embedding_dim": 4}}
    agent = cls("MultiInputPolicy", env, n_steps=16, policy_kwargs=kwargs, seed=0, device="cpu")
    before = agent.policy.features_extractor.embedding.weight.detach().clone()
    agent.learn(128)
    after = agent.policy.features_extractor.embedding.weight
    assert not torch.equal(before, after)
    agent.save(tmp_path / "agent")
    loaded = cls.load(tmp_path / "agent", device="cpu")
    assert torch.equal(loaded.policy.features_extractor.embedding.weight, after)
    env.close()
