"""The slot cache itself: which column a token lies in, what a step sees, and what copying and placing leave alone."""

import pytest
import torch
from transformers.cache_utils import DynamicCache

from agents.policies.language.decoding.kv_cache import SlotCache

LAYERS, HEADS, WIDTH = 2, 2, 3
ROWS, LENGTH = 4, 7


def of_numbers(numbers):
    """Return states [rows, heads, columns, width] that hold one number for each row and column [rows, columns]."""
    return torch.as_tensor(numbers, dtype=torch.float32)[:, None, :, None].repeat(1, HEADS, 1, WIDTH)


def write(cache, tokens, positions, window, ragged=True):
    """Write a token into each of the first rows, as a decode step does; return the keys seen there [rows, window]."""
    cache.begin(torch.tensor(positions), window, ragged)
    keys = of_numbers([[float(token)] for token in tokens])
    seen = [cache.update(keys + 100 * layer, -keys - 100 * layer, layer) for layer in range(LAYERS)]
    for layer, (found, values) in enumerate(seen):
        assert torch.equal(values, -found) and torch.equal(found, seen[0][0] + 100 * (found != 0) * layer)
        assert torch.equal(found, found[:, :1, :, :1].expand_as(found)), "heads and features lie together"
    return seen[0][0][:, 0, :, 0]


def read(numbers):
    """Return a cache of transformers' that has read these columns [rows, columns]."""
    cache = DynamicCache()
    for layer in range(LAYERS):
        states = of_numbers(numbers) + 100 * layer
        cache.update(states, -states, layer)
    return cache


def contents(cache):
    """Return the keys of the first layer [rows, columns]; the others say the same."""
    for layer, memory in enumerate(cache.layers):
        assert torch.equal(memory.values, -memory.keys)
        assert torch.equal(memory.keys, cache.layers[0].keys + 100 * layer * (cache.layers[0].keys != 0))
    return cache.layers[0].keys[:, 0, :, 0].clone()


def filled():
    """Return a cache whose row r holds 10 r + 1, 10 r + 2, ... in every column."""
    cache = SlotCache(LAYERS, ROWS, LENGTH)
    cache.place(torch.arange(ROWS), read(ten(ROWS, LENGTH)), torch.arange(ROWS))
    return cache


def ten(rows, columns):
    return 10.0 * torch.arange(rows)[:, None] + torch.arange(1, columns + 1)


def test_a_token_lies_in_the_column_of_its_position():
    cache = SlotCache(LAYERS, ROWS, LENGTH)
    write(cache, [1, 2, 3, 4], [0, 3, 6, 3], LENGTH)
    wanted = torch.zeros(ROWS, LENGTH)
    wanted[torch.arange(ROWS), torch.tensor([0, 3, 6, 3])] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert torch.equal(contents(cache), wanted)


def test_contexts_of_different_lengths_grow_side_by_side():
    cache = SlotCache(LAYERS, 3, LENGTH)
    cache.place(torch.arange(3), read([[1, 2, 3], [4, 5, 0], [6, 0, 0]]), torch.arange(3))
    write(cache, [10, 11, 12], [3, 2, 1], 4)
    seen = write(cache, [20, 21, 22], [4, 3, 2], 5)
    assert seen.tolist() == [[1, 2, 3, 10, 20], [4, 5, 11, 21, 0], [6, 12, 22, 0, 0]]


@pytest.mark.parametrize("window", range(1, LENGTH + 1))
def test_a_step_sees_the_first_columns_of_the_first_rows(window):
    cache = filled()
    seen = write(cache, [7, 8], [0, 0], window)
    wanted = ten(2, window)
    wanted[:, 0] = torch.tensor([7.0, 8.0])
    assert torch.equal(seen, wanted)
    assert cache.get_seq_length() == window - 1
    assert cache.layers[1].get_mask_sizes(1) == (window, 0)


def test_rows_that_take_no_part_in_a_step_stay_as_they_were():
    cache = filled()
    before = contents(cache)
    write(cache, [77, 88], [2, 5], 6)
    after = contents(cache)
    assert after[0, 2] == 77 and after[1, 5] == 88
    after[0, 2], after[1, 5] = before[0, 2], before[1, 5]
    assert torch.equal(after, before)


@pytest.mark.parametrize("position", range(LENGTH))
def test_one_position_for_all_rows_is_written_like_many(position):
    ragged, even = filled(), filled()
    seen = [
        write(cache, [71, 72, 73], [position] * 3, position + 1, flag)
        for cache, flag in ((ragged, True), (even, False))
    ]
    assert torch.equal(*seen)
    assert torch.equal(contents(ragged), contents(even))
    assert seen[0][:, -1].tolist() == [71, 72, 73]


