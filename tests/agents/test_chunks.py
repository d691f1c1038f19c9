"""What a pass keeps: wide rows in chunks give the same and never exist at once; activation checkpointing keeps less."""

import pytest
import torch
from identity_checks import collect
from tiny_models import text_envs, tiny_model, tiny_policy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlenv.agents import LanguageModelPolicy, Rollout
from rlenv.agents.language import policy as chunks
from rlenv.agents.language.acting_copy import is_changed


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that was made."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        sizes = [x.numel() for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return made


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_chosen_log_probabilities_and_their_gradient_are_those_of_autograd(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(23, 8, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    actions = torch.randint(8, (23,), generator=generator)
    coefficients = torch.randn(23, generator=generator, dtype=torch.promote_types(dtype, torch.float32))
    precise = logits.log_softmax(-1, dtype=coefficients.dtype).gather(1, actions[:, None])[:, 0]
    ours = chunks.ChosenLogProbs.apply(logits, actions)
    assert torch.equal(ours, precise) and ours.dtype == coefficients.dtype
    (mine,), (theirs,) = (torch.autograd.grad((made * coefficients).sum(), logits) for made in (ours, precise))
    assert mine.dtype == theirs.dtype == dtype
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("want", [("log_probs",), ("log_probs", "entropy"), ("kl",)])
def test_probabilities_of_all_rows_never_exist_at_once(want, monkeypatch):
    vocab_size, rows = 5000, 8
    monkeypatch.setattr(chunks, "ELEMENTS", vocab_size * rows)
    envs = text_envs(1)
    spaces = envs.single_observation_space, type(envs.single_action_space)(vocab_size)
    policy, reference = (LanguageModelPolicy(*spaces, tiny_model("gpt2", vocab_size, seed)) for seed in (0, 1))
    generator = torch.Generator().manual_seed(0)
    tokens, actions = (torch.randint(vocab_size, shape, generator=generator) for shape in ((20, 20), (20, 10)))
    lengths = torch.full((20,), 5)
    rollout = Rollout.of_demonstrations({"tokens": tokens, "length": lengths}, actions, torch.ones(20, 10) > 0)

    def largest():
        with Largest() as seen:
            sum(x.sum() for x in policy.evaluate(rollout, want, reference).values()).backward()
        return seen.elements

    weights = policy.model.get_output_embeddings().weight.numel()
    assert weights <= 16 * vocab_size
    assert vocab_size * rows <= largest() < 64 * vocab_size
    monkeypatch.setattr(chunks, "ELEMENTS", 2**25)
    assert largest() >= 200 * vocab_size, "what is measured is there without chunks"


# Activation checkpointing: less memory, and a model that is left as it was; tests/laws/test_layouts.py: the gradient.


def saved_bytes(policy, rollout):
    """Return what a training pass keeps for the backward pass."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.evaluate(rollout)
    return sum(kept.values())


def test_less_is_kept_and_the_model_is_left_as_it_was():
    envs = text_envs(4)
    policy = tiny_policy("llama", envs)
    rollout = collect(policy, envs)
    plain = saved_bytes(policy, rollout)
    policy.activation_checkpointing = True
    assert saved_bytes(policy, rollout) < 0.4 * plain
    assert not any(map(is_changed, policy.modules()))
