"""Decoders: which contexts are read, and that a memory is never taken for the truth."""

import copy

import pytest
import torch
from architectures import CAPS, GEMMA, TOLERANCE, Architecture, InDouble, small_envs
from architectures import policy_of as model_policy
from diagonal import slow
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from identity_checks import (
    EXACT,
    assert_close,
    check_plain_reference,
    check_running_equals_fresh,
)
from tiny_models import MODELS, text_envs, tiny_policy

from agents import LanguageModelPolicy
from agents.language import cuda_graph as captured

models = pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])
SLOTS, VOCAB, LENGTH = 6, 10, 20


def policy_of(name="gpt2", **kwargs):
    return tiny_policy(name, text_envs(1), **kwargs)  # contexts of up to 20 tokens


def observe(contexts):
    """Return these contexts as an observation, with junk of each slot's own where there is nothing."""
    tokens = (torch.arange(len(contexts)) % VOCAB)[:, None].repeat(1, LENGTH)
    for row, context in enumerate(contexts):
        tokens[row, : len(context)] = torch.tensor(context)
    return {"tokens": tokens, "length": torch.tensor([len(context) for context in contexts])}


@torch.no_grad()
def law_after(policy, contexts):
    """Return log pi after each context [B, V], from one plain forward pass of right-padded rows."""
    obs = observe(contexts)
    logits = policy.model(obs["tokens"]).logits[torch.arange(len(contexts)), obs["length"] - 1]
    return torch.log_softmax(logits / policy.temperature, -1)


def assert_true(policy, contexts, actions, log_probs, playing=None):
    """These are log-probabilities of those actions after those contexts, in the slots that play."""
    wanted = law_after(policy, contexts).gather(1, actions[:, None])[:, 0]
    playing = torch.ones(len(contexts), dtype=torch.bool) if playing is None else playing
    assert_close(log_probs[playing], wanted[playing], EXACT, "acting and a plain forward pass")


def flags(numbers=(), slots=SLOTS):
    """Return bool [B], true at these slots."""
    return torch.isin(torch.arange(slots), torch.tensor(list(numbers), dtype=torch.int64))


ALL, NONE = flags(range(SLOTS)), flags()


# The law: whatever slots do, each acts as a plain forward pass of its own context says.


def decoder_of(kind, policy, slots=SLOTS):
    if kind == "captured":
        return policy._captures.decoder(policy.model, policy._choose, slots, policy.max_length)
    return LanguageModelPolicy.initial_state(policy, slots)


each = st.lists(st.booleans(), min_size=SLOTS, max_size=SLOTS)
prompts = st.lists(st.sampled_from([[1, 2], [3], [3, 4, 5], [6]]), min_size=SLOTS, max_size=SLOTS)


@drawn(30)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(["plain", "captured"]),
    prompts,
    st.lists(st.tuples(each, each, each, each, prompts), max_size=7),
)
def test_whoever_plays_pauses_or_restarts_gets_the_law_of_its_own_context(name, kind, first, steps):
    policy, generator = policy_of(name), torch.Generator().manual_seed(0)
    contexts, state = [list(prompt) for prompt in first], decoder_of(kind, policy)
    playing = ALL.clone()  # the same tensor all the time, which its owner changes
    policy.act(observe(contexts), state, ALL, False, generator)
    for written, plays, restarts, waits, fresh in steps:
        starts = torch.tensor(restarts)
        for slot, context in enumerate(contexts):
            if starts[slot]:
                context[:] = fresh[slot]
            elif playing[slot] or not waits[slot]:  # who has not played may keep what it has
                context.append(int(written[slot]))
        playing.copy_(torch.tensor(plays))
        actions, log_probs, after = policy.act(observe(contexts), state, starts, False, generator, playing)
        assert after is state or starts.all()
        state = after
        assert_true(policy, contexts, actions, log_probs, playing if playing.any() else ALL)


# What is remembered is no longer true.


def test_a_state_for_another_number_of_slots_is_not_used():
    policy = policy_of()
    _, _, state = policy.act(observe([[1]] * 4), None, flags(range(4), 4))
    contexts = [[1, 2], [3], [4, 5]]
    actions, log_probs, other = policy.act(observe(contexts), state, flags(range(3), 3))
    assert other is not state and other.num_slots == 3
    assert_true(policy, contexts, actions, log_probs)


