"""Packed copies of weights: used for large weights, renewed when these change, and never copied or trained."""

import copy

import pytest
import torch
from identity_checks import ROUNDING, assert_close, collect
from tiny_models import text_envs, tiny_policy

from agents.policies.language.decoding import packed
from agents.policies.language.decoding.packed import can_pack
from agents.policies.language.decoding.products import Products


@pytest.fixture
def renewed(monkeypatch):
    """Pack small weights, too; return the packed copies in the order in which they are made and used."""
    can_pack(torch.bfloat16)  # tried before it is watched
    if not can_pack(torch.float32):
        pytest.skip("this torch cannot pack weights")
    made, product = [], packed.product

    def watch(x, copied, bias):
        made.append(copied)
        return product(x, copied, bias)

    monkeypatch.setattr(packed, "LARGE", 1)
    monkeypatch.setattr(packed, "product", watch)
    return made


@torch.inference_mode()
def product(products, x):
    return torch.cat(list(products(x)), 1)


@pytest.mark.parametrize("bias", [True, False])
def test_a_changed_weight_is_packed_again(renewed, bias):
    layers = [torch.nn.Linear(8, 6, bias=bias), torch.nn.Linear(8, 4, bias=bias)]
    with torch.no_grad():
        for weight in (*layers[0].parameters(), *layers[1].parameters()):
            weight.copy_(torch.arange(weight.numel()).sin().view_as(weight))
    products, x = Products(layers), torch.arange(16 * 8).cos().view(16, 8)

    def plain():
        with torch.no_grad():
            return torch.cat([layer(x) for layer in layers], 1)

    assert_close(product(products, x), plain(), ROUNDING, "the first time")
    assert_close(product(products, x), plain(), ROUNDING, "the second time")
    assert renewed[0] is renewed[1] and len(renewed) == 2, "one copy"
    with torch.no_grad():
        layers[0].weight.mul_(2)
    assert_close(product(products, x), plain(), ROUNDING, "after a change that torch counts")
    layers[1].weight.data.mul_(3)
    products.forget()
    assert_close(product(products, x), plain(), ROUNDING, "after a change that it does not count")
    used = len(renewed)
    assert_close(torch.cat(list(products(x)), 1), plain(), ROUNDING, "with gradients")
    product(products, x[:15])
    assert len(renewed) == used, "gradients and fewer rows need the weights themselves"
    twin = copy.deepcopy(products)
    assert twin.packed.made is None
    assert twin.packed.layers[0][0] is twin.layers[0][0] is not layers[0].weight


def test_acting_with_packed_weights_equals_training(renewed):
    envs = text_envs(24)
    policy = tiny_policy("llama", envs, dtype="float32", share_contexts=False)
    for scale in (1.0, 1.1):
        with torch.no_grad():
            for weight in policy.parameters():
                weight.data.mul_(scale)
        rollout = collect(policy, envs)
        with torch.no_grad():
            log_probs, _ = policy.evaluate_actions(rollout)
        assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], ROUNDING, "acting and training")
    assert renewed


def test_packing_can_be_switched_off(renewed):
    envs = text_envs(24)
    kept = collect(tiny_policy("llama", envs, dtype="float32", share_contexts=False), envs)
    assert renewed
    renewed.clear()
    plain = collect(tiny_policy("llama", envs, dtype="float32", share_contexts=False, pack_weights=False), envs)
    assert not renewed
    assert_close(plain.log_probs, kept.log_probs, ROUNDING, "without packed weights")


def test_16_bits_are_packed_for_any_number_of_rows(renewed):
    if not can_pack(torch.bfloat16):
        pytest.skip("this torch cannot pack weights of 16 bits")
    layers = [torch.nn.Linear(8, 6), torch.nn.Linear(8, 4)]
    with torch.no_grad():
        for weight in (*layers[0].parameters(), *layers[1].parameters()):
            weight.copy_(torch.arange(weight.numel()).sin().view_as(weight))
    products = Products([layer.bfloat16() for layer in layers])
    for rows in (1, 16):
        x = torch.arange(rows * 8).cos().view(rows, 8).bfloat16()
        expected = torch.cat([layer(x) for layer in layers], 1)
        torch.testing.assert_close(product(products, x), expected.detach(), atol=2e-2, rtol=2e-2)
    assert len(renewed) == 2 and renewed[0] is renewed[1]
