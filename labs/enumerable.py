"""A world small enough to enumerate: sequences of a few tokens, and a policy with a logit vector for every prefix.

Every expectation here is a finite sum. What a lab measures goes through real agents; `exact_gradient` and `scores` are
written out from the definitions and share no code with them.

V tokens, T steps, S prefixes, C completions, R copies of the policy's table, N episodes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import nn

from agents import Agent, Batch, Policy, Rollout
from agents.policies.base import score_norms
from agents.policies.choosing import choose


@dataclass(frozen=True)
class World:
    """All sequences of at most T of V tokens.

    Args:
        tokens: V.
        steps: T.
        end: the token that ends a sequence early; None: all have T tokens.
    """

    tokens: int
    steps: int
    end: int | None = None

    @cached_property
    def prefixes(self) -> list[tuple[int, ...]]:
        """What can stand before a token, shortest first: S."""
        inner = [token for token in range(self.tokens) if token != self.end]
        return [prefix for t in range(self.steps) for prefix in itertools.product(inner, repeat=t)]

    @cached_property
    def completions(self) -> list[tuple[int, ...]]:
        """The finished sequences: C."""
        longer = [(*prefix, token) for prefix in self.prefixes for token in range(self.tokens)]
        return [sequence for sequence in longer if sequence[-1] == self.end or len(sequence) == self.steps]

    @cached_property
    def paths(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The completions as numbers of prefixes, tokens and a mask, each [C, T]."""
        lengths = torch.tensor([len(sequence) for sequence in self.completions])
        mask = torch.arange(self.steps) < lengths[:, None]
        states, actions = torch.zeros_like(mask, dtype=torch.int64), torch.zeros_like(mask, dtype=torch.int64)
        for c, t in mask.nonzero().tolist():
            sequence = self.completions[c]
            states[c, t], actions[c, t] = self.prefixes.index(sequence[:t]), sequence[t]
        return states, actions, mask

    @cached_property
    def following(self) -> np.ndarray:
        """The number of the prefix that a token leads to, [S, V]; -1 where the sequence is finished."""
        numbers = {prefix: number for number, prefix in enumerate(self.prefixes)}
        longer = [[(*prefix, token) for token in range(self.tokens)] for prefix in self.prefixes]
        return np.array([[numbers.get(sequence, -1) for sequence in row] for row in longer])

    def at_the_end(self, rewards: torch.Tensor) -> torch.Tensor:
        """Return rewards [..., S, V] of the tokens that finish the completions with these rewards [..., C]."""
        table = rewards.new_zeros(*rewards.shape[:-1], len(self.prefixes), self.tokens)
        states, actions, mask = self.paths
        last = mask.sum(1, keepdim=True) - 1  # [C, 1]
        table[..., states.gather(1, last)[:, 0], actions.gather(1, last)[:, 0]] = rewards
        return table

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return log π(y) of every completion [C] under a table of logits [S, V], differentiable."""
        states, actions, mask = self.paths
        return logits.log_softmax(-1)[states, actions].where(mask, 0).sum(1)


class TablePolicy(Policy):
    """One logit vector and one value for every prefix, in float64.

    With R copies of the table, an episode of copy r sees r·S + s in state s and moves the logits of that copy only: one
    backward pass over many rollouts, each with its own copy, gives the gradient of each.

    Args:
        logits: [S, V].
        copies: R.
    """

    kind = "table"
    is_categorical = True
    defaults = {"gamma": 1.0, "learning_rate": 0.05, "episodes_per_update": 4, "num_envs": 4}

    def __init__(self, logits: torch.Tensor, copies: int = 1) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.detach().double().repeat(copies, 1, 1))  # [R, S, V]
        self.table = nn.Parameter(self.logits.new_zeros(self.logits.shape[:2]))  # [R, S]

    def _log_pi(self, obs: torch.Tensor) -> torch.Tensor:
        return self.logits.flatten(0, 1)[obs].log_softmax(-1)  # [..., V]

    def act(
        self,
        obs: Any,
        state: None,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        playing: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Return actions, their log-probabilities and None."""
        log_pi = self._log_pi(obs)
        return *choose(log_pi, deterministic, generator), None

    def evaluate_actions(self, rollout: Rollout, entropy: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities and entropies [N, T]."""
        assert isinstance(rollout.observations, torch.Tensor)
        log_pi = self._log_pi(rollout.observations)  # [N, T, V]
        log_probs = log_pi.gather(2, rollout.actions[..., None])[..., 0]
        entropies = -(log_pi.exp() * log_pi).sum(-1)
        return log_probs.where(rollout.mask, 0), entropies.where(rollout.mask, 0)

    @torch.no_grad()
    def score_norms(self, rollout: Rollout) -> torch.Tensor:
        """Return |∇ log π(a)|² in the logits [N, T]."""
        assert isinstance(rollout.observations, torch.Tensor)
        return score_norms(self._log_pi(rollout.observations), rollout.actions).where(rollout.mask, 0)

    def predict_values(self, rollout: Any) -> torch.Tensor:
        """Return the values [N, T]."""
        assert isinstance(rollout.observations, torch.Tensor)
        return self.table.flatten()[rollout.observations].where(rollout.mask, 0)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the table of values."""
        return [self.table]


class WorldEnv(VectorEnv):
    """The world as a vector environment of P prompts, which the groups of K episodes take in turn.

    An observation is the number p·S + s of prompt p and prefix s.

    Args:
        world: what can be said.
        rewards: of each token after each prefix [P, S, V].
        num_envs: B.
        group_size: K. None: the agent is told of no groups and makes its own.
    """

    def __init__(self, world: World, rewards: torch.Tensor, num_envs: int = 1, group_size: int | None = None) -> None:
        groups = {"group_size": group_size, "traits": {"groups_span_slots": True}} if group_size else {}
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, **groups}
        self.num_envs, self.group_size = num_envs, group_size
        self.following, self.rewards = world.following, rewards.numpy()
        self.prompts, self.states, tokens = rewards.shape
        self.single_observation_space = spaces.Discrete(self.prompts * self.states)
        self.single_action_space = spaces.Discrete(tokens)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state = np.zeros(num_envs, dtype=np.int64)
        self.group = np.zeros(num_envs, dtype=np.int64)
        self.started = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes, in all slots or in those of `options["reset_mask"]`."""
        slots = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        self.group[slots] = (self.started + np.arange(len(slots))) // (self.group_size or 1)
        self.started += len(slots)
        self.state[slots] = self.group[slots] % self.prompts * self.states
        return self.state.copy(), {"group": self.group.copy()} if self.group_size else {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Append a token to every slot's sequence."""
        prompt, state = np.divmod(self.state, self.states)
        following = self.following[state, actions]
        done = following < 0
        self.state = np.where(done, self.state, prompt * self.states + following)
        return self.state.copy(), self.rewards[prompt, state, actions], done, np.zeros_like(done), {}


