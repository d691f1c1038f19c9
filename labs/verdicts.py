"""One-step prompts whose answers are judged 0 or 1, and the theory of a gradient estimate from K rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from agents.exact import World

from .enumerable import scores

ANSWERS = 20  # equally likely by default
RIGHT, COIN = "right answers", "coin"
NEARLY_LEARNT = 0.9  # probability of the right one of two answers


@dataclass(frozen=True)
class Task:
    """A prompt with one-step answers, and verdicts of 0 or 1.

    Args:
        name: for the table.
        pi: probabilities of the answers [A].
        right: probability that an answer is judged right [A].
    """

    name: str
    pi: torch.Tensor
    right: torch.Tensor

    @property
    def world(self) -> World:
        """Its answers as completions."""
        return World(tokens=len(self.pi), steps=1)

    @property
    def rate(self) -> float:
        """The success rate p."""
        return float(self.pi @ self.right)

    @cached_property
    def classes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean score [2, A] and its mean squared norm [2]: of answers judged wrong, of answers judged right."""
        score = scores(self.world, self.pi.log()[None])  # [A, A]
        joint = torch.stack([self.pi * (1 - self.right), self.pi * self.right])  # [2, A]
        given = joint / joint.sum(1, keepdim=True)
        return given @ score, given @ score.square().sum(1)

    @property
    def gradient(self) -> torch.Tensor:
        """The true gradient, E[R s] [A]."""
        return self.rate * self.classes[0][1]


def right_answers(p: float) -> Task:
    """Return the task in which a share p of equally likely answers is right."""
    pi = torch.full((ANSWERS,), 1 / ANSWERS, dtype=torch.float64)
    return Task(RIGHT, pi, (torch.arange(ANSWERS) < round(p * ANSWERS)).double())


def coin(p: float) -> Task:
    """Return the task in which every answer is judged right with probability p, so that R and s are independent."""
    pi = torch.full((ANSWERS,), 1 / ANSWERS, dtype=torch.float64)
    return Task(COIN, pi, torch.full_like(pi, p))


def nearly_learnt() -> Task:
    """Return the task of two answers, the likelier of which is right: rewards and |s|² are not independent."""
    pi = torch.tensor([NEARLY_LEARNT, 1 - NEARLY_LEARNT], dtype=torch.float64)
    return Task("nearly learnt", pi, torch.tensor([1.0, 0.0], dtype=torch.float64))


def constant_of(baseline: str, p: float) -> float:
    """Return what a baseline that outlives the update has come to.

    That is, beside a prompt of rate 1 - p, the mean of both for the running mean, and p for the critic.
    """
    return {"running-mean": 0.5, "value": p}.get(baseline, 0.0)


def theory(baseline: str, size: int, task: Task) -> float:
    """Return the variance of the gradient estimate g = 1/K Σ_i A_i s_i, where |s|² does not depend on the reward.

    Weighted baselines are leave-one-out: lengths are 1 here, and with answers that are equally likely all scores have
    the same norm. Every baseline gives A_i = a R_i - b Σ_{j≠i} R_j - b Σ_k R'_k - c, with the other prompt's rewards R'
    or without:

        none           1           0          c = 0          leave-one-out  1           1/(K-1)    without R'
        running mean   1           0          c = 1/2        group mean     (K-1)/K     1/K        without R'
        value          1           0          c = p          batch mean     (2K-1)/2K   1/2K       with R'

    Scores have mean zero, and E[R s] is the true gradient g*. So E[g] = a g*, and of A_i A_j ⟨s_i, s_j⟩ with i ≠ j only
    (a² + b²) |g*|² is left: each of the two scores needs a reward of the same rollout, which either A may bring. Hence

        tr Cov(g) = 1/K (E|s|² E[A²] + (K-1)(a² + b²) |g*|²) - a² |g*|²

    Where g* = 0, that is E|s|² E[A²] / K, and E[A²] is p without a baseline and p(1-p) K/(K-1) with leave-one-out.
    """
    p, both = task.rate, 2 * size
    own, shared, others = {
        "none": (1.0, 0.0, 0),
        "running-mean": (1.0, 0.0, 0),
        "value": (1.0, 0.0, 0),
        **dict.fromkeys(("leave-one-out", "length-weighted", "optimal-token"), (1.0, 1 / (size - 1), 0)),
        "group-mean": (1 - 1 / size, 1 / size, 0),
        "batch-mean": (1 - 1 / both, 1 / both, size),
    }[baseline]
    mean = own * p - shared * ((size - 1) * p + others * (1 - p)) - constant_of(baseline, p)  # E[A]
    spread = (own**2 + shared**2 * (size - 1 + others)) * p * (1 - p)  # Var(A)
    norm = float(task.pi @ scores(task.world, task.pi.log()[None]).square().sum(1))
    signal = float(task.gradient.square().sum())
    return (norm * (mean**2 + spread) + (size - 1) * (own**2 + shared**2) * signal) / size - own**2 * signal


def short_ratio(size: int, p: float) -> float:
    """Return (K-1)/(K(1-p)), the variance without a baseline over that with leave-one-out."""
    return (size - 1) / (size * (1 - p))


def binomial(trials: int, p: float) -> torch.Tensor:
    """Return the probabilities of 0 ... n successes [n + 1]."""
    chances = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    return torch.tensor(chances, dtype=torch.float64)
