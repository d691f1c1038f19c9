"""The random numbers of a rollout: which they are, and that they depend on the episode and its step only."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.policies.draws import STEPS, EpisodeDraws, uniform


def drawn(lengths, num_slots, seed=0, waits=0):
    """Play episodes of these lengths as slots become free, and return what each step got."""
    draws = EpisodeDraws(torch.Generator().manual_seed(seed), num_slots)
    told, random = {}, np.random.default_rng(waits)
    episode, left, begun = np.full(num_slots, -1), np.zeros(num_slots, dtype=int), 0
    while begun < len(lengths) or left.any():
        starts = np.zeros(num_slots, dtype=bool)
        for slot in np.flatnonzero(left == 0):
            episode[slot] = -1
            if begun < len(lengths):
                starts[slot], episode[slot], left[slot] = True, begun, lengths[begun]
                begun += 1
        acting = (left > 0) & (random.random(num_slots) >= (0.3 if waits else 0))
        numbers = draws.take(starts, acting).tolist()
        for slot in np.flatnonzero(acting):
            told[int(episode[slot]), int(lengths[episode[slot]] - left[slot])] = numbers[slot]
        left -= acting
    return told


LENGTHS = st.lists(st.integers(1, 2 * STEPS + 3), min_size=1, max_size=12)


@given(LENGTHS, st.integers(1, 13), st.integers(1, 13), st.integers(0, 3))
def test_an_episode_gets_the_same_numbers_in_any_slot(lengths, few, many, waits):
    assert drawn(lengths, few, waits=waits) == drawn(lengths, many)
    assert len(drawn(lengths, few)) == sum(lengths)


def test_numbers_are_uniform_and_steps_are_not_correlated():
    numbers = np.concatenate([uniform(7, 0, block, 2000) for block in range(2)], axis=1)
    assert numbers.min() >= 0 and numbers.max() < 1
    shares = np.histogram(numbers, bins=50, range=(0, 1))[0] / numbers.size
    assert np.abs(shares - 0.02).max() < 5 * np.sqrt(0.02 / numbers.size)
    for shifted in (numbers[:, 1:] * numbers[:, :-1], numbers[1:] * numbers[:-1]):
        assert abs(shifted.mean() - 0.25) < 5 * np.sqrt(7 / 144 / shifted.size)


def test_the_numbers_are_known():
    """A checkpoint goes on with the same numbers in a later version."""
    assert uniform(5, 3, 1, 2)[:, [0, 63]].tolist() == [
        [0.6536275223533069, 0.08854587637209321], [0.9317235536463983, 0.03130789041620319],
    ]  # fmt: skip
