"""A world small enough to enumerate: 2 prompts, 3 tokens (one ends the episode), at most 3 steps, 15 completions.

It is a world of `rlenv.agents.exact`. Every prefix of a prompt is a state with a logit vector of its own, so every
expectation is a finite sum. Two kinds of functions live here: `expected_gradient`, which sends every possible group
through the real agent at once, and the closed forms that it is compared with, which share no code with the algorithms.

P prompts, S states a prompt, V tokens, C completions, T steps, K episodes a group.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from rlenv.agents import Agent, ReinforceBaseline, Rollout, exact
from rlenv.agents.exact import TablePolicy, World, WorldEnv, gradient

P, V, T, EOS = 2, 3, 3, 2
WORLD = World(V, T, end=EOS)
PREFIXES, COMPLETIONS = WORLD.prefixes, WORLD.completions
S, C = len(PREFIXES), len(COMPLETIONS)  # 7, 15
STATES, ACTIONS, MASK = WORLD.paths  # [C, T]
NEXT = WORLD.following  # [S, V]
completion_log_probs, expectation = WORLD.log_probs, WORLD.expectation

LEVELS = torch.tensor(  # of the completions [P, C]: the first prompt is easy, the second is hard
    [[0.5, 1, 0, 1, 1, 0.5, 1, 0, 1, 0.5, 1, 1, 0, 1, 0.5], [0, 0, 0, 0, 0.5, 0, 0, 1, 0, 0, 0, 0.5, 0, 0, 0]],
    dtype=torch.float64,
)
RUNNING_MEAN = torch.tensor([0.4, -0.3, 0.7], dtype=torch.float64)  # a state for the running mean [T]
REFERENCE_SEED = 7
# Rewards of (prompt, state, action) [P, S, V]: at the last step only, and at every step, in three levels again.
AT_THE_END = WORLD.at_the_end(LEVELS)
AT_EVERY_STEP = (torch.arange(P * S * V).reshape(P, S, V) * 5 % 3).double() / 2
AT_EVERY_STEP = AT_EVERY_STEP.where(torch.from_numpy(NEXT >= 0), AT_THE_END)
REWARDS = {"reward at the end": AT_THE_END, "reward at every step": AT_EVERY_STEP}
SOLVED = (AT_THE_END == 1).double()  # rewards of 0 and 1


class TabularPolicy(TablePolicy):
    """One logit vector and one value per (prompt, prefix), in float64; an observation is the number p * S + s."""

    kind = "tabular"
    defaults = {**TablePolicy.defaults, "learning_rate": 1e-2}

    def __init__(self, seed: int = 0) -> None:
        super().__init__(torch.zeros(P, S, V))
        generator = torch.Generator().manual_seed(seed)
        self.logits.data = torch.randn(P, S, V, generator=generator, dtype=torch.float64) * 0.8
        self.table.data = torch.randn(P, S, generator=generator, dtype=torch.float64)

    def hinted(self, rollout: Rollout, metadata: Any, most: int) -> Rollout:
        """Return the rollout with a teacher that reads the other prompt, in episodes of other lengths than 2."""
        prompts, states = rollout.observations // S, rollout.observations % S
        return rollout.with_extras(hinted=(P - 1 - prompts) * S + states, taught=rollout.lengths != 2)


class Told(TabularPolicy):
    """Has a hint for every episode."""

    def hinted(self, rollout: Rollout, metadata: Any, most: int) -> Rollout:
        hinted = super().hinted(rollout, metadata, most)
        return rollout.with_extras(hinted=hinted.extras["hinted"])


def reading_the_other_prompt(policy: TabularPolicy) -> TabularPolicy:
    """Return the policy that says after each prompt what this one says after the other."""
    twin = copy.deepcopy(policy)
    twin.logits.data = twin.logits.flip(0)
    return twin


def tiny_world(group_size: int = 2) -> WorldEnv:
    """Return the same world as an environment: groups of K episodes take turns between the prompts."""
    return WorldEnv(WORLD, AT_THE_END, num_envs=4, group_size=group_size)


def make_agent(
    cls: type[Agent] = ReinforceBaseline,
    group_size: int = 2,
    policy: type[TabularPolicy] = TabularPolicy,
    **settings: Any,
) -> Agent:
    """Return a real agent on the tiny world, with a reference of its own and a running mean that is under way."""
    agent = cls(policy(), tiny_world(group_size), device="cpu", **settings)
    agent.anchor.freeze_reference(policy(REFERENCE_SEED))
    if settings.get("baseline") == "running-mean":
        agent.subtracted.load_state_dict({"mean": RUNNING_MEAN})
    return agent


# Every rollout there is, through the real agent.


def episodes(
    policy: TabularPolicy, rewards: torch.Tensor, prompts: torch.Tensor, completions: torch.Tensor, groups: torch.Tensor
) -> Rollout:
    """Return the episodes in which these completions [N] were sampled after these prompts [N], beside a greedy one."""
    steps = rewards[prompts[:, None], STATES[completions], ACTIONS[completions]]  # [N, T]
    extras = {"greedy_return": greedy_returns(policy, rewards)[prompts]}
    return replace(exact.episodes(policy, WORLD, completions, steps, prompts), groups=groups, extras=extras)


def greedy_returns(policy: TabularPolicy, rewards: torch.Tensor) -> torch.Tensor:
    """Return the sum of rewards of each prompt's likeliest tokens, one after the other [P]."""
    return WORLD.values(1e9 * policy.logits.detach(), rewards)[:, 0]


