"""Estimates for k attempts from n samples per problem: pass@k, maj@k, and bootstrap intervals over problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

RESAMPLES = 2_000
LEVEL = 0.95
MOST_SAMPLES = 1_000  # C(n, k) of more would not fit into float64


def attempts(samples: int) -> list[int]:
    """Return the numbers of attempts k to report for n samples: 1, 2, 4, ... and n."""
    return [*(2**i for i in range((samples - 1).bit_length())), samples]


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the probability that k of these samples, drawn without replacement, hold a right one.

        pass@k = 1 - C(n-c, k) / C(n, k) = 1 - Π_{i=n-c+1}^{n} (1 - k/i)

    Its expectation over the n samples is 1 - (1 - p)^k, if each is right with probability p
    (Chen et al. 2021, arXiv:2107.03374, section 2.1).

    Args:
        samples: n.
        right: c.
        k: 1 to n.

    Raises:
        ValueError: if k is not in 1..n, or c not in 0..n.
    """
    _check(samples, k)
    if not 0 <= right <= samples:
        raise ValueError(f"the number of right samples must be from 0 to {samples}, got {right}")
    if samples - right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - right + 1, samples + 1))


@lru_cache(maxsize=4096)
def maj_at_k(votes: tuple[tuple[int, int], ...], silent: int, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Return the probability that the majority of k of these samples, drawn without replacement, is right.

        maj@k = 1/C(n, k) Σ_{S: |S|=k} 1/|M(S)| Σ_{a in M(S)} c_a / n_a

    M(S) are the answers that most samples in S give; a tie counts as a draw among them. c_a / n_a is 1 or 0 where
    the answer decides the verdict, and otherwise the share of right samples with that answer. Samples without an
    answer do not vote, and if all of S give none, the majority is wrong. Majority voting: Wang et al. 2022
    (arXiv:2203.11171); averaging over all subsets makes it unbiased, as in pass@k.

    The sum is exact: for each number of votes m of the winner, the subsets are counted by a product of polynomials
    in which x counts samples and y the answers with m votes.

    Args:
        votes: n_a and c_a of each answer: how many samples give it, and how many of those are right.
        silent: number of samples without an answer.
        sizes: each k, 1 to n.

    Returns:
        maj@k for each k.

    Raises:
        ValueError: if a k is not in 1..n, or n is above 1000.
    """
    samples = silent + sum(count for count, _ in votes)
    for k in sizes:
        _check(samples, k)
    largest = max(sizes)
    wins = np.zeros(largest + 1)
    for most in range(1, max((count for count, _ in votes), default=0) + 1):
        wins += _wins(votes, silent, most, largest)
    return tuple(float(wins[k] / math.comb(samples, k)) for k in sizes)


def _wins(votes: tuple[tuple[int, int], ...], silent: int, most: int, largest: int) -> np.ndarray:
    """Return the sum of the winners' shares right [K+1], over subsets of each size with `most` votes for the winner."""
    shape = (largest + 1, largest // most + 1)  # by samples in the subset and answers with `most` votes
    ways, score = np.zeros(shape), np.zeros(shape)  # how many subsets, and the sum of their tied answers' shares
    ways[: silent + 1, 0] = [math.comb(silent, j) for j in range(min(silent, largest) + 1)]
    for count, right in votes:
        old_ways, old_score = ways, score
        ways, score = np.zeros(shape), np.zeros(shape)
        for j in range(min(count, most - 1, largest) + 1):
            ways[j:] += math.comb(count, j) * old_ways[: largest + 1 - j]
            score[j:] += math.comb(count, j) * old_score[: largest + 1 - j]
        if count >= most and shape[1] > 1:
            chosen = math.comb(count, most)
            before = old_ways[: largest + 1 - most, :-1]
            ways[most:, 1:] += chosen * before
            score[most:, 1:] += chosen * (old_score[: largest + 1 - most, :-1] + right / count * before)
    tied = np.arange(1, shape[1])
    return (score[:, 1:] / tied).sum(1)


def bootstrap_mean(
    values: Sequence[float],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    mean: Callable[[np.ndarray], np.ndarray] = lambda drawn: drawn.mean(-1),
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean over problems (Efron & Tibshirani 1993, chapter 13).

    Args:
        values: one per problem [P].
        generator: draws P problems with replacement, `resamples` times.
        resamples: how often.
        level: the share of resampled means in the interval.
        mean: another mean along the last axis.

    Returns:
        The lower and the upper end.

    Raises:
        ValueError: without values.
    """
    given = np.asarray(values, dtype=float)
    if given.size == 0:
        raise ValueError("the mean of no values has no interval")
    at_once = max(1, 2**20 // given.size)  # resamples, for the memory
    sizes = [min(at_once, resamples - begun) for begun in range(0, resamples, at_once)]
    drawn = (given[generator.integers(given.size, size=(size, given.size))] for size in sizes)  # [size, P]
    means = np.concatenate(list(map(mean, drawn)))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _check(samples: int, k: int) -> None:
    if samples > MOST_SAMPLES:
        raise ValueError(f"at most {MOST_SAMPLES} samples per problem are supported, got {samples}")
    if not 1 <= k <= samples:
        raise ValueError(f"k must be from 1 to the number of samples ({samples}), got {k}")
