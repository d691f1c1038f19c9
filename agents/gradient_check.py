"""The exact check of an agent: its expected gradient beside the true one, its discount, and its updates.

P prompts, S prefixes and C completions of each, V tokens, K episodes per group, N per rollout.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from .estimators.returns import return_to_go
from .exact import TablePolicy, World, WorldEnv, every_rollout, gradient, true_gradient, without_draws
from .rollout import Batch, Rollout
from .training.agent import Agent
from .training.learned import learned_by
from .training.proximal import PassesAgent
from .training.update import may_be_idle
from .update_check import UpdateCheck, check_update

MOST_ROLLOUTS = 5_000  # 3 ms each, with several rounds 10
TOLERANCE = 1e-6  # rollouts have numbers in float32
ENOUGH = 1_000  # of a world that nobody chose
WORLD, SMALLER = (World(tokens=2, steps=steps, end=0) for steps in (3, 2))
WORLDS = (WORLD, SMALLER)
LOOKED_AT = 6  # rollouts whose updates are checked
DISCOUNT = 0.9
NO_DISCOUNT, WRONG_DISCOUNT = "gamma has no effect", "wrong discount"
TERMS = {"kl_coef": "a KL penalty", "ent_coef": "an entropy bonus"}
PASSES = {"num_epochs": 2, "num_minibatches": 2}


@dataclass(frozen=True)
class GradientCheck:
    """An agent's expected gradient g beside the true one g*, and the results of the other checks.

    Attributes:
        error: `|g - g*| / |g*|`.
        direction: the cosine between g and g*; 0 without a gradient.
        scale: `⟨g, g*⟩ / ⟨g*, g*⟩`.
        noise: the variance of one rollout's gradient, divided by |g*|².
        rollouts: how many there are.
        prompts: the scale of each prompt's part of g; empty unless each has its true direction.
        causes: of a bias, as far as advantages show them.
        discount: how `gamma` enters; empty if the bias without it hides that, or it was not checked.
        update: the agent's passes, ratios and claims; None if they were not checked.
        checked: the checked parts, in words.
        unchecked: the other parts.
    """

    error: float
    direction: float
    scale: float
    noise: float
    rollouts: int
    prompts: tuple[float, ...] = ()
    causes: tuple[str, ...] = ()
    discount: str = ""
    update: UpdateCheck | None = None
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

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
        if self.prompts and min(self.prompts) > 0:
            return f"prompts count {' : '.join(f'{scale:.3g}' for scale in self.prompts)}"
        angle = f"{math.degrees(math.acos(max(-1.0, min(self.direction, 1.0)))):.1f}° off"
        return f"points elsewhere, {angle}" if self.direction > 0 else f"points away from the true gradient, {angle}"

    @property
    def faults(self) -> tuple[str, ...]:
        """The contradictions to the agent's class, in words."""
        wrong = (WRONG_DISCOUNT,) if self.discount == WRONG_DISCOUNT else ()
        return wrong + (() if self.update is None else self.update.faults)

    @property
    def verdict(self) -> str:
        """The meaning with its causes, and the faults."""
        causes = f" ({'; '.join(self.causes)})" if self.causes else ""
        notes = ["a penalty on the ratio away from 1"] * (self.update is not None and self.update.has_penalty)
        notes += ["a term that stays where A = 0"] * (self.update is not None and self.update.has_term)
        notes += [NO_DISCOUNT] * (self.discount == NO_DISCOUNT)
        return "; ".join([self.meaning + causes, *notes, *(f"FAULT: {fault}" for fault in self.faults)])

    def __str__(self) -> str:
        """Return one line."""
        figures = f"error {self.error:.3f}   direction {self.direction:.3f}   noise {self.noise:.1f}"
        return f"{figures}   {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self) | {"meaning": self.meaning, "verdict": self.verdict, "faults": self.faults}


