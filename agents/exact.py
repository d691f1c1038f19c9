"""A world of a few answers: every rollout of an agent can be enumerated, and the true gradient is a finite sum.

P prompts, S prefixes and C completions of each, V tokens, T steps, K episodes per group, N per rollout.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import nn

from .policies import Policy
from .policies.choosing import LOG_PROBS, Evaluated, Want, choose, evaluate_choices
from .rollout import Batch, Rollout
from .training.agent import Agent
from .training.callbacks import as_callback
from .training.update import checked_loss

MOST_PREFIXES = 10_000  # of a world


@dataclass(frozen=True)
class World:
    """All dialogues of a few turns of a few tokens.

    Args:
        tokens: V.
        steps: the most tokens of a turn.
        end: the token that ends a turn early; None: all are equally long.
        turns: the most turns; one of the end token alone is the last.
    """

    tokens: int
    steps: int
    end: int | None = None
    turns: int = 1

    def ends(self, sequence: tuple[int, ...]) -> tuple[bool, bool]:
        """Return whether the last token ends a turn, and whether it ends the dialogue."""
        turns = begun = 0
        last = False
        for t, token in enumerate(sequence, 1):
            if token == self.end or t - begun == self.steps:
                turns, last = turns + 1, token == self.end and t - begun == 1
                begun = t
        over = begun == len(sequence)
        return over, over and (last or turns == self.turns)

    @cached_property
    def prefixes(self) -> list[tuple[int, ...]]:
        """The states S, each a prefix of tokens, shortest first."""
        found: list[tuple[int, ...]] = [()]
        for prefix in found:  # grows
            if len(found) + self.tokens > MOST_PREFIXES:
                raise ValueError(f"{self} has more than {MOST_PREFIXES} prefixes; take fewer tokens, steps or turns")
            longer = ((*prefix, token) for token in range(self.tokens))
            found += [sequence for sequence in longer if not self.ends(sequence)[1]]
        return found

    @cached_property
    def completions(self) -> list[tuple[int, ...]]:
        """The finished sequences: C."""
        longer = [(*prefix, token) for prefix in self.prefixes for token in range(self.tokens)]
        return [sequence for sequence in longer if self.ends(sequence)[1]]

    @cached_property
    def paths(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The completions as numbers of prefixes, tokens and a mask, each [C, T]."""
        lengths = torch.tensor([len(sequence) for sequence in self.completions])
        mask = torch.arange(self.steps * self.turns) < lengths[:, None]
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
        table[..., torch.from_numpy(self.following < 0)] = rewards
        return table

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return log π(y) of every completion [..., C] under tables of logits [..., S, V], differentiable."""
        states, actions, mask = self.paths
        return logits.log_softmax(-1)[..., states, actions].where(mask, 0).sum(-1)

    def expectation(self, logits: torch.Tensor, rewards: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
        """Return Σ_y π(y) Σ_t γ^t r(s_t, a_t), a mean over prompts, differentiable in both tables [..., S, V]."""
        states, actions, mask = self.paths
        discount = gamma ** torch.arange(mask.shape[1], dtype=torch.float64)
        gains = (rewards[..., states, actions].where(mask, 0) * discount).sum(-1)  # [..., C]
        return (self.log_probs(logits).exp() * gains).sum(-1).mean()

    def values(self, logits: torch.Tensor, rewards: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
        """Return the expected return from every prefix on [..., S], given two tables [..., S, V]."""
        pi, found = logits.softmax(-1), torch.zeros_like(logits[..., 0])
        for s in reversed(range(len(self.prefixes))):  # longest first
            following = torch.from_numpy(self.following[s])
            later = found[..., following.clamp(min=0)].where(following >= 0, 0)  # [..., V]
            found[..., s] = (pi[..., s, :] * (rewards[..., s, :] + gamma * later)).sum(-1)
        return found


def true_gradient(world: World, logits: torch.Tensor, rewards: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the gradient of `World.expectation` by automatic differentiation through the sum [..., S, V]."""
    logits = logits.detach().double().requires_grad_()
    return torch.autograd.grad(world.expectation(logits, rewards, gamma), logits)[0]


class _Draws:
    """The tokens that one rollout samples: the given ones, then always the first one of the vocabulary."""

    def __init__(self, told: list[int]) -> None:
        self.tokens, self.taken, self.log_prob = list(told), 0, 0.0

    def __deepcopy__(self, memo: Any) -> _Draws:
        return self  # also for copies of the policy

    def take(self, log_pi: torch.Tensor) -> torch.Tensor:
        """Return tokens [B], given the log-probabilities of all [B, V]."""
        self.tokens += [0] * (self.taken + len(log_pi) - len(self.tokens))
        tokens = torch.tensor(self.tokens[self.taken : self.taken + len(log_pi)])
        self.taken += len(log_pi)
        self.log_prob += float(log_pi.gather(1, tokens[:, None]).sum())
        return tokens


