"""The models and environments of the benchmarks, the same for both sides."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from transformers import PreTrainedModel

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import LanguageModelPolicy, Rollout, make_envs, warm_start
from agents.policies.language.models.loading import load_model
from agents.rollouts.collector import Collector
from rlenv.envs.demonstrations import demonstrate
from verifiers import FunctionVerifier

GROUPS, K = 32, 8
LETTERS = "abcdefghijklmno"


@functools.cache
def _warm_model() -> PreTrainedModel:
    envs = arith_envs(4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space)
    task = envs.task
    task.reseed(np.random.default_rng(0))
    shown = demonstrate(task, 0, 650, torch.device("cpu"))
    episodes = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)
    generator = torch.Generator().manual_seed(0)

    def batch(size: int) -> Rollout:
        return episodes.select(torch.randint(len(episodes), (size,), generator=generator))

    warm_start(policy, batch, steps=500)
    return policy.model


def warm_model() -> PreTrainedModel:
    """Return a model of 0.43 million parameters that gets about half of the sums right after 650 demonstrations."""
    return copy.deepcopy(_warm_model())


def arith_envs(num_envs: int, **kwargs: Any) -> Any:
    """Return the batched arithmetic environment."""
    return make_envs("TextGen-v0", num_envs, {"verifier": "arith", **kwargs})


def greedy_success(model: PreTrainedModel, episodes: int = 2000) -> float:
    """Return the share of sums of the test split that a model gets right with its most likely tokens."""
    envs = arith_envs(256, split="test")
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(0)
    rollout = collector.collect(policy, episodes, deterministic=True)
    assert rollout is not None
    return float(rollout.success.mean())


def endless_model(vocab_size: int, max_length: int, end: int, seed: int = 0) -> PreTrainedModel:
    """Return a random model of 0.43 million parameters that never chooses the token `end`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = load_model("tiny", vocab_size, max_length, None)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(3)  # far from uniform, so that a wrong context changes results
    return never_ends(model, [end])


def never_ends(model: PreTrainedModel, ends: Sequence[int]) -> PreTrainedModel:
    """Return the model with a head that never chooses these tokens."""
    embedding: Any = model.get_input_embeddings()
    head = torch.nn.Linear(1, len(embedding.weight)).to(embedding.weight.dtype)
    with torch.no_grad():
        head.bias.zero_()
        head.bias[list(ends)] = -1e4
    head.in_features, head.weight = embedding.embedding_dim, embedding.weight
    model.lm_head = head
    return model.eval()


def letter_envs(num_envs: int, prompts: list[str], new_tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return a batched environment over prompts of letters with a reward function; the reward is 0 by default."""
    function = reward or (lambda prompts, completions: [0.0] * len(prompts))
    return gym.make_vec(
        "TextGen-v0", num_envs=num_envs, verifier=FunctionVerifier(function, alphabet=LETTERS), problems=prompts,
        test_fraction=0.0, max_new_tokens=new_tokens, **{"max_prompt_tokens": len(prompts[0]), **kwargs},
    )  # fmt: skip


def letter_prompts(count: int, length: int, seed: int = 0) -> list[str]:
    """Return `count` different prompts of `length` letters."""
    draw = np.random.default_rng(seed).integers(len(LETTERS), size=(count * 2, length))
    return list(dict.fromkeys("".join(LETTERS[i] for i in row) for row in draw))[:count]
