"""Checks beyond the gradient at a ratio of 1: an agent's own passes, ratios away from 1, clips, idle rows.

Each is compared, on some rollouts, with exact PPO's surrogate, with the agent's own advantages and weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from .estimators import clipping, gates
from .exact import ascent, direction, gradient, without_draws
from .policies.choosing import LOG_PROBS
from .rollout import Batch, Rollout
from .training.agent import Agent
from .training.algorithm import Algorithm
from .training.proximal import ProximalAgent
from .training.update import backward, may_be_idle

USUAL_BOUNDS = (0.2, 0.2, None)  # of agents without a clip range
TOLERANCE = 1e-6
ALL, SOME, NONE, UNSEEN = "all", "some", "none", "unseen"


@dataclass(frozen=True)
class UpdateCheck:
    """The updates of an agent beside exact PPO's, the surrogate ρ A, clipped outside the same range.

    Attributes:
        rollouts: how many were looked at.
        steps: optimizer steps per update; with one, the ratio stays 1.
        clip_range: the lowest and the highest ratio inside, PPO's usual ones for agents that have none.
        reached: the lowest and the highest ratio of the agent's own optimizer steps.
        off_ppo: |g - g'| / |g'| of the gradients g of these steps and exact PPO's g', over all of them.
        inside: |c - ρ A| / |ρ A| of the derivatives c in each log-probability, at random ratios inside the range.
        has_penalty: whether some of c stays if all advantages are set to 0, at these ratios only.
        has_term: whether it also stays at a ratio of 1: a separate term beside the advantage.
        stops: which steps have no gradient outside: of those that PPO clips, and of the others.
        faults: contradictions to the declarations of the agent's class, in words.
    """

    rollouts: int
    steps: int
    clip_range: tuple[float, float]
    reached: tuple[float, float]
    off_ppo: float
    inside: float
    has_penalty: bool
    has_term: bool
    stops: tuple[str, str]
    faults: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line."""
        if self.steps == 1:
            return "one step per update, so the ratio stays 1"
        low, high = (f"{ratio:.5g}" for ratio in self.clip_range)
        inside = "PPO's gradient" if self.inside <= TOLERANCE else f"{_percent(self.inside)} off PPO's"
        outside = {ALL: "none", SOME: "none in some steps", NONE: "it goes on", UNSEEN: "not seen"}[self.stops[0]]
        least, most = (f"{ratio:.2f}" for ratio in self.reached)
        own = f"own {self.steps} steps, at {least} to {most}, {_percent(self.off_ppo)} off PPO's"
        return f"ratios {low} to {high}: {inside}; outside: {outside}; {own}"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.1 else 2}{'f' if share > 0.1 else 'g'}}%"


def check_update(agent: Agent, rollouts: Sequence[Rollout]) -> UpdateCheck:
    """Return the check of an agent's passes, ratios and claims on some rollouts that it collected.

    Args:
        agent: with a `TablePolicy`; it is left as it is.
        rollouts: of the policy as it is, in float64.
    """
    agent = without_draws(agent)
    counts, faults_of_parts = zip(*(_look_at_parts(agent, rollout) for rollout in rollouts), strict=True)
    steps = max(counts)
    own, ratios = _Steps(steps > 1), _Ratios()
    for seed, rollout in enumerate(rollouts):
        own.follow(agent, rollout)
        own.follow(agent, _first_group_unpaid(rollout))
        ratios.look(agent, rollout, seed)
    faults = [fault for fault in faults_of_parts if fault][:1]
    faults += ["wrong claim: advantages_stay, but rows with A = 0 have a gradient"] * own.is_wrong
    faults += ["later steps forget the policy before the update: the old log-probabilities change"] * own.forgets
    stops = _how_many(ratios.clipped), _how_many(ratios.others)
    if steps > 1:
        faults += _fault_of_clips(*stops, isinstance(agent, ProximalAgent))
    low, high, _ = _bounds_of(agent)
    return UpdateCheck(
        rollouts=len(rollouts),
        steps=steps,
        clip_range=(1 - low, 1 + high),
        reached=(own.lowest, own.highest),
        off_ppo=math.sqrt(own.off / max(own.size, 1e-30)),
        inside=math.sqrt(ratios.off / max(ratios.size, 1e-30)),
        has_penalty=steps > 1 and ratios.has_penalty and not ratios.has_term,
        has_term=ratios.has_term,
        stops=stops,
        faults=tuple(faults),
    )


def _first_group_unpaid(rollout: Rollout) -> Rollout:
    """Return the rollout with rewards of 0 in one group; most agents then give it advantages of 0."""
    return replace(rollout, rewards=rollout.rewards.where((rollout.groups != rollout.groups[0])[:, None], 0))