class TablePolicy(Policy):
    """One logit vector and one value for every prefix of every prompt, in float64.

    Args:
        logits: [P, S, V], or [S, V] of one prompt; prompt p in state s is observed as the number p·S + s.
    """

    kind = "table"
    is_categorical = True
    draws: _Draws | None = None  # where samples come from, instead of a generator
    defaults = {"gamma": 1.0, "learning_rate": 0.05, "episodes_per_update": 4, "num_envs": 4}

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.detach().double().view(-1, *logits.shape[-2:]).clone())  # [P, S, V]
        self.table = nn.Parameter(self.logits.new_zeros(self.logits.shape[:2]))  # [P, S]

    def _log_pi(self, obs: Any) -> torch.Tensor:
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
        if self.draws is None or deterministic:
            return *choose(log_pi, deterministic, generator), None
        actions = self.draws.take(log_pi)
        return actions, log_pi.gather(1, actions[:, None])[:, 0], None

    def evaluate(self, rollout: Rollout, want: Want = LOG_PROBS, reference: Self | None = None) -> Evaluated:
        """Return the wanted quantities [N, T]."""
        theirs = None if reference is None else reference._log_pi(rollout.as_taught.observations)
        return evaluate_choices(self._log_pi(rollout.observations), rollout.actions, want, theirs, rollout.mask)

    def values(self, rollout: Any) -> torch.Tensor:
        """Return the values [N, T]."""
        return self.table.flatten()[rollout.observations].where(rollout.mask, 0)

    @property
    def critic(self) -> nn.ParameterList:
        """The table of values."""
        return nn.ParameterList([self.table])


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
        traits = {"groups_span_slots": True, "reset_options": ("groups",)}
        groups = {"group_size": group_size, "traits": traits} if group_size else {}
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, **groups}
        self.num_envs, self.group_size = num_envs, group_size
        self.following, self.rewards = world.following, rewards.numpy()
        self.prompts, self.states, tokens = rewards.shape
        self.single_observation_space = spaces.Discrete(self.prompts * self.states)
        self.single_action_space = spaces.Discrete(tokens)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state, self.group = np.zeros((2, num_envs), dtype=np.int64)
        self.started = 0
        self.again: Iterator[int] | None = None  # groups that are posed again

    def __deepcopy__(self, memo: dict[int, Any]) -> WorldEnv:
        made = memo[id(self)] = copy.copy(self)  # every rollout has a copy, and spaces and rewards never change
        made.state, made.group, made.again = copy.deepcopy((self.state, self.group, self.again), memo)
        return made

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in the slots of `options["reset_mask"]`, by default all; see `EnvTraits.reset_options`."""
        mask, groups = ((options or {}).get(name) for name in ("reset_mask", "groups"))
        if mask is None:  # a rollout begins, with a new group
            mask = np.ones(self.num_envs, dtype=bool)
            self.again = None if groups is None else chain(groups, repeat(groups[-1]))
            self.started += -self.started % (self.group_size or 1)
        slots = np.flatnonzero(mask)
        if self.again is None:
            self.group[slots] = (self.started + np.arange(len(slots))) // (self.group_size or 1)
            self.started += len(slots)
        else:
            self.group[slots] = [next(self.again) for _ in slots]
        self.state[slots] = self.group[slots] % self.prompts * self.states
        return self.state.copy(), {"group": self.group.copy()} if self.group_size else {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Append a token to every slot's sequence."""
        prompt, state = np.divmod(self.state, self.states)
        following = self.following[state, actions]
        done = following < 0
        self.state = np.where(done, self.state, prompt * self.states + following)
        return self.state.copy(), self.rewards[prompt, state, actions], done, np.zeros_like(done), {}


def episodes(
    policy: Policy, world: World, completions: torch.Tensor, rewards: torch.Tensor, prompts: torch.Tensor
) -> Rollout:
    """Return the rollout in which a policy sampled these completions, with the prompts as groups.

    Args:
        policy: which sampled them.
        world: whose completions they are.
        completions: their numbers [N].
        rewards: of the last token of each [N], or of all tokens [N, T].
        prompts: of each completion [N].
    """
    states, actions, mask = (part[completions] for part in world.paths)  # [N, T]
    if rewards.ndim == 1:
        rewards = rewards[:, None] * (torch.arange(mask.shape[1]) == mask.sum(1, keepdim=True) - 1)
    made = Rollout.of_demonstrations(prompts[:, None] * len(world.prefixes) + states, actions, mask)
    made = replace(made, rewards=rewards.double().where(mask, 0), groups=prompts)
    with torch.no_grad():
        return replace(made, log_probs=policy.evaluate(made)["log_probs"])


def gradient(agent: Agent, prepared: Batch) -> torch.Tensor:
    """Return the direction in which the agent's loss moves the logits of its policy's table [P, S, V]."""
    return ascent(agent, checked_loss(agent, agent.loss(prepared))[0])


def ascent(agent: Agent, loss: torch.Tensor) -> torch.Tensor:
    """Return the direction in which a loss moves the logits of the policy's table [P, S, V]; 0 without a gradient."""
    agent.policy.zero_grad(set_to_none=True)
    if loss.requires_grad:
        loss.backward()
    return direction(agent)


def direction(agent: Agent) -> torch.Tensor:
    """Return the direction of the step that the present gradient makes [P, S, V]."""
    logits = agent.policy.get_parameter("logits")
    return torch.zeros_like(logits.data) if logits.grad is None else -logits.grad


def every_rollout(agent: Agent) -> Iterator[tuple[Any, Rollout, _Draws]]:
    """Yield every rollout of an agent: the fresh copy of the agent that collected it, the rollout, and its draws.

    Args:
        agent: with a `TablePolicy`; it is left as it is.
    """
    told: list[int] = []
    while True:
        played: Any = copy.deepcopy(agent)
        draws = played.policy.draws = _Draws(told)
        rollout = played.collect_rollout(as_callback(None, played))
        rollout = replace(rollout, rewards=rollout.rewards.double(), log_probs=rollout.log_probs.double())
        yield played, rollout, draws
        told = draws.tokens
        while told and told[-1] == played.policy.logits.shape[-1] - 1:
            told.pop()
        if not told:
            return
        told[-1] += 1


def without_draws(agent: Agent) -> Agent:
    """Return a copy of the agent that samples with its generator again."""
    played: Any = copy.deepcopy(agent)
    played.policy.draws = None
    return played
