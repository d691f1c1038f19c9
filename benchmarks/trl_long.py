"""An update on long answers: 32 prompts x 8 answers of 1 to 64 tokens, 0.43 million parameters, random weights."""

from __future__ import annotations

import copy
from typing import Any

import torch

from agents import Agent, find_agent

from .floors import update_floor
from .measure import Row
from .peers import SAME_LOSS, Turns, learned, require_trl, train_beside
from .worlds import GROUPS, K, letter_envs, letter_prompts

STEPS, RATE, TOKENS, PROMPT = 5, 5e-5, 64, 8  # at this rate lengths hardly change while it is measured
SEEDS, EVALUATED = 5, 1024  # episodes


def share_of_vowels(completions: list[str], **rest: Any) -> list[float]:
    """Reward the share of vowels, whatever the length."""
    return [sum(c in "aeio" for c in text) / max(len(text), 1) for text in completions]


def run(name: str, pairs: int) -> list[Row]:
    """Return a row: pairs timed with the first seed, rewards over several."""
    require_trl()
    turns = pairs + 1
    agent, times, means, first = _train(0, STEPS, turns)
    seeds = [first, *(_train(seed, STEPS * turns, 1)[3] for seed in range(1, min(SEEDS, pairs)))]
    before, ours, theirs = ([each[side] for each in seeds] for side in range(3))
    quality = learned("reward", STEPS * turns, before, ours, theirs)
    known: dict[str, Any] = {"lengths": means, "reward": ours, "peer_reward": theirs, "floor": update_floor(agent)}
    return [Row.of("GRPO, 1 to 64 tokens", times.ours[1:], times.theirs[1:], "s/update", quality, **known)]


def our_agent(updates: int, seed: int = 0) -> Agent:
    """Return our side, with new prompts for so many updates."""
    prompts = letter_prompts(GROUPS * updates, PROMPT, seed)
    reward = lambda prompts, completions: share_of_vowels(completions)  # noqa: E731
    envs = letter_envs(GROUPS * K, prompts, TOKENS, reward, group_size=K)
    agent: Agent = find_agent("grpo")(
        "tiny", envs, learning_rate=RATE, lr_schedule="constant", episodes_per_update=GROUPS * K, group_size=K,
        seed=seed, device="cpu",
    )  # fmt: skip
    return agent


def _train(seed: int, steps: int, turns: int) -> tuple[Agent, Turns, list[float], list[float]]:
    """Train ours and TRL from the same weights, in turn.

    Returns:
        Our agent, the times, our mean length per rollout, and the rewards before, of ours after, of TRL's after.
    """
    agent = our_agent(steps * turns, seed)
    model: Any = agent.policy.model
    start = copy.deepcopy(model)
    times, kept, theirs = train_beside("GRPO", agent, start, share_of_vowels, steps, turns, **SAME_LOSS)
    weights = [copy.deepcopy(each.state_dict()) for each in (start, model, theirs)]
    return agent, times, kept.lengths, [_mean_reward(agent, each) for each in weights]


def _mean_reward(agent: Agent, weights: dict[str, torch.Tensor]) -> float:
    """Return the mean reward of sampled episodes, on the same problems for all weights."""
    model: Any = agent.policy.model
    model.load_state_dict(weights)
    figures, _ = agent.evaluate(agent.env, EVALUATED, deterministic=False, seed=1)
    return float(figures["mean_reward"])