def test_reading_a_reply_writes_only_what_is_new():
    """Row 3 gets two tokens and row 1 one; its other query was read before."""
    cache = filled()
    rows, cells = torch.tensor([3, 1]), torch.tensor([[0, 0, 1], [0, 1, 1], [3, 4, 5]])
    cache.begin_reading(rows, cells, 6)
    states = of_numbers([[71, 72], [81, 82]])
    seen = [cache.update(states + 100 * layer, -states - 100 * layer, layer)[0] for layer in range(LAYERS)]
    wanted = ten(ROWS, LENGTH)
    wanted[3, 3], wanted[3, 4], wanted[1, 5] = 71, 72, 82
    assert torch.equal(contents(cache), wanted)
    assert torch.equal(seen[0][:, 0, :, 0], wanted[rows, :6]) and cache.layers[0].get_mask_sizes(2) == (6, 0)
    assert torch.equal(write(cache, [7, 8], [0, 0], 2)[:, 1], wanted[:2, 1]), "a step reads the first rows again"


def test_copying_takes_the_first_columns_and_nothing_else():
    cache = filled()
    cache.copy(torch.tensor([0]), torch.tensor([2]), 3)
    wanted = ten(ROWS, LENGTH)
    wanted[2, :3] = wanted[0, :3].clone()
    assert torch.equal(contents(cache), wanted)


@pytest.mark.parametrize(
    ("sources", "rows"),
    [([0, 0, 0], [1, 2, 3]), ([3, 2], [0, 1]), ([0, 1], [1, 2]), ([1, 0], [0, 1]), ([1, 2, 3, 0], [0, 1, 2, 3])],
    ids=["one for many", "apart", "a chain", "a swap", "a ring"],
)
def test_copies_are_of_what_stood_there_before_any_of_them(sources, rows):
    cache = filled()
    cache.copy(torch.tensor(sources), torch.tensor(rows), LENGTH)
    wanted = ten(ROWS, LENGTH)
    wanted[rows] = ten(ROWS, LENGTH)[sources]
    assert torch.equal(contents(cache), wanted)


def test_nothing_is_copied_before_anything_was_read():
    cache = SlotCache(LAYERS, ROWS, LENGTH)
    cache.copy(torch.tensor([0]), torch.tensor([1]), 3)
    assert not any(layer.is_initialized for layer in cache.layers)


def test_placing_into_some_rows_leaves_the_others_alone():
    cache = filled()
    cache.place(torch.tensor([3, 1]), read([[1, 2], [3, 4]]), torch.tensor([1, 0]))
    wanted = ten(ROWS, LENGTH)
    wanted[3, :2] = torch.tensor([3.0, 4.0])
    wanted[1, :2] = torch.tensor([1.0, 2.0])
    assert torch.equal(contents(cache), wanted)


def test_one_reading_serves_several_rows():
    cache = SlotCache(LAYERS, ROWS, LENGTH)
    cache.place(torch.tensor([2, 0, 3]), read([[1, 2, 3], [7, 8, 9]]), torch.tensor([0, 1, 0]))
    assert contents(cache)[:, :3].tolist() == [[7, 8, 9], [0, 0, 0], [1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("first", ["write", "place"])
def test_columns_that_nobody_has_written_are_zero(first):
    """Masked columns count nothing times what they hold, which must be a number."""
    cache = SlotCache(LAYERS, ROWS, LENGTH)
    garbage = [torch.full((ROWS, HEADS, LENGTH, WIDTH), torch.nan) for _ in range(8)]  # memory to be reused
    del garbage
    if first == "write":
        write(cache, [5], [2], 3)
        wanted = {(0, 2): 5.0}
    else:
        cache.place(torch.tensor([1]), read([[5]]), torch.tensor([0]))
        wanted = {(1, 0): 5.0}
    found = contents(cache)
    assert {tuple(place): found[tuple(place)].item() for place in found.nonzero().tolist()} == wanted
    assert cache.layers[0].keys.shape == (ROWS, HEADS, LENGTH, WIDTH)


def test_buffers_stay_where_they_are():
    """A captured graph writes to the addresses it was captured with."""
    cache = filled()
    places = [buffer.data_ptr() for layer in cache.layers for buffer in (layer.keys, layer.values)]
    write(cache, [1, 2], [0, 6], LENGTH)
    write(cache, [1, 2, 3, 4], [4] * 4, 5, ragged=False)
    cache.copy(torch.tensor([0]), torch.tensor([1]), 4)
    cache.place(torch.tensor([0]), read([[1, 2]]), torch.tensor([0]))
    assert places == [buffer.data_ptr() for layer in cache.layers for buffer in (layer.keys, layer.values)]
    assert cache.layers[0].get_max_length() == LENGTH


def test_an_empty_cache_holds_nothing():
    assert SlotCache(LAYERS, ROWS, LENGTH).get_seq_length() == 0