@dataclass
class _Expectation:
    """The mean over every possible rollout of an agent's gradient.

    Attributes:
        mean: [P, S, V].
        squares: the mean of |gradient|².
        rollouts: how many there are.
        kept: some of them.
    """

    mean: torch.Tensor
    squares: float = 0.0
    rollouts: int = 0
    kept: list[Rollout] = field(default_factory=list)

    @classmethod
    def of(cls, agent: Agent, stride: int = MOST_ROLLOUTS) -> _Expectation:
        """Return the expectation; one rollout is kept of so many."""
        made, total = cls(torch.zeros_like(agent.policy.get_parameter("logits").data)), 0.0
        for played, rollout, draws in every_rollout(agent):
            if made.rollouts % stride == stride // 2 and len(made.kept) < LOOKED_AT:
                made.kept.append(rollout)
            scaled = played.reward_scale(rollout, played.gamma) if played.normalize_rewards else rollout
            found = gradient(played, played.prepare(scaled))
            chance = math.exp(draws.log_prob)  # also of what `prepare` replayed
            made.mean += chance * found
            made.squares += chance * float(found.square().sum())
            total, made.rollouts = total + chance, made.rollouts + 1
            _check_count(made.rollouts)
        if abs(total - 1) > TOLERANCE:
            name = type(agent).__name__
            means = f"the probabilities of all rollouts add up to {total:g}"
            raise ValueError(f"{means}: {name} collects by other means, too")
        return made


def _compared(found: _Expectation, true: torch.Tensor) -> GradientCheck:
    """Return the comparison of the expected gradient with the true one [P, S, V]."""
    mean, size = found.mean, float(true.norm())
    norm, dot = float(mean.norm()), float((mean * true).sum())
    return GradientCheck(
        error=float((mean - true).norm()) / size,
        direction=dot / (norm * size) if norm > TOLERANCE * size else 0.0,
        scale=dot / size**2,
        noise=(found.squares - norm**2) / size**2,
        rollouts=found.rollouts,
        prompts=_scales(mean, true),
    )


def _scales(mean: torch.Tensor, true: torch.Tensor) -> tuple[float, ...]:
    """Return the factor of each prompt's true gradient; none unless all have their true directions."""
    squares = true.square().sum((1, 2))  # [P]
    scales = (mean * true).sum((1, 2)) / squares.clamp(min=1e-24)
    off = (mean - scales[:, None, None] * true).norm()
    return tuple(scales.tolist()) if len(true) > 1 and float(off) <= TOLERANCE * float(true.norm()) else ()


def _check_count(rollouts: float) -> None:
    if rollouts > MOST_ROLLOUTS:
        hint = "take fewer episodes, tokens or steps; with dynamic sampling, fewer max_rounds"
        raise ValueError(f"there are more than {MOST_ROLLOUTS} rollouts: {hint}")


