"""A policy's probabilities of all actions while it plays, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..policies import Policy
from ..policies.choosing import choose
from ..rollout import map_obs


@dataclass(frozen=True)
class Choices:
    """The distribution over actions at one step.

    Attributes:
        log_probs: log pi of every action [A], on the CPU; -inf for one that is never drawn.
    """

    log_probs: torch.Tensor

    @property
    def entropy(self) -> float:
        """-Σ_a π(a) log π(a), in nats."""
        return float(torch.special.entr(self.log_probs.exp()).sum())

    def probability(self, action: int) -> float:
        """Return π(action)."""
        return float(self.log_probs[action].exp())

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        """Return the `count` likeliest actions with their probabilities; of equal ones, the smaller first."""
        order = self.log_probs.argsort(descending=True, stable=True)[:count].tolist()
        return [(action, self.probability(action)) for action in order]

    def draw(self, deterministic: bool, generator: torch.Generator | None = None) -> int:
        """Return the likeliest action, or one drawn with a generator on the CPU."""
        return int(choose(self.log_probs[None], deterministic, generator)[0][0])


class Onlooker:
    """Asks a policy for its action probabilities while it, or somebody else, plays an episode.

    Args:
        policy: one with discrete actions.
        device: of the policy.

    Raises:
        ValueError: from `look`, if the policy's actions cannot be listed.
    """

    def __init__(self, policy: Policy, device: torch.device) -> None:
        self.policy, self.device = policy, device
        self._state: Any = None
        self._starts = True

    def start(self) -> None:
        """Forget the last episode; the next observation is the first of another one."""
        self._starts = True

    def look(self, observation: Any) -> Choices:
        """Return the policy's probability of every action, given an observation of a single environment."""
        obs = map_obs(lambda x: torch.as_tensor(np.asarray(x)[None], device=self.device), observation)
        log_probs, self._state = self.policy.distribution(obs, self._state, torch.tensor([self._starts]))
        self._starts = False
        return Choices(log_probs[0].float().cpu())