def _how_many(stopped: list[bool]) -> str:
    return UNSEEN if not stopped else ALL if all(stopped) else SOME if any(stopped) else NONE


def _fault_of_clips(clipped: str, others: str, is_proximal: bool) -> list[str]:
    if UNSEEN in (clipped, others):
        return []
    goes_on = clipped != ALL if is_proximal else clipped == NONE
    if others != NONE:
        return ["clips the wrong way" if goes_on else "clips both ways: also steps that move back into the range"]
    if is_proximal and goes_on:
        return ["does not clip: steps outside the range that move further out have a gradient"]
    return []


def _bounds_of(agent: Any) -> tuple[float, float, float | None]:
    """Return how far the ratio may fall and rise, and as what it counts at most in bad steps."""
    return agent.bounds if isinstance(agent, ProximalAgent) else USUAL_BOUNDS


@contextmanager
def _with_surrogate(agent: Any, surrogate: Any) -> Iterator[Any]:
    """Yield the default loss with another surrogate, also for an agent with its own `loss`."""
    agent.surrogate = surrogate
    try:
        yield partial(Algorithm.loss, agent)
    finally:
        del agent.surrogate


def _clipped_ratio(low: float, high: float, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
    return clipping.clipped_ratio(log_probs, batch.log_probs, batch.advantages, low, high)


def _ratio(log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
    return gates.ratio(log_probs, batch.log_probs, batch.advantages)


# The parts of all passes, at unchanged parameters.


def _look_at_parts(agent: Agent, rollout: Rollout) -> tuple[int, str]:
    """Return the steps of an update, and the fault if their mean is not the gradient of the whole rollout, or ""."""
    agent = copy.deepcopy(agent)
    prepared = agent.prepare(rollout)
    labels = torch.arange(len(prepared), dtype=torch.float64)
    batches = list(agent.batches(replace(prepared, success=labels)))  # a number that stays with its episode
    whole = gradient(agent, prepared)
    mean = sum((gradient(agent, batch) for batch in batches), torch.zeros_like(whole)) / len(batches)
    counted = torch.zeros_like(labels)
    for batch in batches:
        counted.index_add_(0, batch.success.long(), batch.weights.where(batch.learnable, 0).sum(1))
    due = prepared.weights.where(prepared.learnable, 0).sum(1)
    shares = counted[due > 0] / due[due > 0] / len(batches)
    return len(batches), _fault_of_shares(shares, len(batches)) or _fault_of_mean(mean, whole)


def _fault_of_shares(shares: torch.Tensor, steps: int) -> str:
    trained = int((shares > 0).sum())
    if trained < len(shares):
        return f"trains on {trained} of {len(shares)} episodes, in {steps} steps"
    if len(shares) and float((shares - 1).abs().max()) > TOLERANCE:
        times = " to ".join(dict.fromkeys(f"{float(share):.3g}" for share in (shares.min(), shares.max())))
        return f"the batches weigh episodes {times} times as much as the rollout does"
    return ""


def _fault_of_mean(mean: torch.Tensor, whole: torch.Tensor) -> str:
    off, size = float((mean - whole).norm()), float(whole.norm())
    return f"the batches add up to another gradient: error {off / size:.2g}" if off > TOLERANCE * size > 0 else ""


# The optimizer steps of an update as it is.


@dataclass
class _Steps:
    """The steps of some updates, each beside exact PPO's at the same weights."""

    several: bool  # steps per update, which move the ratio away from 1
    lowest: float = 1.0
    highest: float = 1.0
    off: float = 0.0  # Σ |g - g'|²
    size: float = 0.0  # Σ |g'|²
    is_wrong: bool = False  # that rows with A = 0 have no gradient
    forgets: bool = False  # whether later steps compare with other log-probabilities than those before the first

    def follow(self, agent: Agent, rollout: Rollout) -> None:
        """Make an update of a copy of the agent."""
        played = copy.deepcopy(agent)
        batches = played.batches
        played.batches = lambda batch: self.looked(played, batch, batches)  # type: ignore[method-assign]
        played.update(rollout)

    def looked(self, agent: Agent, prepared: Batch, batches: Callable[[Batch], Iterator[Batch]]) -> Iterator[Batch]:
        """Yield the batches of the steps, each after it was looked at."""
        before = prepared.log_probs[prepared.learnable]
        for batch in batches(prepared):
            self.forgets |= not bool(torch.isin(batch.log_probs[batch.learnable], before).all())
            self.look(agent, batch)
            yield batch

    def look(self, agent: Any, batch: Batch) -> None:
        """Note how the gradient of a step compares."""
        with torch.no_grad():
            moved = (agent.policy.evaluate(batch)["log_probs"] - batch.log_probs)[batch.learnable].exp()
        if len(moved):
            self.lowest, self.highest = min(self.lowest, float(moved.min())), max(self.highest, float(moved.max()))
        with _with_surrogate(agent, partial(_clipped_ratio, *_bounds_of(agent)[:2])) as loss:
            wanted = ascent(agent, loss(batch)[0])
        if may_be_idle(agent):
            further = _with_ratio(batch, torch.full_like(batch.log_probs, 1.1))  # rows that no step has moved, too
            self.is_wrong |= any(_skips(agent, one) for one in (batch, further)[: 1 + self.several])
        backward(agent, batch)
        self.off += float((direction(agent) - wanted).square().sum())
        self.size += float(wanted.square().sum())


def _skips(agent: Any, batch: Batch) -> bool:
    """Return whether `skip_idle_rows` changes the gradient."""
    chosen, found = agent.skip_idle_rows, []
    for agent.skip_idle_rows in (True, False):
        backward(agent, batch)
        found.append(direction(agent))
    agent.skip_idle_rows = chosen
    return float((found[0] - found[1]).norm()) > TOLERANCE * float(found[1].norm())


# Ratios that are set: the policy stays, and the old log-probabilities are made to differ from its own.


@dataclass
class _Ratios:
    """The derivatives in each step's log-probability at ratios inside the clip range, and beyond either end."""

    off: float = 0.0
    size: float = 0.0
    has_penalty: bool = False
    has_term: bool = False
    clipped: list[bool] = field(default_factory=list)  # whether steps have no gradient: of those that PPO clips
    others: list[bool] = field(default_factory=list)  # and of those that move back into the range

    def look(self, agent: Agent, rollout: Rollout, seed: int) -> None:
        """Note the derivatives in the steps of a rollout."""
        agent = copy.deepcopy(agent)
        prepared = agent.prepare(rollout)
        low, high, most = _bounds_of(agent)
        above = 1 + (2 * high if most is None else min(2 * high, (high + most - 1) / 2))  # below that bound
        drawn = torch.rand(prepared.mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        inside = _with_ratio(prepared, 1 - 0.9 * low + 0.9 * (low + high) * drawn)
        no_credit = replace(inside, advantages=torch.zeros_like(inside.advantages))
        with _with_surrogate(agent, _ratio) as loss:
            wanted, nothing = (_credit(agent, batch, loss) for batch in (inside, no_credit))
        found, stays = (_credit(agent, batch, agent.loss) for batch in (inside, no_credit))
        unmoved = replace(prepared, advantages=torch.zeros_like(prepared.advantages))
        term = gradient(agent, unmoved)  # in the logits, which has terms such as an entropy, too
        steps = prepared.learnable & (prepared.advantages != 0) & (found != stays)  # others are left out at any ratio
        for ratio, up in ((above, True), ((1 - low) / 2, False)):
            outside = _with_ratio(prepared, torch.full_like(drawn, ratio))
            unpaid = replace(outside, advantages=torch.zeros_like(outside.advantages))
            stops = _credit(agent, outside, agent.loss) == _credit(agent, unpaid, agent.loss)  # but for penalties
            further = (outside.advantages > 0) == up
            self.clipped += stops[steps & further].tolist()
            self.others += stops[steps & ~further].tolist()
        size = float(wanted.norm())
        self.has_penalty |= float((stays - nothing).norm()) > TOLERANCE * size > 0
        self.has_term |= float(term.norm()) > TOLERANCE * size > 0
        self.off += float((found - wanted).square().sum())
        self.size += size**2


def _with_ratio(batch: Batch, ratio: torch.Tensor) -> Batch:
    """Return the batch with old log-probabilities of which the present ones are so many times [N, T]."""
    return replace(batch, log_probs=batch.log_probs - ratio.log())


def _credit(agent: Any, batch: Batch, loss: Any) -> torch.Tensor:
    """Return the derivative of -loss in the log-probability of every step [N, T]."""
    evaluate, leaves = agent.policy.evaluate, []

    def evaluate_leaf(rollout: Rollout, want: Sequence[str] = LOG_PROBS, reference: Any = None) -> Any:
        found = evaluate(rollout, want, reference)
        if "log_probs" not in found or rollout.mask.shape != batch.mask.shape:  # a loss may have further passes
            return found
        leaves.append(found["log_probs"].detach().requires_grad_())
        return found | {"log_probs": leaves[-1]}

    agent.policy.evaluate = evaluate_leaf
    try:
        value = loss(batch)[0]
    finally:
        del agent.policy.evaluate
    if not (value.requires_grad and leaves):
        return torch.zeros_like(batch.log_probs)
    return -torch.stack(torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)).sum(0)
