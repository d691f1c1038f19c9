"""The figures of a rollout and of an evaluation."""

import gymnasium as gym
import pytest

import rlenv  # noqa: F401
from agents import Reinforce, VerifierError


def nothing(prompts, completions, **columns):
    return [None] * len(completions)


def alternating(prompts, completions, **columns):
    return [None if i % 2 else 1.0 for i in range(len(completions))]


def evaluate(function, episodes):
    env = gym.make_vec(
        "TextGen-v0", num_envs=episodes, verifier=function, problems=["ab"], test_fraction=0.0, max_new_tokens=1
    )
    return Reinforce("tiny", env, device="cpu").evaluate(env, episodes, seed=0)[0]


def test_an_evaluation_without_a_single_verdict_is_a_fault_and_no_zero():
    with pytest.raises(VerifierError, match="the verifier reached no verdict on all 4 episodes"):
        evaluate(nothing, 4)


def test_failed_verdicts_count_for_nothing():
    figures = evaluate(alternating, 10)
    assert (figures["episodes"], figures["mean_reward"], figures["success_rate"]) == (5, 1.0, 1.0)
