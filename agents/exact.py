"""The exact check of an agent's gradient: every rollout of a small world, weighed by its probability.

P prompts, S prefixes and C completions of each, V tokens, T steps, K episodes per group, N per rollout.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
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
from .training.sb3_face import as_callback

MOST_ROLLOUTS = 5_000  # 3 ms each, with several rounds 10
TOLERANCE = 1e-6  # rollouts have numbers in float32


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

    @cached_property
    def turn_ends(self) -> torch.Tensor:
        """Which tokens end a turn, bool [S, V]."""
        return torch.tensor([[self.ends((*prefix, t))[0] for t in range(self.tokens)] for prefix in self.prefixes])

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


def true_gradient(world: World, logits: torch.Tensor, rewards: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the gradient of `World.expectation` by automatic differentiation through the sum [..., S, V]."""
    logits = logits.detach().double().requires_grad_()
    return torch.autograd.grad(world.expectation(logits, rewards, gamma), logits)[0]


class _Draws:
    """The tokens that one rollout samples: those that it is told to, then the first one of the vocabulary."""

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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes, in all slots or in those of `options["reset_mask"]`; see `EnvTraits.reset_options`."""
        mask, groups = ((options or {}).get(name) for name in ("reset_mask", "groups"))
        if mask is None:  # a rollout begins, with a group of its own
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
    agent.policy.zero_grad(set_to_none=True)
    agent.loss(prepared)[0].backward()
    logits = agent.policy.get_parameter("logits")
    return torch.zeros_like(logits.data) if logits.grad is None else -logits.grad


def every_rollout(agent: Agent) -> Iterator[tuple[Any, Rollout, _Draws]]:
    """Yield every rollout of an agent: a fresh copy of the agent that collected it, the rollout, what was drawn for it.

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


@dataclass(frozen=True)
class GradientCheck:
    """An agent's expected gradient g beside the true one g*.

    Attributes:
        error: |g - g*| / |g*|.
        direction: the cosine between g and g*; 0 without a gradient.
        scale: ⟨g, g*⟩ / ⟨g*, g*⟩.
        noise: the variance of one rollout's gradient, divided by |g*|².
        rollouts: how many there are.
    """

    error: float
    direction: float
    scale: float
    noise: float
    rollouts: int

    @property
    def meaning(self) -> str:
        """The figures in words."""
        if not math.isfinite(self.error):
            return "not finite"
        if self.error <= TOLERANCE:
            return "unbiased"
        if self.direction == 0:
            return "no gradient"
        if self.error**2 - (self.scale - 1) ** 2 <= TOLERANCE**2 and self.scale > 0:
            return f"right direction, scaled by {self.scale:.3g}"
        angle = f"{math.degrees(math.acos(max(-1.0, min(self.direction, 1.0)))):.1f}° off"
        return f"points elsewhere, {angle}" if self.direction > 0 else f"points away from the true gradient, {angle}"

    def __str__(self) -> str:
        """Return one line."""
        figures = f"error {self.error:.3f}   direction {self.direction:.3f}   noise {self.noise:.1f}"
        return f"{figures}   {self.meaning}"


def _compared(agent: Agent, true: torch.Tensor) -> GradientCheck:
    """Return the comparison of an agent's expected gradient with the true one [P, S, V]."""
    if float(true.norm()) < 1e-12:
        raise ValueError("the true gradient is 0: answers must earn different rewards")
    mean, squares, total, count = torch.zeros_like(true), 0.0, 0.0, 0
    for played, rollout, draws in every_rollout(agent):
        scaled = played.updater.reward_scale(rollout) if played.normalize_rewards else rollout
        found = gradient(played, played.prepare(scaled))
        chance = math.exp(draws.log_prob)  # also of what `prepare` replayed
        mean += chance * found
        squares += chance * float(found.square().sum())
        total, count = total + chance, count + 1
        _check_count(count)
    if abs(total - 1) > TOLERANCE:
        name = type(agent).__name__
        raise ValueError(f"the probabilities of all rollouts add up to {total:g}: {name} collects by other means, too")
    size, norm, dot = float(true.norm()), float(mean.norm()), float((mean * true).sum())
    return GradientCheck(
        error=float((mean - true).norm()) / size,
        direction=dot / (norm * size) if norm > TOLERANCE * size else 0.0,
        scale=dot / size**2,
        noise=(squares - norm**2) / size**2,
        rollouts=count,
    )


def _check_count(rollouts: int) -> None:
    if rollouts > MOST_ROLLOUTS:
        hint = "take fewer episodes, tokens or steps; with dynamic sampling, fewer max_rounds"
        raise ValueError(f"there are more than {MOST_ROLLOUTS} rollouts: {hint}")


def check_gradient(
    cls: type[Agent],
    group_size: int = 3,
    episodes: int | None = None,
    world: World = World(tokens=3, steps=2, end=0),
    rewards: torch.Tensor | Sequence[float] | None = None,
    seed: int = 0,
    **settings: Any,
) -> GradientCheck:
    """Compare the expectation of an agent's gradient over every possible rollout with the true gradient.

        g = Σ_rollouts p(rollout) · -∇ loss(rollout)        g* = ∇ E[Σ_t γ^t r_t]

    Each rollout is collected, prepared and differentiated by itself, with the agent's own methods and fresh statistics,
    and has one group of each prompt. What an agent draws by other means than its policy is drawn once.

    Args:
        cls: of the agent; it may override `collect_rollout`.
        group_size: K.
        episodes: N, of one collection; K if omitted.
        world: of each prompt.
        rewards: of the completions [C], or of each prompt's [P, C]. By default random ones from 0 to 1, at the end of
            every turn.
        seed: of the policy's logits and of the rewards.
        settings: of the agent; the discount of the true gradient is its `gamma`, 1 if omitted.

    Raises:
        ValueError: for more than `MOST_ROLLOUTS` rollouts, an agent that learns from a teacher, rewards that are all
            equal, or bad settings.
    """
    if cls.needs_teacher:
        raise ValueError(f"{cls.__name__} learns from a teacher, not from rewards, so no true gradient is known for it")
    episodes = group_size if episodes is None else episodes
    _check_count(len(world.completions) ** episodes)
    generator = torch.Generator().manual_seed(seed)
    shape = (max(episodes // group_size, 1), len(world.prefixes), world.tokens)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    if rewards is None:
        ends = world.turn_ends.expand(shape)
        drawn = torch.rand(int(ends.sum()), generator=generator, dtype=torch.float64)
        table = torch.zeros(shape, dtype=torch.float64).masked_scatter(ends, drawn)
    else:
        table = world.at_the_end(torch.as_tensor(rewards, dtype=torch.float64)).expand(shape)
    table = table.float().double()  # rollouts keep rewards in float32
    env = WorldEnv(world, table, group_size=group_size)
    env.metadata["max_episode_steps"] = world.steps * world.turns
    agent = cls(TablePolicy(logits), env, device="cpu", group_size=group_size, episodes_per_update=episodes, **settings)
    agent.anchor.freeze_reference(agent.policy)
    return _compared(agent, true_gradient(world, logits, table, agent.gamma))
