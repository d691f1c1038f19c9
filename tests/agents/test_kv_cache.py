"""The slot cache itself: what lies where, when slots restart and when the clock comes to the end of the buffer."""

import pytest
import torch
from transformers.cache_utils import DynamicCache

from agents.policies.kv_cache import SlotCache

HEADS, WIDTH = 2, 3


def states(rows, columns, start=0.0):
    """Return keys [rows, heads, columns, width] whose columns are numbered; values are their negative."""
    numbers = start + torch.arange(rows * columns, dtype=torch.float32).view(rows, 1, columns, 1)
    return numbers.expand(rows, HEADS, columns, WIDTH).clone()


def prompts(rows, columns, start=0.0):
    cache = DynamicCache()
    for layer in range(2):
        cache.update(states(rows, columns, start), -states(rows, columns, start), layer)
    return cache


def write(cache, longest, value):
    """Write one column into every slot, as a decode step does; return what the model sees of the first layer."""
    cache.open_window(longest)
    seen = [cache.update(k := torch.full((2, HEADS, 1, WIDTH), float(value)), -k, layer) for layer in range(2)]
    cache.tick()
    return seen[0]


def test_prompts_are_right_aligned_to_the_clock():
    cache, source = SlotCache(2, max_length=6), prompts(2, 4)
    cache.reserve(2, source)
    cache.place(torch.tensor([0, 1]), source, torch.tensor([0, 1]), torch.tensor([4, 2]))
    keys, values = write(cache, longest=5, value=99)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 99]
    assert keys[1, 0, -3:, 0].tolist() == [4, 5, 99]
    assert torch.equal(values, -keys)


def test_window_shows_the_last_columns_only():
    cache, source = SlotCache(2, max_length=6), prompts(2, 4)
    cache.reserve(2, source)
    cache.place(torch.tensor([0, 1]), source, torch.tensor([0, 1]), torch.tensor([4, 4]))
    assert write(cache, longest=2, value=99)[0].shape == (2, HEADS, 2, WIDTH)
    assert cache.get_seq_length() == 1
    assert write(cache, longest=6, value=98)[0][0, 0, :, 0].tolist() == [0, 1, 2, 3, 99, 98]


def test_restarting_a_slot_leaves_the_others_alone():
    cache, source = SlotCache(2, max_length=8), prompts(2, 3)
    cache.reserve(2, source)
    cache.place(torch.tensor([0, 1]), source, torch.tensor([0, 1]), torch.tensor([3, 3]))
    write(cache, 4, 50)
    cache.place(torch.tensor([1]), prompts(1, 2, start=70.0), torch.tensor([0]), torch.tensor([2]))
    keys, _ = write(cache, 5, 51)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 50, 51]
    assert keys[1, 0, -3:, 0].tolist() == [70, 71, 51]


def test_one_reading_serves_several_slots():
    cache, source = SlotCache(2, max_length=6), prompts(1, 3)
    cache.reserve(2, source)
    cache.place(torch.tensor([0, 1]), source, torch.tensor([0, 0]), torch.tensor([3, 3]))
    keys, _ = write(cache, 4, 9)
    assert torch.equal(keys[0], keys[1])


@pytest.mark.parametrize("max_length", [2, 5, 40])
def test_context_survives_the_end_of_the_buffer_many_times(max_length):
    """A queue of numbers beside the cache says what the model must see."""
    cache, source = SlotCache(2, max_length), prompts(2, 1)
    cache.reserve(2, source)
    cache.place(torch.tensor([0, 1]), source, torch.tensor([0, 1]), torch.tensor([1, 1]))
    wraps, history = 0, [0.0]
    for step in range(5 * cache.columns):
        before = cache.clock
        longest = min(len(history) + 1, max_length)
        history.append(float(100 + step))
        keys, values = write(cache, longest, history[-1])
        assert keys[0, 0, :, 0].tolist() == history[-longest:]
        assert torch.equal(values, -keys)
        wraps += cache.clock < before
    assert wraps >= 4
    assert cache.layers[0].keys.shape[2] == cache.columns, "the buffer never grows"


@pytest.mark.parametrize("ticks", range(6))
def test_slots_restart_rightly_wherever_the_clock_stands(ticks):
    cache, source = SlotCache(2, max_length=5), prompts(2, 4)
    cache.reserve(2, source)
    cache.clock = cache.columns - ticks
    cache.place(torch.tensor([1]), source, torch.tensor([1]), torch.tensor([4]))
    assert write(cache, 5, 8)[0][1, 0, :, 0].tolist() == [4, 5, 6, 7, 8]


def test_restart_forgets_every_slot():
    cache, source = SlotCache(2, max_length=6), prompts(2, 4)
    cache.reserve(2, source)
    for value in range(3):
        write(cache, 2, value)
    cache.restart()
    cache.place(torch.tensor([0, 1]), source, torch.tensor([1, 0]), torch.tensor([4, 4]))
    assert write(cache, 5, 9)[0][0, 0, :, 0].tolist() == [4, 5, 6, 7, 9]


def test_slots_cannot_restart_before_there_are_buffers():
    with pytest.raises(RuntimeError, match="reserve"):
        SlotCache(2, 6).place(torch.tensor([0]), prompts(1, 2), torch.tensor([0]), torch.tensor([2]))