def random_episodes(
    policy: TabularPolicy, groups: int = 6, size: int = 4, rewards: torch.Tensor = AT_THE_END, seed: int = 0
) -> Rollout:
    """Return groups of uniformly drawn completions, prompts in turn."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.arange(groups).repeat_interleave(size)  # [N]
    return episodes(policy, rewards, group % P, torch.randint(C, (groups * size,), generator=generator), group)


def multisets(size: int, among: Sequence[int] = range(C)) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield every multiset of completions and in how many orders it can be drawn."""
    for chosen in itertools.combinations_with_replacement(among, size):
        repeats = math.prod(math.factorial(chosen.count(c)) for c in set(chosen))
        yield chosen, math.factorial(size) // repeats


def every_group(policy: TabularPolicy, rewards: torch.Tensor, size: int) -> tuple[Rollout, torch.Tensor]:
    """Return every group of K episodes of every prompt in one rollout, and the probability of each row's group [N]."""
    chosen, orders = zip(*multisets(size), strict=True)
    completions, orders = torch.tensor(chosen), torch.tensor(orders)  # [M, K], [M]
    with torch.no_grad():
        log_probs = completion_log_probs(policy.logits.log_softmax(-1))  # [P, C]
    probability = (orders * log_probs[:, completions].sum(-1).exp()).flatten()  # [P * M]
    groups = torch.arange(len(probability)).repeat_interleave(size)  # [N]
    prompts = groups // len(completions)
    rollout = episodes(policy, rewards, prompts, completions.repeat(P, 1).flatten(), groups)
    return rollout, probability[groups]


def expected_gradient(
    agent: Agent, rewards: torch.Tensor = AT_THE_END, size: int = 1, sampler: TabularPolicy | None = None
) -> torch.Tensor:
    """Return the exact expectation of the gradient of a rollout with one group of K episodes a prompt.

    All groups stand in one rollout: only for advantages that do not look beyond the group. The sampler is the agent's
    policy, or another one.
    """
    rollout, probability = every_group(sampler or agent.policy, rewards, size)
    prepared = agent.prepare(rollout)
    share = len(rollout) / (P * size) * probability  # the agent divided by all rows, a rollout has P * K of them
    return gradient(agent, replace(prepared, weights=prepared.weights * share[:, None]))


# Closed forms, with none of the agents' code in them.


def true_gradient(policy: TabularPolicy, rewards: torch.Tensor = AT_THE_END, gamma: float = 1.0) -> torch.Tensor:
    """Return ∇ of the expected discounted return [P, S, V]."""
    return exact.true_gradient(WORLD, policy.logits, rewards, gamma)


def exact_values(policy: TabularPolicy, rewards: torch.Tensor) -> torch.Tensor:
    """Return V(s) [P, S], constants."""
    return WORLD.values(policy.logits.detach(), rewards)


def objective_gradient(
    policy: TabularPolicy, objective: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], rewards: torch.Tensor
) -> torch.Tensor:
    """Return ∇ of the mean over prompts of an objective of π [C] and R [C] of the completions [P, S, V]."""
    gains = rewards[:, STATES, ACTIONS].where(MASK, 0).sum(-1)  # [P, C]
    pi = completion_log_probs(policy.logits.log_softmax(-1)).exp()
    return derivative(torch.stack([objective(pi[p], gains[p]) for p in range(P)]).mean(), policy)


def truncated_log_likelihood(pi: torch.Tensor, gains: torch.Tensor, order: int) -> torch.Tensor:
    """Return -Σ_{k=1}^{order} (1-p)^k / k, with p = Σ π R: log p is that with every k."""
    wrong = 1 - (pi * gains).sum()
    return -sum((wrong**k / k for k in range(1, order + 1)), torch.zeros(()))


def expected_best(pi: torch.Tensor, gains: torch.Tensor, k: int) -> torch.Tensor:
    """Return E max of the rewards of k completions: Σ_x x (P(R ≤ x)^k - P(R < x)^k); pass@k if they are 0 and 1."""
    return sum((x * (pi[gains <= x].sum() ** k - pi[gains < x].sum() ** k) for x in gains.unique()), torch.zeros(()))


def kl_gradient(policy: TabularPolicy, reference: TabularPolicy) -> torch.Tensor:
    """Return ∇ of -Σ_t E[KL(π(.|s_t) || ref(.|s_t))], which is -KL of whole completions [P, S, V]."""
    log_pi, log_ref = policy.logits.log_softmax(-1), reference.logits.detach().log_softmax(-1)
    joint, ref_joint = completion_log_probs(log_pi), completion_log_probs(log_ref)  # [P, C]
    return -derivative((joint.exp() * (joint - ref_joint)).sum(1).mean(), policy)


def moved_policy(policy: TabularPolicy, seed: int = 5) -> TabularPolicy:
    """Move the policy away from the one that sampled; return that one."""
    sampler = TabularPolicy()
    sampler.logits.data = policy.logits.detach().clone()
    with torch.no_grad():
        policy.logits += 0.4 * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(seed))
    return sampler


def updated_policies(policy: TabularPolicy, updates: int, rate: float) -> list[TabularPolicy]:
    """Return a policy and those after each of some updates: steps along the exact gradient of the expected return."""
    policies = [policy]
    for _ in range(updates):
        policies.append(TabularPolicy())
        policies[-1].logits.data = policies[-2].logits.detach() + rate * true_gradient(policies[-2])
    return policies


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return |found - wanted| / |wanted|, or |found| where nothing is wanted."""
    return float((found - wanted).norm() / (wanted.norm() if wanted.any() else 1.0))


def derivative(objective: torch.Tensor, policy: TabularPolicy) -> torch.Tensor:
    return torch.autograd.grad(objective, policy.logits, retain_graph=True)[0]
