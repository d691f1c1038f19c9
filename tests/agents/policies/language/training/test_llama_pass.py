"""The written-out training pass computes what the model's own forward and backward passes do."""

import copy

import pytest
import torch
from identity_checks import EXACT, ROUNDING, assert_close
from tiny_models import norm_in_double, tiny_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma.modeling_gemma import GemmaTextScaledWordEmbedding as GemmaEmbedding

from agents.policies.language.training import forward, fused
from agents.policies.language.training.reading import Reading, forest_of_two, tree_of_two
from agents.policies.language.training.llama_pass import is_written_out

SHAPE = {
    "vocab_size": 11, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.3, "pad_token_id": None,
}  # fmt: skip
KINDS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "llama with biases": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=8)),
}
CONTEXTS = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 9, 8, 7, 6]])


def model_of(kind, dtype=torch.float64):
    """Return a model whose biases and norms matter, too."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = KINDS[kind]().eval()
        if dtype is torch.float64:
            norm_in_double(model)
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                nn.init.normal_(weight, mean=float("norm" in name), std=0.5)
    return model.to(dtype)


def plain_rows(contexts, fork):
    rows = torch.arange(contexts.numel())
    return Reading(contexts, None, None, rows, contexts.flatten(), rows)


def made(model, reading, recompute=False):
    """Return hidden states and the gradient of every weight of a loss that depends on all of them."""
    model.zero_grad()
    states = reading.outputs(model, model.base_model, "last_hidden_state", recompute)
    (states * torch.arange(states.numel()).view_as(states).sin()).sum().backward()
    return states.detach(), {name: weight.grad for name, weight in model.base_model.named_parameters()}


@pytest.mark.parametrize("plan", [plain_rows, tree_of_two, forest_of_two])
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_gradients_are_those_of_the_model(kind, plan, monkeypatch):
    model, reading = model_of(kind), plan(CONTEXTS, 3)
    assert is_written_out(model.base_model)
    monkeypatch.setattr(fused, "CHUNK", 3)  # tokens in several chunks, the last one smaller
    ours, again = made(model, reading), made(model, reading, recompute=True)
    monkeypatch.setattr(reading, "is_written_out", lambda part: False)
    states, gradients = made(model, reading)
    assert gradients.keys() == ours[1].keys() and all(grad.abs().max() > 1e-3 for grad in gradients.values())
    for each, weights in (ours, again):
        assert_close(each, states, EXACT, "states")
        for name, wanted in gradients.items():
            assert_close(weights[name], wanted, 1e-10, name)


@pytest.mark.parametrize("kind", KINDS)
def test_in_single_precision_it_differs_by_rounding(kind, monkeypatch):
    model, reading = model_of(kind, torch.float32), forest_of_two(CONTEXTS, 3)
    ours = made(model, reading)
    monkeypatch.setattr(reading, "is_written_out", lambda part: False)
    states, gradients = made(model, reading)
    assert_close(ours[0], states, ROUNDING, "states")
    for name, wanted in gradients.items():
        assert_close(ours[1][name] / wanted.norm(), wanted / wanted.norm(), ROUNDING, name)


def test_only_the_states_that_are_asked_for_are_returned(monkeypatch):
    model, chosen = model_of("qwen3"), torch.tensor([5, 0, 5, 13])
    whole = plain_rows(CONTEXTS, 3)
    some = Reading(CONTEXTS, None, None, chosen, chosen, chosen)
    (every, _), (few, ours) = made(model, whole), made(model, some)
    assert_close(few, every[chosen], EXACT, "states")
    monkeypatch.setattr(reading, "is_written_out", lambda part: False)
    for name, wanted in made(model, some)[1].items():
        assert_close(ours[name], wanted, 1e-10, name)


def test_weights_that_are_not_trained_get_no_gradient():
    model = model_of("qwen3")
    free = made(model, plain_rows(CONTEXTS, 3))[1]
    frozen = ("embed_tokens.weight", "layers.0.mlp.up_proj.weight", "layers.0.mlp.gate_proj.weight",
              "layers.1.mlp.down_proj.weight",
              "layers.1.self_attn.q_norm.weight", "layers.2.self_attn.o_proj.weight", "norm.weight")  # fmt: skip
    for name in frozen:
        model.base_model.get_parameter(name).requires_grad_(False)
    for name, grad in made(model, plain_rows(CONTEXTS, 3))[1].items():
        if name in frozen:
            assert grad is None
        else:
            assert_close(grad, free[name], EXACT, name)


def test_no_gradient_is_recorded_where_none_is_wanted():
    model = model_of("llama")
    with torch.no_grad():
        states = plain_rows(CONTEXTS, 3).outputs(model, model.base_model, "last_hidden_state", recompute=True)
    assert not states.requires_grad


class OwnLinear(nn.Linear):
    """A layer of a user's."""


def biased(part):
    part.bias = nn.Parameter(torch.ones(part.out_features))


def changed(change):
    model = copy.deepcopy(model_of("llama", torch.float32))
    change(model)
    return model


CHANGES = {
    "a hook": lambda model: model.model.layers[1].mlp.register_forward_hook(lambda *args: None),
    "another activation": lambda model: setattr(model.model.layers[1].mlp, "act_fn", nn.GELU()),
    "a layer of one's own": lambda model: setattr(model.model.layers[0].mlp, "up_proj", OwnLinear(16, 24)),
    "attention that returns its weights": lambda model: model.set_attn_implementation("eager"),
    "16 bits": lambda model: model.bfloat16(),
    "a norm of another kind": lambda model: setattr(model.model.layers[0], "input_layernorm", nn.LayerNorm(16)),
    "a norm of another model": lambda model: setattr(model.model, "norm", GemmaRMSNorm(16)),
    "a norm without its constant": lambda model: setattr(model.model, "norm", nn.RMSNorm(16)),
    "embeddings that are scaled": lambda model: setattr(model.model, "embed_tokens", GemmaEmbedding(11, 16, 0, 4.0)),
    "layers that are left out": lambda model: setattr(model.config, "num_hidden_layers", 2),
    "a bias of one projection": lambda model: biased(model.model.layers[0].self_attn.k_proj),
    "a bias of one gate": lambda model: biased(model.model.layers[0].mlp.gate_proj),
    "a hook on gradients": lambda model: model.model.layers[1].mlp.register_full_backward_hook(lambda *args: None),
    "norms that round to single precision": lambda model: model.double(),
    "dropout in training mode": lambda model: (setattr(model.config, "attention_dropout", 0.5), model.train()),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_models_with_anything_unusual_run_their_own_pass(change):
    assert is_written_out(changed(lambda model: None).base_model)
    assert not is_written_out(changed(CHANGES[change]).base_model)


def test_mixed_precision_runs_the_models_own_pass():
    model = model_of("llama", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_written_out(model.base_model)
        made(model, plain_rows(CONTEXTS, 3))


def test_sliding_windows_run_the_models_own_pass():
    assert not is_written_out(tiny_model("mistral").base_model) and not is_written_out(tiny_model("gpt2").base_model)


def test_the_gradients_of_norms_and_rotations_are_those_of_differences():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x, weight, angles = draw(5, 3, 4).requires_grad_(), draw(3, 4).requires_grad_(), draw(5, 1, 2)
    assert torch.autograd.gradcheck(lambda *inputs: fused.RmsNorm.apply(*inputs, 1e-6), (x, weight))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([-angles.sin(), angles.sin()], -1)
    assert torch.autograd.gradcheck(lambda x: fused.Rotated.apply(x, cos, sin), (x,))
