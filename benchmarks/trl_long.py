"""An update on long answers: 32 prompts x 8 answers of 1 to 64 tokens, 0.43 million parameters, random weights."""

from __future__ import annotations

import copy
from typing import Any

import torch

from agents import Agent, find_agent

from .floors import update_floor
from .measure import Row, clock
from .peers import require_trl, train_beside
from .worlds import GROUPS, K, letter_envs, letter_prompts

STEPS, RATE, TOKENS, PROMPT = 5, 5e-5, 64, 8  # a rate at which lengths stay as they are for a while


def share_of_vowels(completions: list[str], **rest: Any) -> list[float]:
    """Reward the share of vowels, whatever the length."""
    return [sum(c in "aeio" for c in text) / max(len(text), 1) for text in completions]


def run(name: str, pairs: int) -> list[Row]:
    """Return a row."""
    require_trl()
    turns = pairs + 1
    prompts = letter_prompts(GROUPS * STEPS * turns, PROMPT)
    reward = lambda prompts, completions: share_of_vowels(completions)  # noqa: E731
    envs = letter_envs(GROUPS * K, prompts, TOKENS, reward, group_size=K)
    agent: Agent = find_agent("grpo")(
        "tiny", envs, learning_rate=RATE, lr_schedule="constant", episodes_per_update=GROUPS * K, group_size=K,
        device="cpu",
    )  # fmt: skip
    model: Any = agent.policy.model
    start = copy.deepcopy(model)
    means: list[float] = []

    def ours() -> float:
        with clock() as seconds:
            agent.learn(total_episodes=GROUPS * K * STEPS, reset_num_timesteps=False)
        means.append(agent.last_metrics["rollout/ep_len_mean"])
        return seconds() / STEPS

    times, theirs = train_beside(
        "GRPO", start, envs.task.tokenizer, [{"prompt": prompt} for prompt in prompts], share_of_vowels, ours, STEPS,
        turns, per_device_train_batch_size=GROUPS * K, num_generations=K, max_completion_length=TOKENS,
        learning_rate=RATE, logging_steps=10, activation_checkpointing=False, beta=0.0, loss_type="grpo",
        scale_rewards="group",
    )  # fmt: skip
    weights = [copy.deepcopy(each.state_dict()) for each in (start, model, theirs)]
    before, *after = (_mean_reward(agent, each) for each in weights)
    quality = f"reward {before:.3f} -> ours {after[0]:.3f}, TRL {after[1]:.3f} after {STEPS * turns} updates each"
    known: dict[str, Any] = {"lengths": means, "floor": update_floor(agent)}
    return [Row.of("GRPO, 1 to 64 tokens", times.ours[1:], times.theirs[1:], "s/update", quality, **known)]


def _mean_reward(agent: Agent, weights: dict[str, torch.Tensor]) -> float:
    """Return the mean reward of 1,024 sampled episodes, on the same problems for all weights."""
    model: Any = agent.policy.model
    model.load_state_dict(weights)
    figures, _ = agent.evaluate(agent.env, 1024, deterministic=False, seed=1)
    return float(figures["mean_reward"])
