"""stable-baselines3's `predict` for any policy: numpy in, numpy out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces

from .rollout import map_obs

if TYPE_CHECKING:
    from .agent import Agent


@torch.no_grad()
def predict(
    agent: Agent, observation: Any, state: Any, episode_start: np.ndarray | None, deterministic: bool
) -> tuple[np.ndarray, Any]:
    """Return actions and the next state.

    Args:
        agent: whose policy acts, on its device and with its generator.
        observation: one observation or a batch of them.
        state: what the last call returned, None at first.
        episode_start: where a new episode begins [B]; None where it does everywhere if there is no state, else nowhere.
        deterministic: whether to take the likeliest action.

    Returns:
        One action, or a batch of them; the state.
    """
    space = agent.env.single_observation_space
    single = _is_single(space, observation)
    obs = map_obs(lambda x: torch.as_tensor(np.asarray(x)[None] if single else x, device=agent.device), observation)
    slots = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
    if episode_start is None:
        episode_start = np.full(slots, state is None)
    starts = torch.as_tensor(np.asarray(episode_start, dtype=bool).reshape(-1), device=agent.device)
    actions, _, state = agent.policy.act(obs, state, starts, deterministic, agent.generator)
    array = actions.cpu().numpy()
    action_space = agent.env.single_action_space
    if isinstance(action_space, spaces.Box):
        array = np.clip(array, action_space.low, action_space.high)
    return (array[0] if single else array), state


def _is_single(space: spaces.Space, observation: Any) -> bool:
    """Tell whether an observation comes without a batch dimension."""
    if isinstance(space, spaces.Dict):
        key, part = next(iter(space.spaces.items()))
        return np.ndim(observation[key]) == len(part.shape or ())
    return np.ndim(observation) == len(space.shape or ())
