"""pass@k and maj@k against every subset there is, and against known answers."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from agents.estimators.pass_at_k import attempts, bootstrap_mean, maj_at_k, pass_at_k


def majority(subset):
    """Return the expected score of a majority vote over (answer, right share) pairs; None does not vote."""
    votes = Counter(answer for answer, _ in subset if answer is not None)
    if not votes:
        return Fraction(0)
    tied = [answer for answer, count in votes.items() if count == max(votes.values())]
    share = dict(subset)
    return sum((share[answer] for answer in tied), Fraction(0)) / len(tied)


def over_subsets(items, k, score):
    subsets = list(itertools.combinations(items, k))
    return float(sum((score(subset) for subset in subsets), Fraction(0)) / len(subsets))


@pytest.mark.parametrize(
    ("samples", "expected"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_attempts_double_up_to_the_number_of_samples(samples, expected):
    assert attempts(samples) == expected


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(samples):
    for right in range(samples + 1):
        items = [i < right for i in range(samples)]
        for k in range(1, samples + 1):
            brute = over_subsets(items, k, lambda subset: Fraction(any(subset)))
            assert pass_at_k(samples, right, k) == pytest.approx(brute, abs=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_maj_at_k_is_the_mean_over_all_subsets(seed):
    rng = np.random.default_rng(seed)
    votes = tuple((int(count), int(rng.integers(count + 1))) for count in rng.integers(1, 4, size=rng.integers(1, 5)))
    silent = int(rng.integers(3))
    items = [(answer, Fraction(right, count)) for answer, (count, right) in enumerate(votes) for _ in range(count)]
    items += [(None, Fraction(0))] * silent
    sizes = tuple(range(1, len(items) + 1))
    brute = [over_subsets(items, k, majority) for k in sizes]
    assert maj_at_k(votes, silent, sizes) == pytest.approx(brute, abs=1e-13)


def test_a_tie_counts_half_and_no_answer_counts_as_wrong():
    assert maj_at_k(((2, 2), (2, 0)), 0, (4,)) == (0.5,)
    assert maj_at_k((), 4, (1, 4)) == (0.0, 0.0)


def test_maj_at_k_of_many_samples_stays_a_probability():
    values = maj_at_k(((180, 180), (90, 0), (15, 15)), 15, (1, 2, 150, 300))
    assert values[0] == pytest.approx(0.65)
    assert values[0] < values[2] <= 1 + 1e-12 and values[3] == pytest.approx(1.0)


def test_the_interval_of_a_mean_has_its_known_width():
    values = [1.0] * 300 + [0.0] * 700
    low, high = bootstrap_mean(values, np.random.default_rng(0))
    assert low == pytest.approx(0.3 - 1.96 * math.sqrt(0.21 / 1000), abs=3e-3)
    assert high == pytest.approx(0.3 + 1.96 * math.sqrt(0.21 / 1000), abs=3e-3)
    assert (low, high) == bootstrap_mean(values, np.random.default_rng(0))
    assert bootstrap_mean([0.25], np.random.default_rng(0)) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pass_at_k(4, 2, 5), "k must be from 1 to the number of samples (4), got 5"),
        (lambda: pass_at_k(4, 5, 1), "from 0 to 4, got 5"),
        (lambda: maj_at_k(((1, 1),), 0, (0,)), "got 0"),
        (lambda: maj_at_k(((1001, 1),), 0, (1,)), "at most 1000 samples"),
        (lambda: bootstrap_mean([], np.random.default_rng(0)), "no values"),
    ],
)
def test_bad_numbers_are_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
