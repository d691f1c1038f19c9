"""Decoders: which contexts are read, by which step, and that what they remember is never taken for the truth."""

import copy

import pytest
import torch
from diagonal import diagonal, slow
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from identity_checks import (
    EXACT,
    ROUNDING,
    assert_close,
    check_acting_equals_training,
    check_plain_reference,
    check_running_equals_fresh,
    check_state_forgets_old_weights,
    collect,
)
from tiny_models import MODELS, SPREAD, norm_in_double, text_envs, tiny_model, tiny_policy
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from agents import LanguageModelPolicy
from agents.policies.language import policy as language_model
from agents.policies.language.decoding import cuda_graph as captured
from agents.policies.language.decoding.cuda_graph import CapturedDecoder, Captures
from agents.policies.language.decoding.decoder import ContextDecoder, Decoder
from agents.policies.language.decoding.kv_cache import SlotCache
from agents.policies.language.decoding.step import GeneralStep, LlamaStep, make_step
from agents.policies.language.models.loading import has_plain_head

models = pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])
KINDS = ["own", "shared", "captured"]
kinds = pytest.mark.parametrize("kind", KINDS)
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


class Watched:
    """A step that remembers what it was asked to read."""

    def __init__(self, step):
        self.step, self.read, self.windows = step, [], []

    def __call__(self, tokens, positions, cache, window, ragged=True, unread=None):
        self.read.append(list(zip(tokens.tolist(), positions.tolist(), strict=True)))
        self.windows.append(window)
        return self.step(tokens, positions, cache, window, ragged, unread)


def watched(policy):
    policy._step = Watched(policy._step)
    return policy._step


ALL, NONE = flags(range(SLOTS)), flags()


# Distinct contexts.


class Game:
    """A policy that acts on contexts which a test chooses, checked at every step against a plain forward pass."""

    def __init__(self, policy, prompts):
        self.policy, self.step = policy, watched(policy)
        self.contexts, self.starts = [list(prompt) for prompt in prompts], ALL
        self.state, self.generator = policy.initial_state(len(prompts)), torch.Generator().manual_seed(0)

    def act(self, playing=None, starts=None):
        """Act once; return how many contexts were read."""
        starts = self.starts if starts is None else starts
        self.step.read.clear()
        obs = observe(self.contexts)
        actions, log_probs, state = self.policy.act(obs, self.state, starts, False, self.generator, playing)
        assert state is self.state
        counted = ALL if playing is None or not playing.any() else playing
        assert_true(self.policy, self.contexts, actions, log_probs, counted)
        self.starts = NONE
        return self._check_rows(counted)

    def _check_rows(self, playing):
        """The rows in use are the first ones, and each is read as the slots that have it say; return how many."""
        rows, number = self.state.row_of_slot, int(self.state.row_of_slot[playing].max()) + 1
        assert rows[playing].unique().tolist() == list(range(number))
        assert len(self.step.read) <= 1 and all(len(read) == number for read in self.step.read)
        for slot in playing.nonzero()[:, 0].tolist():
            context = self.contexts[slot]
            # Where everybody has just started, there may be nothing left for a step.
            assert all(read[rows[slot]] == (context[-1], len(context) - 1) for read in self.step.read)
            others = [self.contexts[i] for i in playing.nonzero()[:, 0].tolist() if rows[i] == rows[slot]]
            assert all(other == context for other in others), "slots share a row only with their equals"
        return number

    def go_on(self, tokens):
        for context, token in zip(self.contexts, tokens, strict=True):
            if token is not None:
                context.append(token)

    def distinct(self, playing=ALL):
        return len({tuple(context) for context, plays in zip(self.contexts, playing, strict=True) if plays})