# The captured step, which is simply run on a CPU.


@models
def test_two_users_of_a_captured_decoder_do_not_disturb_each_other(name, monkeypatch):
    monkeypatch.setattr(captured, "BUCKET", 4)  # so that windows grow
    policy = policy_of(name)
    policy.initial_state = lambda num_envs: decoder_of("captured", policy)
    contexts = [[[1, 2], [3], [3], [4, 5, 6], [1], [2]], [[5], [6], [1, 2, 3], [4], [4], [7, 8]]]
    states, starts = [None, None], [ALL, ALL]
    for user in [0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0]:
        actions, log_probs, states[user] = policy.act(observe(contexts[user]), states[user], starts[user])
        assert_true(policy, contexts[user], actions, log_probs)
        starts[user] = NONE
        contexts[user] = [[*context, action] for context, action in zip(contexts[user], actions.tolist(), strict=True)]
    assert states[0] is not states[1] and states[0].capture is states[1].capture


# Families, beside those of test_architectures.py.


ROPE = {"rope_theta": 10_000.0, "factor": 2.0}
UNUSUAL = {
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", **ROPE}}),
    "yarn": ("LlamaConfig", {"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 8, **ROPE}}),
    "dynamic": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", **ROPE}}),  # by the length
    "mixed": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "eager": ("MistralConfig", {"sliding_window": 4, "attn_implementation": "eager"}),
    "capped": ("Gemma2Config", {**GEMMA, **CAPS, "pad_token_id": 0}),
    "scaled": ("GraniteConfig", {"logits_scaling": 3.0}),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_model_of_unusual_settings_acts_as_it_is_trained(kind):
    """Embeddings of a padding token are zero: nothing can be learned about a head that caps from them."""
    envs, (config, sizes) = small_envs(), UNUSUAL[kind]
    with InDouble():
        policy = model_policy(Architecture(kind, config, "", sizes).model(), envs)
        check_plain_reference(policy, envs, TOLERANCE)
        check_running_equals_fresh(policy, envs, TOLERANCE, steps=24)
    assert policy.head_is_plain == (kind not in ("capped", "scaled"))


# Weights that lie elsewhere, and modules that somebody listens to.


def pretend_gpu(monkeypatch):
    """Let policies act with captured steps, which are simply run here, on the storages that weights had at first."""

    def by_address(model):
        seen = copy.deepcopy(model)
        for copied, weight in zip(seen.parameters(), model.parameters(), strict=True):
            copied.data = weight.data
        return seen

    monkeypatch.setattr(LanguageModelPolicy, "device", torch.device("cuda"))
    monkeypatch.setattr(captured, "acting_copy", by_address)


MOVES = {
    "storage": lambda policy: [setattr(p, "data", p.data.clone()) for p in policy.parameters()],
    "parameter": lambda policy: setattr(
        policy.model.lm_head, "weight", torch.nn.Parameter(policy.model.lm_head.weight.detach().clone())
    ),
    "precision": lambda policy: policy.float().double(),
    "buffers": lambda policy: [
        setattr(m, "inv_freq", m.inv_freq.clone()) for m in policy.modules() if hasattr(m, "inv_freq")
    ],
}


@pytest.mark.parametrize("move", MOVES)
def test_captured_steps_are_dropped_when_a_weight_or_buffer_lies_elsewhere(move, monkeypatch):
    pretend_gpu(monkeypatch)
    policy = policy_of("llama")
    contexts = [[1, 2], [1, 2, 3], [4], [4], [5, 6], [1]]
    _, _, state = policy.act(observe(contexts), None, ALL)
    capture = state.capture
    with torch.no_grad():
        policy.model.model.layers[1].mlp.down_proj.weight.mul_(1.5)
    actions, log_probs, state = policy.act(observe(contexts), state, NONE)
    assert_true(policy, contexts, actions, log_probs)
    assert policy.initial_state(SLOTS).capture is state.capture is capture, (
        "weights that change in place are captured once"
    )
    MOVES[move](policy)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1.1)
    contexts = [[*context, 7] for context in contexts]
    actions, log_probs, state = policy.act(observe(contexts), state, NONE)
    assert_true(policy, contexts, actions, log_probs)
    assert policy.initial_state(SLOTS).capture is state.capture is not capture