def make_agent(cls: type[Agent], world: World, logits: torch.Tensor, copies: int = 1, **settings: Any) -> Agent:
    """Return a real agent with a table of logits [S, V], for rollouts made by hand."""
    silent = torch.zeros(1, len(world.prefixes), world.tokens)
    return cls(TablePolicy(logits, copies), WorldEnv(world, silent), device="cpu", **settings)


def episodes(
    policy: Policy, world: World, completions: torch.Tensor, rewards: torch.Tensor, copies: torch.Tensor
) -> Rollout:
    """Return the rollout in which these completions were sampled.

    Args:
        policy: which sampled them.
        world: whose completions they are.
        completions: their numbers [N].
        rewards: their rewards [N].
        copies: the copy of the policy that each was sampled from, which is also its group [N].
    """
    states, actions, mask = (part[completions] for part in world.paths)  # [N, T]
    last = torch.arange(world.steps) == mask.sum(1, keepdim=True) - 1
    made = Rollout.of_demonstrations(copies[:, None] * len(world.prefixes) + states, actions, mask)
    made = replace(made, rewards=rewards.double()[:, None] * last, groups=copies)
    with torch.no_grad():
        return replace(made, log_probs=policy.evaluate_actions(made)[0])


def gradients(agent: Agent, prepared: Batch) -> torch.Tensor:
    """Return the direction of ascent that the agent's loss gives each copy of its policy's table [R, S, V]."""
    assert isinstance(agent.policy, TablePolicy)
    agent.policy.zero_grad(set_to_none=True)
    agent.loss(prepared)[0].backward()
    assert agent.policy.logits.grad is not None
    return -agent.policy.logits.grad


# From the definitions, with none of the agents' code in them.


def exact_gradient(world: World, logits: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """Return ∇ Σ_y π(y) R(y) by automatic differentiation through the sum [S, V]."""
    logits = logits.detach().double().requires_grad_()
    return torch.autograd.grad((world.log_probs(logits).exp() * rewards).sum(), logits)[0]


def scores(world: World, logits: torch.Tensor) -> torch.Tensor:
    """Return ∇ log π(y) of every completion [C, S·V]: Σ_t, at prefix s_t, of (one-hot of a_t) - π(· | s_t)."""
    states, actions, mask = world.paths
    pi = logits.detach().double().softmax(-1)
    out = pi.new_zeros(len(world.completions), *pi.shape)
    for c, t in mask.nonzero().tolist():
        out[c, states[c, t]] -= pi[states[c, t]]
        out[c, states[c, t], actions[c, t]] += 1
    return out.flatten(1)