@kinds
def test_equal_neighbours_are_read_once(kind):
    policy, read = policy_of(), []
    policy.model.base_model.register_forward_pre_hook(
        lambda module, args: read.append(args[0].tolist() if args else None)
    )
    contexts = [[1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 2, 3], [4, 5], [4, 5]]
    actions, log_probs, _ = policy.act(observe(contexts), decoder_of(kind, policy), ALL)
    assert read[0] == [[1, 2, 3], [1, 2, 4], [1, 2, 3], [4, 5, 0]]
    assert_true(policy, contexts, actions, log_probs)


@diagonal("kind, restarting", KINDS, [[0, 1, 2, 3, 4, 5], [1, 2], [0, 3, 5]])
def test_contexts_of_one_length_may_begin_together_in_all_slots_or_in_some(kind, restarting):
    """Equal neighbours are read once, and each slot still gets the law of its own context."""
    policy, contexts = policy_of(), [[1, 2], [1, 2], [3, 4], [3, 4], [1, 2], [5, 6]]
    state, starts = decoder_of(kind, policy), ALL
    for step in range(3):
        actions, log_probs, _ = policy.act(observe(contexts), state, starts)
        assert_true(policy, contexts, actions, log_probs)
        contexts, starts = [[*context, 1 + step] for context in contexts], NONE
    for slot in restarting:
        contexts[slot] = [7, slot // 2, 8]
    actions, log_probs, _ = policy.act(observe(contexts), state, flags(restarting))
    assert_true(policy, contexts, actions, log_probs)


def test_a_mask_may_be_changed_by_its_owner_between_steps():
    """A slot's row is what it was when it played last, not what the caller's tensor says by now."""
    game, playing = Game(policy_of(), [[k, 1] for k in range(SLOTS)]), flags(range(SLOTS))
    game.act(playing)
    game.go_on([1] * SLOTS)
    playing[1] = False
    game.act(playing)
    game.go_on([2] * SLOTS)
    playing[1] = True
    game.act(playing)


def test_nobody_has_to_play():
    game = Game(policy_of(), [[1, 2]] * 3 + [[3]] * 3)
    assert game.act(NONE) == 2
    game.go_on([1, 2, 1, 2, 1, 2])
    assert game.act(NONE) == 4
    game.act(NONE)
    game.go_on([1] * 6)
    assert game.act(flags([0, 5])) == 2


def test_acting_twice_on_the_same_observation_changes_nothing():
    for name in MODELS:
        for share in (True, False):
            policy = policy_of(name, share_contexts=share)
            contexts, state, starts = [[1, 2], [1, 2], [3], [4, 5, 6], [3], [1]], None, ALL
            for token in ([1, 2, 3, 4, 4, 1], [2, 2, 2, 2, 3, 3]):
                for _ in range(3):
                    actions, log_probs, state = policy.act(observe(contexts), state, starts, deterministic=True)
                    assert_true(policy, contexts, actions, log_probs)
                    starts = NONE
                contexts = [[*context, new] for context, new in zip(contexts, token, strict=True)]


tokens = st.lists(st.integers(0, 1), min_size=SLOTS, max_size=SLOTS)
some = st.lists(st.booleans(), min_size=SLOTS, max_size=SLOTS)
PROMPTS = [[1, 2], [3], [3, 4, 5], [6]]
prompts = st.lists(st.sampled_from(PROMPTS), min_size=SLOTS, max_size=SLOTS)


@drawn(10)
@given(st.sampled_from(MODELS), prompts, st.lists(st.tuples(tokens, some), max_size=7))
def test_rows_are_as_many_as_distinct_contexts_where_equal_ones_start_together(name, first, steps):
    game = Game(policy_of(name), sorted(first))
    assert game.act() == game.distinct()
    playing = ALL
    for chosen, leave in steps:
        game.go_on(chosen)
        stay = playing & torch.tensor(leave)
        playing = stay if stay.any() else playing  # who has stopped does not come back
        assert game.act(playing) == game.distinct(playing)


@drawn(15)
@given(st.sampled_from(MODELS), prompts, st.lists(st.tuples(tokens, some, some, some, prompts), max_size=7))
def test_whoever_plays_pauses_or_restarts_gets_the_law_of_its_own_context(name, first, steps):
    game = Game(policy_of(name), first)
    game.act()
    playing = ALL
    for chosen, plays, restarts, waits, fresh in steps:
        idle = ~playing & torch.tensor(waits)  # finished slots may keep what they have
        game.go_on([None if idle[slot] else token for slot, token in enumerate(chosen)])
        for slot in range(SLOTS):
            if restarts[slot] and chosen[slot]:
                game.contexts[slot] = list(fresh[slot])
        starts = torch.tensor(restarts) & (torch.tensor(chosen) == 1)
        playing = torch.tensor(plays) if any(plays) else ALL
        assert game.distinct(playing) <= game.act(playing, starts) <= int(playing.sum())


def test_sharing_is_less_work_in_a_rollout():
    envs = text_envs(32, group_size=8)
    read, distinct = {}, 0
    for share in (True, False):
        policy = tiny_policy("gpt2", envs, temperature=0.6, share_contexts=share)
        step, act = watched(policy), policy.act

        def counted(obs, *args, act=act, **kwargs):
            nonlocal distinct
            plays = kwargs["playing"].tolist()
            distinct += len(
                {tuple(t[:n]) for t, n, p in zip(*(x.tolist() for x in obs.values()), plays, strict=True) if p}
            )
            return act(obs, *args, **kwargs)

        if share:
            policy.act = counted
        rollout = collect(policy, envs, 32)
        read[share] = sum(map(len, step.read))
    assert read[False] == 32 * int(rollout.lengths.max())
    assert distinct == read[True] < int(rollout.mask.sum()) < read[False]


# What is remembered is no longer true.


def decoder_of(kind, policy, slots=SLOTS):
    parts = (policy.model, policy._step, policy._choose, slots, policy.max_length)
    if kind == "captured":
        return CapturedDecoder(*parts, Captures())
    return {"own": Decoder, "shared": ContextDecoder}[kind](*parts)


@models
def test_a_captured_decoder_forgets_old_weights(name):
    envs = text_envs(3)
    policy = tiny_policy(name, envs)
    policy.initial_state = lambda num_envs: decoder_of("captured", policy, num_envs)
    check_state_forgets_old_weights(policy, envs, EXACT)


def test_a_state_for_another_number_of_slots_is_not_used():
    policy = policy_of()
    _, _, state = policy.act(observe([[1]] * 4), None, flags(range(4), 4))
    contexts = [[1, 2], [3], [4, 5]]
    actions, log_probs, other = policy.act(observe(contexts), state, flags(range(3), 3))
    assert other is not state and other.num_slots == 3
    assert_true(policy, contexts, actions, log_probs)


# The captured step, which is simply run on a CPU.


class NoHost(TorchDispatchMode):
    """Raises where a value on the device would have to be known on the host: a captured graph has no host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::").split(".")[0]
        asks = ("_local_scalar_dense", "nonzero", "item", "equal", "is_nonzero", "masked_select", "repeat_interleave")
        if name in asks or "unique" in name:
            raise AssertionError(f"the host is asked by {name}")
        if name in ("index", "index_put", "index_put_") and any(
            i is not None and i.dtype is torch.bool for i in args[1]
        ):
            raise AssertionError(f"{name} by a mask asks how many there are")
        return function(*args, **(kwargs or {}))


def captured_policy(name, monkeypatch, bucket, **kwargs):
    """Return a policy that acts with a captured step, whose windows grow in small buckets, and what it captured."""
    monkeypatch.setattr(captured, "BUCKET", bucket)
    policy, captures = policy_of(name, **kwargs), Captures()
    parts = (policy.model, policy._step, policy._choose, SLOTS, policy.max_length, captures)
    policy.initial_state = lambda num_envs: CapturedDecoder(*parts)
    policy.initial_state(SLOTS)
    return policy, captures[SLOTS]


@models
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_captured_step_asks_the_host_nothing(name, deterministic, monkeypatch, generator):
    policy, decoder = captured_policy(name, monkeypatch, 8)
    contexts = [[1, 2, 3], [1], [4, 5], [4, 5], [6] * 7, [1]]
    actions, _, state = policy.act(observe(contexts), None, ALL, deterministic, generator)
    contexts = [[*context, action] for context, action in zip(contexts, actions.tolist(), strict=True)]
    policy.act(observe(contexts), state, NONE, deterministic, generator)
    [(run, outputs)] = [made for key, made in decoder.runs.items() if key[0] == 8]
    with torch.no_grad(), NoHost():
        run()
    assert_true(policy, contexts, *outputs)


@models
def test_a_captured_step_finds_everything_where_it_was(name, monkeypatch):
    policy, decoder = captured_policy(name, monkeypatch, 4)
    contexts, state, starts, places, windows = [[1, 2], [3], [3, 4], [5], [1], [1]], None, ALL, set(), []
    for step in range(12):
        actions, _, state = policy.act(observe(contexts), state, starts, deterministic=True)
        cached = [buffer for layer in decoder.cache.layers for buffer in (layer.keys, layer.values)]
        kept = [decoder.tokens, decoder.positions, *cached]
        places.add(tuple(tensor.data_ptr() for tensor in kept))
        windows.append({key[0] for key in decoder.runs})
        contexts = [[*context, action] for context, action in zip(contexts, actions.tolist(), strict=True)]
        starts = flags([step % 3])
        contexts[step % 3] = [step % 4]
    assert len(places) == 1
    assert windows[0] < windows[-1], "windows grow, and the buffers stay"
    outputs = [output.data_ptr() for _, made in decoder.runs.values() for output in made]
    assert len(set(outputs)) == len(outputs), "every graph leaves its results in a place of its own"


@pytest.mark.parametrize(
    ("name", "bucket"),
    [
        *(("gpt2", 5), ("llama", 1), slow("gpt2", 1), slow("llama", 5)),
        *(slow("mistral", 1), slow("mistral", 5)),
    ],
)
def test_a_captured_decoder_equals_a_fresh_one_at_every_step(name, bucket, monkeypatch):
    monkeypatch.setattr(captured, "BUCKET", bucket)
    envs = text_envs(3)
    policy = tiny_policy(name, envs)
    policy.initial_state = lambda num_envs: decoder_of("captured", policy, num_envs)
    check_running_equals_fresh(policy, envs, EXACT, steps=30)


def test_a_window_never_exceeds_the_longest_context(monkeypatch):
    policy, decoder = captured_policy("gpt2", monkeypatch, 64)
    state, starts = policy.initial_state(SLOTS), ALL
    for _ in range(LENGTH + 3):  # the bound that the host keeps counts every call
        actions, log_probs, state = policy.act(observe([[1] * LENGTH] * SLOTS), state, starts)
        assert_true(policy, [[1] * LENGTH] * SLOTS, actions, log_probs)
        starts = NONE
    assert {key[0] for key in decoder.runs} == {LENGTH}


@models
def test_two_users_of_a_captured_decoder_do_not_disturb_each_other(name, monkeypatch):
    policy, decoder = captured_policy(name, monkeypatch, 4)
    contexts = [[[1, 2], [3], [3], [4, 5, 6], [1], [2]], [[5], [6], [1, 2, 3], [4], [4], [7, 8]]]
    states, starts = [None, None], [ALL, ALL]
    for user in [0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0]:
        actions, log_probs, states[user] = policy.act(observe(contexts[user]), states[user], starts[user])
        assert_true(policy, contexts[user], actions, log_probs)
        starts[user] = NONE
        contexts[user] = [[*context, action] for context, action in zip(contexts[user], actions.tolist(), strict=True)]
    assert states[0] is not states[1] and states[0].capture is states[1].capture is decoder


def test_a_copy_of_a_policy_begins_without_captured_steps(generator):
    policy = policy_of("llama")
    state = CapturedDecoder(policy.model, policy._step, policy._choose, SLOTS, policy.max_length, policy._captures)
    contexts = [[1, 2], [3], [3, 4], [5], [1], [1]]
    policy.act(observe(contexts), state, ALL, generator=generator)
    twin = copy.deepcopy(policy)
    before = law_after(policy, contexts)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.1)
    assert (law_after(twin, contexts) - before).abs().max() > 1e-3
    for ours in (twin, policy):  # each on its own weights
        actions, log_probs, _ = ours.act(observe(contexts), None, ALL)
        assert_true(ours, contexts, actions, log_probs)


# Steps.

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": SPREAD,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
ROPE = {"rope_theta": 10_000.0, "factor": 2.0}
EARLIER = {"original_max_position_embeddings": 8}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "llama, biases": lambda: LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    "llama, tied": lambda: LlamaConfig(**SHAPE, tie_word_embeddings=True, head_dim=6),
    "llama, linear": lambda: LlamaConfig(**SHAPE, rope_parameters={"rope_type": "linear", **ROPE}),
    "llama, yarn": lambda: LlamaConfig(**SHAPE, rope_parameters={"rope_type": "yarn", **ROPE, **EARLIER}),
    "mistral": lambda: MistralConfig(**SHAPE, sliding_window=4),
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen2, mixed": lambda: Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=4),
}


def model_of(config, dtype="float64", attention="sdpa"):
    """Return a random model whose norms and biases are not those that make them invisible."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
        if dtype == "float64":
            norm_in_double(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
                elif name.endswith("bias"):
                    parameter.normal_(std=SPREAD)
    return model.to(getattr(torch, dtype))


def run(step, model, slots, even=False):
    """Read and decode contexts with a step; return logits and those of plain forward passes, step by step."""
    tokens = torch.randint(VOCAB, (slots, LENGTH), generator=torch.Generator().manual_seed(slots))
    lengths = torch.full((slots,), 5) if even else 1 + torch.arange(slots) * 5 % 7
    decoder = Decoder(model, step, None, slots, LENGTH)
    made, wanted = [], []
    for t in range(8):
        starts = torch.full((slots,), t == 0)
        made.append(decoder.logits(tokens, lengths + t, starts, None))
        with torch.no_grad():
            wanted.append(model(tokens).logits[torch.arange(slots), lengths + t - 1])
    return torch.stack(made), torch.stack(wanted)


def in_shapes(fast, *shapes):
    """Parametrize by the configuration and a shape: in the fast tests by those that `fast` gives a configuration."""
    chosen = {config: fast(number, config) for number, config in enumerate(CONFIGS)}
    return [
        (config, *shape) if shape in chosen[config] else slow(config, *shape) for config in CONFIGS for shape in shapes
    ]


SHAPES = [(3, False), (20, True), (20, False), (3, True)]  # few and many rows attend in different ways


@pytest.mark.parametrize(
    ("config", "slots", "even"),
    in_shapes(lambda number, config: SHAPES if config == "qwen2, mixed" else SHAPES[number % 2 :: 2][:1], *SHAPES),
)
def test_the_step_written_out_is_the_model(config, even, slots):
    model = model_of(CONFIGS[config]())
    ours, wanted = run(LlamaStep(model, LENGTH), model, slots, even)
    theirs, _ = run(GeneralStep(model), model, slots, even)
    assert type(make_step(model, LENGTH)) is LlamaStep and wanted.std() > 0.1
    assert_close(ours, wanted, EXACT, "the step written out and the model")
    assert_close(theirs, wanted, EXACT, "the general step and the model")


@pytest.mark.parametrize(
    ("config", "slots"), in_shapes(lambda number, config: [[(20,), (3,)][number % 2]], (3,), (20,))
)
def test_the_step_written_out_is_the_model_in_single_precision(config, slots):
    """Here the norms are transformers' own, of which torch's kernel takes the place."""
    model = model_of(CONFIGS[config](), "float32")
    ours, wanted = run(LlamaStep(model, LENGTH), model, slots)
    assert_close(ours, wanted, ROUNDING, "the step written out and the model")


@pytest.mark.parametrize(
    ("config", "slots"),
    [
        *(("llama", 3), ("mistral", 20), ("qwen2, mixed", 3)),
        *(slow("llama", 20), slow("mistral", 3), slow("qwen2, mixed", 20)),
    ],
)
def test_steps_know_the_masks_of_eager_attention(config, slots):
    model = model_of(CONFIGS[config](), "float32", "eager")
    for step in (GeneralStep(model), make_step(model, LENGTH)):
        ours, wanted = run(step, model, slots)
        assert_close(ours, wanted, ROUNDING, "the step and the model")


DYNAMIC = LlamaConfig(**SHAPE, rope_parameters={"rope_type": "dynamic", **ROPE})  # positions depend on the length


def with_layers_left_out():
    model = model_of(CONFIGS["llama"]())
    model.config.num_hidden_layers = 1
    return model


OTHERS = {
    "rope": lambda: model_of(DYNAMIC),
    "gpt2": lambda: tiny_model("gpt2").double(),
    "layers": with_layers_left_out,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_models_get_the_general_step(make):
    model = make()
    step = make_step(model, LENGTH)
    assert type(step) is GeneralStep
    ours, wanted = run(step, model, 3)
    assert_close(ours, wanted, EXACT, "the step and the model")


class Adapted(torch.nn.Linear):
    """A projection that is more than its weight, as adapters are."""

    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True)


@pytest.mark.parametrize("place", ["self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj", "mlp.gate_proj"])
def test_models_with_adapters_get_the_general_step(place):
    model = model_of(CONFIGS["llama"]())
    parent, name = place.split(".")
    part = getattr(model.model.layers[1], parent)
    plain = getattr(part, name)
    adapted = Adapted(plain.in_features, plain.out_features, bias=False, dtype=torch.float64)
    adapted.load_state_dict(plain.state_dict())
    setattr(part, name, adapted)
    step = make_step(model, LENGTH)
    assert type(step) is GeneralStep
    ours, wanted = run(step, model, 3)
    assert_close(ours, wanted, EXACT, "the step and the model")
    wrong, _ = run(LlamaStep(model, LENGTH), model, 3)
    assert (wrong - wanted).abs().max() > 1e-3, "or the adapter would be lost"


# Weights that lie elsewhere, and modules that somebody listens to.


class ByAddress:
    """A step that reads the storages its weights had when it was made, as a captured graph does."""

    def __init__(self, model, max_length):
        seen = copy.deepcopy(model)
        for copied, weight in zip(seen.parameters(), model.parameters(), strict=True):
            copied.data = weight.data
        self.step = GeneralStep(seen)

    def __call__(self, *args, **kwargs):
        return self.step(*args, **kwargs)


def pretend_gpu(monkeypatch, make=ByAddress):
    """Let policies act with captured steps, which are simply run here."""
    monkeypatch.setattr(LanguageModelPolicy, "device", torch.device("cuda"))
    monkeypatch.setattr(language_model, "make_step", make)


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


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def hook(module, *rest):
    """Listen after a module: everything it returns is a quarter larger."""
    made = rest[-1]
    if isinstance(made, torch.Tensor):
        return 1.25 * made
    key = "logits" if "logits" in made else "last_hidden_state"
    made[key] = 1.25 * made[key]
    return made


CHANGES = {
    "hook": lambda module: module.register_forward_hook(hook),
    "hook before": lambda module: module.register_forward_pre_hook(lambda module, args: (1.25 * args[0], *args[1:])),
    "parametrization": lambda module: torch.nn.utils.parametrize.register_parametrization(module, "weight", Doubled()),
    "forward": lambda module: setattr(module, "forward", lambda x, made=module.forward: 1.25 * made(x)),
}
PLACES = ["model.layers.0.self_attn.v_proj", "model.layers.1.mlp.down_proj"]
WHERE = [
    *((change, place) for change in CHANGES for place in PLACES),
    *(("hook", place) for place in ("", "model", "lm_head", "model.layers.0.mlp", "model.layers.1.input_layernorm")),
]


ONCE = [  # the fast tests: every change, every place, and whether a state is running
    *(("hook", PLACES[0], False), ("hook before", PLACES[1], True)),
    *(("parametrization", PLACES[0], True), ("forward", PLACES[1], False)),
    *((*pair, number % 2 == 0) for number, pair in enumerate(WHERE[8:])),
]


@pytest.mark.parametrize(
    ("change", "place", "late"),
    [*ONCE, *(slow(*pair, late) for pair in WHERE for late in (False, True) if (*pair, late) not in ONCE)],
)
def test_whatever_modules_are_given_is_decoded_as_it_is_trained(change, place, late):
    envs = text_envs(4, group_size=2, max_new_tokens=6)
    policy = tiny_policy("llama", envs)
    contexts, state, starts = [[1, 2], [3, 4, 5], [6], [6]], None, flags(range(4), 4)
    before = law_after(policy, contexts)
    if late:
        _, _, state = policy.act(observe([context[:-1] or [0] for context in contexts]), None, starts)
        starts = flags([], 4)
    CHANGES[change](policy.model.get_submodule(place))
    assert (law_after(policy, contexts) - before).abs().max() > 1e-3
    actions, log_probs, _ = policy.act(observe(contexts), state, starts)
    assert_true(policy, contexts, actions, log_probs)
    check_acting_equals_training(policy, envs, EXACT, episodes=64)
    assert type(policy._step) is GeneralStep


# Heads that are more than a product.


@models
def test_a_head_is_plain_where_logits_are_the_embeddings_of_the_trunk(name):
    assert has_plain_head(tiny_model(name))


CAPPED = {"head_dim": 4, "query_pre_attn_scalar": 4, "sliding_window": 4}
HEADS = {
    "gemma2": lambda: Gemma2Config(**SHAPE, **CAPPED, final_logit_softcapping=2.0),
    "gemma2 with a padding token": lambda: Gemma2Config(
        **{**SHAPE, "pad_token_id": 0}, **CAPPED, final_logit_softcapping=2.0
    ),
    "granite": lambda: GraniteConfig(**SHAPE, logits_scaling=3.0),
}


@pytest.mark.parametrize("config", ["gemma2 with a padding token", "granite", slow("gemma2")])
def test_a_head_that_caps_or_scales_is_not_plain_and_acts_as_it_is_trained(config):
    """Embeddings of a padding token are zero: nothing can be learned about a head from them."""
    model, envs = model_of(HEADS[config](), "float32", "eager"), text_envs(8, group_size=4)
    assert not has_plain_head(model)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    check_acting_equals_training(policy, envs, ROUNDING, episodes=40)  # most are as long as they may be
    check_plain_reference(policy, envs, ROUNDING)
    assert policy._reading(collect(policy, envs, 80)).visible is not None, "trees are read"


def test_columns_of_a_cache_that_nobody_has_written_are_zero():
    """Masked columns count nothing times what they hold, which must be a number."""
    cache = SlotCache(1, 3, 50)
    garbage = [torch.full((3, 2, 50, 4), torch.nan) for _ in range(8)]  # memory to be reused
    del garbage
    cache.begin(torch.tensor([0]), 1, True)
    cache.update(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), 0)
    assert cache.layers[0].keys.sum() == cache.layers[0].values.sum() == 2 * 4
