"""Tokens chosen in parts: the same tokens, log-probabilities and random numbers as all at once."""

import pytest
import torch
from identity_checks import check_acting_equals_training, collect
from tiny_models import text_envs, tiny_policy
from torch.utils._python_dispatch import TorchDispatchMode

from agents.policies.choosing import choose
from agents.policies.language.decoding import sampling
from agents.policies.language.decoding.sampling import choose_in_parts
from agents.policies.language.nucleus import nucleus

ROWS, VOCAB, PADDED = 23, 50, 53
LAWS = {
    "whole": lambda x: torch.log_softmax(x[..., :VOCAB], -1),
    "nucleus": lambda x: nucleus(torch.log_softmax(x[..., :VOCAB], -1), 0.7),
}


def logits_of(dtype):
    return 3 * torch.randn(ROWS, PADDED, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [1, 4, 22, 23, 100])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("greedy", [True, False])
def test_parts_of_any_size_choose_the_same(rows, law, greedy, monkeypatch):
    monkeypatch.setitem(sampling.CACHED, "cpu", rows * VOCAB + 1)
    logits = logits_of(torch.float32)
    generator = torch.Generator().manual_seed(2)
    numbers = torch.rand(ROWS, dtype=torch.float64, generator=generator.clone_state())
    wanted = choose(LAWS[law](logits), greedy, numbers)
    for source in (numbers, generator):
        made = choose_in_parts(LAWS[law], logits, VOCAB, greedy, source)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(made, wanted, strict=True))


def test_the_distribution_of_all_rows_never_exists_at_once(monkeypatch):
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            if function is torch.ops.aten._log_softmax.default:
                self.elements = max(self.elements, made.numel())
            return made

    monkeypatch.setitem(sampling.CACHED, "cpu", 4 * VOCAB)
    with Largest() as seen:
        choose_in_parts(LAWS["whole"], logits_of(torch.float32), VOCAB, False, None)
    assert seen.elements == 4 * VOCAB


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-10), pytest.param("float32", 1e-5, marks=pytest.mark.slow)]
)
def test_acting_in_parts_equals_training(dtype, tolerance, monkeypatch):
    envs = text_envs(6)
    policy = tiny_policy("llama", envs, dtype=dtype, temperature=0.7)
    whole = collect(policy, envs, 12)
    monkeypatch.setitem(sampling.CACHED, "cpu", 2 * policy.vocab_size)
    parts = collect(policy, envs, 12)
    assert torch.equal(parts.actions, whole.actions) and torch.equal(parts.log_probs, whole.log_probs)
    check_acting_equals_training(policy, envs, tolerance)