def check_gradient(
    cls: type[Agent],
    group_size: int = 2,
    episodes: int | None = None,
    world: World | None = None,
    rewards: torch.Tensor | Sequence[float] | None = None,
    seed: int = 0,
    updates: bool = True,
    **settings: Any,
) -> GradientCheck:
    """Compare the expectation of an agent's gradient over every possible rollout with the true gradient.

        g = Σ_rollouts p(rollout) · -∇ loss(rollout)        g* = ∇ E[Σ_t γ^t r_t]

    Each rollout is collected, prepared and differentiated by itself, with the agent's own methods and fresh statistics,
    and has one group of each prompt. What an agent draws by other means than its policy is drawn once. Then come the
    discount, in a world of one prompt, and the agent's own updates on some rollouts; see `UpdateCheck`.

    Args:
        cls: of the agent; it may override `collect_rollout`.
        group_size: K.
        episodes: N, of one collection; two groups if omitted, and one for large groups and agents that sample again.
        world: of each prompt; four answers if omitted, and three for large groups and agents that sample again.
        rewards: of the completions [C], or of each prompt's [P, C]. By default normal random numbers, for every token.
        seed: of the policy's logits and of the rewards.
        updates: whether the discount and the agent's updates are checked, too.
        settings: of the agent; the discount of the true gradient is its `gamma`, 1 if omitted. Agents of several passes
            take 2, in 2 parts each, unless `num_epochs` and `num_minibatches` are given.

    Raises:
        ValueError: for more than `MOST_ROLLOUTS` rollouts, an agent that learns from a teacher or cannot be copied,
            rewards that are all equal, or bad settings.
    """
    if cls.needs_teacher:
        raise ValueError(f"{cls.__name__} learns from a teacher, not from rewards, so no true gradient is known for it")
    case = _Case(cls, group_size, seed, (PASSES if issubclass(cls, PassesAgent) else {}) | settings)
    size = _size(world, episodes, group_size)
    agent, true = case.of(*size, rewards)
    try:
        copy.deepcopy(agent)
    except TypeError as error:
        what = "open files, locks and the like belong outside of the agent"
        raise ValueError(f"{cls.__name__} cannot be copied, as every rollout needs it: {error}; {what}") from error
    again = _samples_again(agent, size[0])
    if again and world is episodes is None:
        size = SMALLER, group_size
        agent, true = case.of(*size, rewards)
    if float(true.norm()) < 1e-12:
        raise ValueError("the true gradient is 0: answers must earn different rewards")
    count = len(size[0].completions) ** size[1]
    _check_count(count)
    found = _Expectation.of(agent, count // LOOKED_AT | 1)
    check = _compared(found, true)
    if not updates:
        return check
    update = check_update(agent, found.kept)
    discount = "" if again else _discount(case, agent.gamma)
    causes = () if check.error <= TOLERANCE else _causes(agent, found.kept)
    checked, unchecked = _coverage(agent, rewards is None, discount, update)
    return replace(check, causes=causes, discount=discount, update=update, checked=checked, unchecked=unchecked)


@dataclass(frozen=True)
class _Case:
    """An agent's class and settings, to be put into worlds."""

    cls: type[Agent]
    group_size: int
    seed: int
    settings: dict[str, Any]

    def of(
        self,
        world: World,
        episodes: int,
        rewards: torch.Tensor | Sequence[float] | None = None,
        power: float = 1.0,
        **settings: Any,
    ) -> tuple[Agent, torch.Tensor]:
        """Return an agent, and its true gradient.

        Args:
            world: of each prompt.
            episodes: N.
            rewards: of the completions [C] or [P, C]; random ones for every token if omitted.
            power: p; the reward of step t is multiplied by p^t.
            settings: beside the case's settings.
        """
        generator = torch.Generator().manual_seed(self.seed)
        shape = (max(episodes // self.group_size, 1), len(world.prefixes), world.tokens)
        logits = torch.randn(shape, generator=generator, dtype=torch.float64)
        if rewards is None:
            table = torch.randn(shape, generator=generator, dtype=torch.float64)
        else:
            gains = torch.as_tensor(rewards, dtype=torch.float64)
            if gains.shape[-1:] != (answers := len(world.completions),):
                raise ValueError(f"rewards must be of the {answers} answers of the world, got {gains.shape[-1]}")
            table = world.at_the_end(gains).expand(shape)
        step = torch.tensor([[len(prefix)] for prefix in world.prefixes])
        table = (table * power**step).float().double()  # rollouts keep rewards in float32
        env = WorldEnv(world, table, group_size=self.group_size)
        env.metadata["max_episode_steps"] = world.steps * world.turns
        sizes: dict[str, Any] = {"group_size": self.group_size, "episodes_per_update": episodes, "device": "cpu"}
        agent = self.cls(TablePolicy(logits), env, **sizes, **self.settings | settings)
        for module in learned_by(agent).values():
            if isinstance(module, torch.nn.Module):
                module.double()  # as the policy
        agent.policy.get_parameter("table").data = world.values(logits, table, agent.gamma)  # a perfect critic, if any
        agent.anchor.freeze_reference(agent.policy)
        return agent, true_gradient(world, logits, table, agent.gamma)


def _size(world: World | None, episodes: int | None, group_size: int) -> tuple[World, int]:
    """Return the world and the number of episodes: of two groups if that is not too much, else of one.

    Raises:
        ValueError: if a given world or number of episodes is too much.
    """
    worlds, most = (WORLDS, ENOUGH) if world is None else ((world,), MOST_ROLLOUTS)
    sizes = [(each, groups * group_size) for groups in (2, 1) for each in worlds]
    if episodes is not None:
        sizes, most = [(world or WORLD, episodes)], MOST_ROLLOUTS
    digits = math.log(most) + TOLERANCE  # a power may be too long for memory
    fitting = [size for size in sizes if size[1] * math.log(len(size[0].completions)) <= digits]
    if not fitting and most == MOST_ROLLOUTS:
        _check_count(math.inf)
    return fitting[0] if fitting else sizes[-1]


def _samples_again(agent: Agent, world: World) -> bool:
    """Return whether a rollout of equal episodes has more than its number of them, as with dynamic sampling."""
    _, _, draws = next(every_rollout(agent))
    least = next(len(completion) for completion in world.completions if not any(completion))
    return draws.taken > least * agent.episodes_per_update


def _discount(case: _Case, gamma: float) -> str:
    """Return how a discount enters, in a world of one prompt; empty if the agent's bias without one hides it.

    It is right if the discounted gradient is that of rewards γ^t r_t, or that of the returns from each step on,
    Σ_t ∇log π_t Σ_{k≥t} γ^{k-t} r_k, which leaves out the factor γ^t, as is common.
    """
    gamma = DISCOUNT if gamma == 1 else gamma
    size = case.group_size
    world = next((world for world in WORLDS if len(world.completions) ** size <= ENOUGH), None)
    if world is None:
        return ""
    plain, true = case.of(world, size, gamma=1.0)
    (discounted, _), (faded, _) = case.of(world, size, gamma=gamma), case.of(world, size, power=gamma, gamma=1.0)
    without, found, wanted = (_Expectation.of(agent).mean for agent in (plain, discounted, faded))
    if _equal(found, wanted):
        return "as γ^t"
    biased = _compared(_Expectation(without), true)
    table = torch.from_numpy(discounted.env.rewards)
    if biased.direction > 1 - TOLERANCE and _equal(found, biased.scale * _to_go(world, plain, table, gamma)):
        return "from each step on"
    if _equal(found, without):
        return NO_DISCOUNT
    return WRONG_DISCOUNT if biased.direction > 1 - TOLERANCE else ""


def _to_go(world: World, agent: Agent, rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return E[Σ_t ∇log π_t Σ_{k≥t} γ^{k-t} r_k] [P, S, V]."""
    states, actions, mask = world.paths  # [C, T]
    logits = agent.policy.get_parameter("logits").detach().requires_grad_()
    gains = return_to_go(rewards[0, states, actions].where(mask, 0), mask, gamma)
    steps = logits.log_softmax(-1)[0, states, actions].where(mask, 0)
    chance = world.log_probs(logits)[0].exp().detach()
    return torch.autograd.grad((chance[:, None] * gains * steps).sum(), logits)[0]


def _equal(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return float((found - wanted).norm()) <= 10 * TOLERANCE * float(wanted.norm())


def _causes(agent: Agent, rollouts: Sequence[Rollout]) -> tuple[str, ...]:
    """Return the causes of a bias, as far as the advantages and weights of some rollouts show it."""
    agent = without_draws(agent)
    causes = [_normalization(agent, rollouts), _own_reward(agent, rollouts), _weighing(agent, rollouts)]
    return tuple(cause for cause in causes if cause)


def _prepared(agent: Agent, rollout: Rollout) -> Batch:
    return copy.deepcopy(agent).prepare(rollout)


def _normalization(agent: Agent, rollouts: Sequence[Rollout]) -> str:
    """Return in words whether doubled rewards, of one group or all, leave the advantages as they are; empty if not."""
    same = {"in each group": True, "over the rollout": True}
    compared = 0
    for rollout in rollouts:
        before = _prepared(agent, rollout)
        first = rollout.groups == rollout.groups[0]
        if len(before) != len(rollout) or not (before.advantages[first] != 0).any():
            continue
        compared += 1
        for name, rows, factor in zip(same, (first, torch.ones_like(first)), (1, 2), strict=True):
            more = replace(rollout, rewards=rollout.rewards * (1.0 + rows.double())[:, None])
            other = copy.deepcopy(agent)
            other.policy.get_parameter("table").data *= factor  # the critic's values, if any
            after = other.prepare(more)
            off = (after.advantages - before.advantages)[first]
            same[name] &= bool(off.norm() < 0.01 * before.advantages[first].norm())
    return next((f"normalized {name}" for name, held in same.items() if held and compared), "")


def _own_reward(agent: Agent, rollouts: Sequence[Rollout]) -> str:
    """Return whether an episode's advantage grows by a constant below 1, the more reward it has."""
    slopes = []
    for rollout in rollouts:
        before = _prepared(agent, rollout)
        for row in range(len(rollout)):
            more = rollout.rewards.clone()
            more[row, 0] += 1
            after = _prepared(agent, replace(rollout, rewards=more))
            if len(rollout) == len(before) == len(after):  # else episodes were left out
                slopes.append(float((after.advantages - before.advantages)[row, 0]))
    if slopes and max(slopes) - min(slopes) < TOLERANCE and TOLERANCE < slopes[0] < 1 - TOLERANCE:
        return f"own reward in the baseline, or a factor: dA/dR = {slopes[0]:.3g}"
    return ""


def _weighing(agent: Agent, rollouts: Sequence[Rollout]) -> str:
    """Return whether the weights of steps differ in a rollout, or between rollouts."""
    weights = []
    for rollout in rollouts:
        prepared = _prepared(agent, rollout)
        steps = prepared.weights[prepared.learnable]
        if len(steps) and float(steps.max() - steps.min()) > TOLERANCE * float(steps.max()):
            return "unequal weights of steps"
        weights += steps[:1].tolist()
    return "a mean over tokens" if weights and max(weights) - min(weights) > TOLERANCE * max(weights) else ""


def _coverage(
    agent: Any, random_rewards: bool, discount: str, update: UpdateCheck
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the checked and the unchecked parts, in words."""
    prompts, several = agent.env.prompts, update.steps > 1
    said = {  # whether it was checked
        f"every rollout of {prompts} prompt{'s' * (prompts > 1)} with {agent.group_size} episodes each": True,
        "rewards of both signs, at every token" if random_rewards else "the given rewards": True,
        f"own updates on {2 * update.rollouts} of them": True,
        "a second prompt": None if prompts > 1 else False,
        "discounting": bool(discount),
        f"{update.steps} steps per update, ratios inside and outside the clip range": several or None,
        "ratios other than 1, since an update is one step": None if several else False,
        "skip_idle_rows on and off": may_be_idle(agent) or None,
        "a perfect critic": agent.uses_critic or None,
        "an imperfect critic": False if agent.uses_critic else None,
        **{f"{term} ({name}=0)": None if getattr(agent, name) else False for name, term in TERMS.items()},
        **dict.fromkeys(("networks", "your environment", "failed verdicts", "episodes cut off", "metrics"), False),
    }
    checked, unchecked = (tuple(item for item, held in said.items() if held is which) for which in (True, False))
    return checked, unchecked
