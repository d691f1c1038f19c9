"""What acts and what a pass keeps: products by library, packed and merged layers, chunks, activation checkpointing."""

import pytest
import torch
from diagonal import diagonal
from identity_checks import EXACT, ROUNDING, assert_close, collect
from tiny_models import norm_in_double, text_envs, tiny_model, tiny_policy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Qwen2Config

from rlenv.agents import LanguageModelPolicy, Rollout
from rlenv.agents.language import acting_copy as acting
from rlenv.agents.language import policy as chunks
from rlenv.agents.language import products
from rlenv.agents.language.acting_copy import ActingLinear, acting_copy, is_changed, refresh
from rlenv.agents.language.adapters import adapt
from rlenv.agents.language.products import Product, can_pack


@pytest.fixture
def packed(monkeypatch):
    """Pack small weights, too; return the packed copies in the order in which they are used."""
    can_pack(torch.bfloat16)  # tried before it is watched
    if not can_pack(torch.float32):
        pytest.skip("this torch cannot pack weights")
    used, pack = [], acting.pack

    def watched(weight):
        product = pack(weight)
        return lambda *given: used.append(product) or product(*given)

    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(acting, "pack", watched)
    return used


def qwen2(dtype, targets=None):
    """Return a model with biases in some projections, and with an adapter that has an effect."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(Qwen2Config(vocab_size=10, num_key_value_heads=2, **sizes)).eval()
        norm_in_double(model)
        adapt(model.to(dtype), None, None, 3 if targets else None, None, targets)
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(std=0.3)
    return model


@torch.inference_mode()
def logits(model, rows):
    return model(torch.arange(2 * rows).view(rows, 2) * 7 % 10, use_cache=False).logits


TOLERANCES = {torch.float64: EXACT, torch.float32: ROUNDING, torch.bfloat16: 0.1}


@pytest.mark.parametrize("mkl", [True, False], ids=["MKL", "oneDNN"])
@diagonal("dtype, targets", list(TOLERANCES), [None, "all-linear", "k_proj,down_proj,up_proj"])
def test_a_copy_computes_what_the_model_does_and_follows_it(dtype, targets, mkl, packed, monkeypatch):
    """Without MKL, as on ARM, oneDNN packs in single precision, too."""
    if mkl and not torch.backends.mkl.is_available():
        pytest.skip("this torch has no MKL")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    model = qwen2(dtype, targets)
    copied = acting_copy(model)
    for _ in range(2):
        for rows in (1, 20) if dtype is torch.bfloat16 else (1, 3, 16, 150):  # few, and enough for packed weights
            wanted = logits(model, rows)
            assert float(wanted.std()) > 0.5
            assert_close(logits(copied, rows), wanted, TOLERANCES[dtype], f"the copy of {rows} rows")
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.data.mul_(1.2)  # which torch does not count
        refresh(copied)
    assert bool(packed) == (dtype is not torch.float64)


def test_a_copy_shares_all_but_what_it_merges_and_is_the_model_where_nothing_is_to_do():
    assert acting_copy(model := qwen2(torch.float32)) is model, "small weights without an adapter"
    model = qwen2(torch.float32, "down_proj")
    copied = acting_copy(model)
    assert type(copied) is type(model) and copied is not model
    theirs = {weight.data_ptr() for weight in model.parameters()}
    own = {name for name, weight in copied.named_parameters() if weight.data_ptr() not in theirs}
    assert own == {f"model.layers.{index}.mlp.down_proj.weight" for index in range(2)}
    model.lm_head.register_forward_hook(lambda *_: None)
    assert acting_copy(model) is model, "a hook may read or change anything"


def test_in_half_precision_an_adapter_stays_apart():
    """There W + s B A would round to W: the first steps of an adapter would be trained and never sampled from."""
    model = qwen2(torch.bfloat16, "all-linear")
    theirs = {weight.data_ptr() for weight in model.parameters()}
    layers = [part for part in acting_copy(model).modules() if isinstance(part, ActingLinear)]
    assert len(layers) == 14 and all(layer.weight.data_ptr() in theirs for layer in layers)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(2**-11)  # of weights of 1 the sum would be rounded away
            elif "base_layer" in name:
                weight.fill_(1)
    layer = acting_copy(model).model.layers[0].mlp.up_proj
    x = torch.cat([torch.linspace(0, 2, 8), -torch.linspace(0, 2, 8)])[None].bfloat16()
    assert torch.equal(layer(x), model.model.layers[0].mlp.up_proj(x))
    assert (layer(x) != 0).all(), "the base alone gives 0"


def on_processor(monkeypatch, name, instructions="AVX512"):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name}, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)


@pytest.mark.parametrize(
    ("name", "instructions", "least"),
    [("Intel Xeon", "AVX512", 4), ("Intel Xeon", "AVX2", 2), (None, "DEFAULT", 16), ("AMD EPYC", "AVX2", 1)],
)
def test_the_rows_from_which_weights_are_packed_depend_on_the_processor(name, instructions, least, packed, monkeypatch):
    on_processor(monkeypatch, name, instructions)
    layer, seen = ActingLinear(torch.nn.Linear(8, 6), True), []
    with torch.inference_mode():
        for rows in range(1, least + 1):
            layer(torch.ones(rows, 8))
            seen.append(len(packed))
    assert seen == [0] * (least - 1) + [1]


def test_the_product_of_onednn_has_the_gradients_of_a_linear_layer():
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((5, 7, 20), (11, 20), (11,))]

    def made(linear):
        """Return the product, its gradients and those of a penalty on these."""
        out = linear(*inputs)
        gradients = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        return [out, *gradients, *torch.autograd.grad(sum(x.square().sum() for x in gradients), inputs)]

    for ours, theirs in zip(made(Product.apply), made(torch.nn.functional.linear), strict=True):
        assert_close(ours / theirs.abs().max(), theirs / theirs.abs().max(), ROUNDING, "by oneDNN")


@pytest.mark.parametrize(
    ("name", "dtype"), [("AMD EPYC", "float32"), ("Intel Xeon", "float32"), ("AMD EPYC", "float64")]
)
def test_training_multiplies_by_onednn_on_amd_and_computes_the_same(name, dtype, packed, monkeypatch):
    policy, used, product = tiny_policy("llama", envs := text_envs(4), dtype=dtype), [], products.Product.apply
    monkeypatch.setattr(products.Product, "apply", lambda *given: used.append(given) or product(*given))
    rollout, made = collect(policy, envs), []
    for processor in ("Intel Xeon", name):
        on_processor(monkeypatch, processor)
        monkeypatch.setattr(products, "WORTH_IT", 1)
        policy.zero_grad()
        log_probs = policy.evaluate(rollout)["log_probs"]
        log_probs.sum().backward()
        made.append([log_probs, *(weight.grad for weight in policy.parameters())])
    linear = [part for part in policy.modules() if isinstance(part, torch.nn.Linear)]
    forward = sum(any(weight is part.weight for part in linear) for _, weight, _ in used)
    assert forward == (len(linear) if (name, dtype) == ("AMD EPYC", "float32") else 0), (
        "a product per layer, in training"
    )
    for usual, other in zip(*made, strict=True):
        most = usual.abs().max()
        assert_close(other / most, usual / most, EXACT if dtype == "float64" else ROUNDING, "by oneDNN")


@pytest.mark.parametrize(("slots", "pack_weights"), [(20, False), (1, True)])
def test_nothing_is_packed_where_it_is_switched_off_or_steps_have_too_few_rows(
    slots, pack_weights, packed, monkeypatch
):
    """The prompts of one slot have rows enough, but are read once: packing would cost more than it saves."""
    on_processor(monkeypatch, "Intel Xeon")
    envs = text_envs(slots)
    policy = tiny_policy("llama", envs, dtype="float32", pack_weights=pack_weights)
    packed.clear()  # of the model's trial
    collect(policy, envs)
    assert not packed
    assert tiny_policy("llama", text_envs(20), dtype="float32", pack_weights=True) and packed, "the trial packs"


def test_a_hook_on_the_trunk_sees_every_step():
    envs = text_envs(4)
    policy, seen = tiny_policy("llama", envs, dtype="float32"), []
    policy.model.base_model.register_forward_hook(lambda *args: seen.append(args[-1].last_hidden_state.shape[1]))
    rollout = collect(policy, envs, episodes=4)
    assert seen.count(1) >= rollout.mask.shape[1] - 1 > 0


# Wide rows in chunks give the same and never exist at once; activation checkpointing keeps less.


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


@pytest.mark.parametrize("want", [("log_probs", "entropy"), ("kl",)])
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
