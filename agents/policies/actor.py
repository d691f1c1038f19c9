"""Actors, which choose actions while episodes are played: one interface for policies in torch and in numpy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from typing_extensions import override

from ..devices import to_device
from ..rollout import map_obs

if TYPE_CHECKING:
    from .draws import EpisodeDraws


class Actor(ABC):
    """Acts in the slots of a vector environment during one rollout; `Policy.make_actor` makes it.

    It knows how to sample and what the policy remembers between steps. It is not used for another rollout, since
    weights may be replaced between them.

    Attributes:
        appended: how many tokens the environment appended to each context after the last action, int [B] on the CPU; 0
            for none; None if it does not say.
        waiting: where the coming step is not an action, bool [B]; None for nowhere.
        acting: which slots take the last answer of `act`, bool [B]: the others stay as they are; None for all that play
            and do not wait.
    """

    appended: torch.Tensor | int | None = None
    waiting: np.ndarray | None = None
    acting: np.ndarray | None = None

    @abstractmethod
    def act(self, obs: Any, starts: np.ndarray, playing: np.ndarray) -> tuple[Any, Any, Any]:
        """Return actions as the environment takes them, the same as a rollout keeps them, and their log-probabilities.

        Actions [B] or [B, A] and log-probabilities [B] are arrays or tensors, and are not written to again.

        Args:
            obs: observations of all slots, in single precision [B, ...].
            starts: where a new episode begins with this observation, bool [B].
            playing: the slots that take the coming step, bool [B]; the others may get any action.
        """


class PolicyActor(Actor):
    """Acts with a policy's `act`, on tensors where the policy is; arguments as for `Policy.make_actor`."""

    def __init__(
        self,
        policy: Any,
        obs: Any,
        action_space: gym.Space,
        device: torch.device,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> None:
        self.policy, self.action_space, self.device = policy, action_space, device
        self.deterministic, self.generator = deterministic, generator
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        self.state, self.env_takes_tensors = policy.initial_state(len(first)), isinstance(first, torch.Tensor)
        self.draws: EpisodeDraws | None = None  # in place of the generator
        if policy.draws_by_episode and generator is not None and not deterministic:
            from .draws import EpisodeDraws  # for such policies alone

            self.draws = EpisodeDraws(generator, len(first))

    @override
    def act(self, obs: Any, starts: np.ndarray, playing: np.ndarray) -> tuple[Any, torch.Tensor, torch.Tensor]:
        seen = map_obs(lambda x: to_device(x, self.device), obs)
        begins, plays = torch.from_numpy(starts), torch.from_numpy(playing)
        more: dict[str, Any] = {"appended": self.appended} if self.policy.takes_appended else {}
        numbers: Any = self._numbers(starts, playing)
        actions, log_probs, self.state = self.policy.act(
            seen, self.state, begins, self.deterministic, numbers, playing=plays, **more
        )
        taken = actions if self.env_takes_tensors else actions.cpu().numpy()
        return for_env(taken, self.action_space, self.policy.squashes), actions, log_probs

    def _numbers(self, starts: np.ndarray, playing: np.ndarray) -> torch.Generator | torch.Tensor | None:
        if self.draws is None:
            return self.generator
        acting = playing if self.waiting is None else playing & ~self.waiting
        return to_device(self.draws.take(starts, acting), self.device)


def for_env(actions: Any, space: gym.Space, squashed: bool = False) -> Any:
    """Return actions as environments take them: inside the bounds of a Box, or counted from where a space begins.

    Arrays have the type of the space; to integers, the actions of a Box are rounded.

    Args:
        actions: of a policy, an array or a tensor [B] or [B, A]; discrete ones count from 0. A Box has any shape.
        space: of one environment.
        squashed: whether actions of a Box are between -1 and 1, and are stretched to its bounds.
    """
    like: Any = partial(torch.as_tensor, device=actions.device) if isinstance(actions, torch.Tensor) else np.asarray
    if isinstance(space, gym.spaces.Box):
        low, high = like(space.low), like(space.high)
        actions = actions.reshape(len(actions), *space.shape)
        actions = (low + (actions + 1) / 2 * (high - low) if squashed else actions).clip(low, high)
        actions = actions.round() if np.issubdtype(space.dtype, np.integer) else actions
    start = getattr(space, "start", 0)
    begins_elsewhere = start.any() if isinstance(start, np.ndarray) else start
    actions = actions + like(start) if begins_elsewhere else actions
    return actions.astype(space.dtype, copy=False) if isinstance(actions, np.ndarray) else actions
