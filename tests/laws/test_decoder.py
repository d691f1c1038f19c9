"""The law of a decoder: acting = training = a fresh state = the model's own forward pass of each context by itself."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from inspect import signature

import pytest
import torch
from diagonal import slow
from dialogues import talking
from drawn import drawn
from hypothesis import example, given
from hypothesis import strategies as st
from identity_checks import EXACT, ROUNDING, assert_close, check_law, rollout_of
from tiny_models import MODELS, move_adapter, text_envs, tiny_policy
from transformers import LlamaForCausalLM, LlamaModel

from rlenv.agents import LanguageModelPolicy
from rlenv.agents.language import attention, cuda_graph, decoder, kv_cache, products, reading
from rlenv.agents.language import policy as language
from rlenv.agents.policies import choosing

SLOTS, VOCABULARY = 6, 10
CAPTURED = [(LanguageModelPolicy, "device", torch.device("cuda"))]  # a captured step, which simply runs here
HALVES = {"problems": ["ab", "ababa", "b"], "group_size": 4, "max_new_tokens": 3}


def case(model="llama", dtype="float64", slots=4, world=text_envs, env=(), patches=(), **policy):
    return model, dtype, lambda: world(slots, **dict(env or {"group_size": 2})), patches, policy


CASES = {
    "gpt2": case("gpt2", temperature=0.6),
    "llama": case("llama", "float32", temperature=1.3),
    "mistral": case("mistral", temperature=1.3),
    "one slot": case("gpt2", slots=1),
    "40 slots": case("gpt2", slots=40, env={"group_size": 3}),
    "dialogues of gpt2": case("gpt2", world=talking, temperature=0.7),
    "dialogues of llama": case("llama", world=talking),
    "dialogues of mistral": case("mistral", world=talking),
    "an adapter": case(lora_rank=4),
    "an adapter of gpt2": case("gpt2", "float32", lora_rank=4),
    "packed": case("llama", "float32", 20, patches=[(products, "LARGE", 1)]),
    "eager": case("mistral", "float32", attention="eager"),
    "a forest": case("gpt2", merge_rows=False, env=HALVES, patches=[(reading, "WORTH_IT", 100.0)]),
    "chunks": case("llama", patches=[(language, "ELEMENTS", 3 * VOCABULARY)], temperature=0.6),
    "prompts in parts": case("llama", slots=9, patches=[(decoder, "PREFILL", 9)], env={"group_size": 3}),
    "attention as products": case("llama", slots=9, patches=[(decoder, "MANY", 1)], env={"group_size": 3}),
    "attention as products of gpt2": case("gpt2", "float32", slots=9, patches=[(decoder, "MANY", 1)], env=HALVES),
    "added masks": case("mistral", patches=[(attention, "ADDED_ON", ("cpu",))]),
    "captured": case("llama", patches=[*CAPTURED, (cuda_graph, "BUCKET", 4)]),
}


RARE = ("40 slots", "dialogues of gpt2", "mistral", "dialogues of llama", "an adapter of gpt2", "eager")


@pytest.mark.parametrize("name", [slow(name) if name in RARE else name for name in CASES])
def test_acting_training_and_a_plain_forward_pass_agree(name, monkeypatch):
    model, dtype, world, patches, settings = CASES[name]
    envs = world()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = move_adapter(tiny_policy(model, envs, dtype=dtype, layers=2, **settings))
    for patch in patches:
        monkeypatch.setattr(*patch)
    check_law(policy, envs, EXACT if dtype == "float64" else ROUNDING, max(20, 2 * envs.num_envs))


# Acting: whatever slots do, each acts as a plain forward pass of its own context says.


def policy_of(name="llama", **kwargs):
    """Return a policy of one's own; making one takes ten times as long as a copy, since it tries itself out."""
    return copy.deepcopy(made_once(name, tuple(kwargs.items())))


@cache
def made_once(name, settings):
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of a critic's head
        return tiny_policy(name, text_envs(1, max_new_tokens=52), layers=2, **dict(settings))


def observe(contexts, length):
    """Return these contexts as an observation, with junk of each slot's own where there is nothing."""
    tokens = (torch.arange(len(contexts)) % VOCABULARY)[:, None].repeat(1, length)
    for row, context in enumerate(contexts):
        tokens[row, : len(context)] = torch.tensor(context)
    return {"tokens": tokens, "length": torch.tensor([len(context) for context in contexts])}


@torch.no_grad()
def acted(policy, contexts, state, starts, playing=None, generator=None, **more):
    """Act in these contexts, compare with the law of the slots that play; return actions and the state."""
    obs = observe(contexts, policy.max_length)
    actions, log_probs, state = policy.act(obs, state, starts, generator is None, generator, playing, **more)
    width = int(obs["length"].max())
    logits = policy.model(obs["tokens"][:, :width]).logits[torch.arange(len(contexts)), obs["length"] - 1]
    wanted = torch.log_softmax(logits / policy.temperature, -1).gather(1, actions[:, None])[:, 0]
    plays = torch.ones_like(starts) if playing is None or not playing.any() else playing
    assert_close(log_probs[plays], wanted[plays], EXACT, "acting and a plain forward pass")
    return actions, state


ALL, NONE = torch.ones(SLOTS, dtype=torch.bool), torch.zeros(SLOTS, dtype=torch.bool)
each = st.lists(st.booleans(), min_size=SLOTS, max_size=SLOTS)
prompts = st.lists(st.sampled_from([[1, 2], [3], [3, 4, 5], [6]]), min_size=SLOTS, max_size=SLOTS)
replies = st.lists(st.sampled_from([[], [], [2], [4, 5, 1], [7] * 7]), min_size=SLOTS, max_size=SLOTS)


NOBODY, QUIET, FRESH = [False] * SLOTS, [[]] * SLOTS, [[1, 2]] * SLOTS
PAUSED = [  # the first slot goes on beyond the window of the last, which alone plays in the second step
    (NOBODY, NOBODY, NOBODY, [[7] * 7, *QUIET[1:]], FRESH),
    ([*NOBODY[1:], True], NOBODY, NOBODY, QUIET, FRESH),
    (NOBODY, NOBODY, NOBODY, QUIET, FRESH),
]
EVERYBODY, FIRST, UNLIKE = [True] * SLOTS, [True, *NOBODY[1:]], [[slot] for slot in range(SLOTS)]
STEADY = [  # the same slots play on, while one of them restarts; then others play, in the array that its owner changes
    (EVERYBODY, NOBODY, NOBODY, QUIET, FRESH),
    (EVERYBODY, FIRST, NOBODY, QUIET, [[3, 4, 5], *FRESH[1:]]),
    (FIRST, FIRST, NOBODY, QUIET, FRESH),
    ([*NOBODY[1:], True], NOBODY, NOBODY, QUIET, FRESH),
]


@drawn(20, report_multiple_bugs=False)
@example("gpt2", True, False, (16, 8), FRESH, PAUSED)
@example("llama", False, False, (16, 8), UNLIKE, STEADY)
@example("llama", False, True, (16, 8), FRESH, STEADY)
@given(
    st.sampled_from(MODELS), st.booleans(), st.booleans(), st.sampled_from([(2**16, 64), (16, 8)]), prompts,
    st.lists(st.tuples(each, each, each, replies, prompts), min_size=1, max_size=7),
)  # fmt: skip
def test_whoever_plays_pauses_restarts_or_is_answered_acts_by_its_own_context(
    name, captured, told, sizes, first, steps
):
    """Also if the environment says how many tokens it appended, which only saves comparing lengths."""
    with pytest.MonkeyPatch.context() as patch:
        for place in CAPTURED if captured else ():
            patch.setattr(*place)
        patch.setattr(decoder, "PREFILL", sizes[0])
        patch.setattr(cuda_graph, "BUCKET", sizes[1])
        patch.setattr(decoder, "MANY", 1 if sizes[1] == 8 else decoder.MANY)
        policy, generator = policy_of(name), torch.Generator().manual_seed(0)
        contexts, playing = [list(prompt) for prompt in first], ALL.clone()  # which its owner changes
        actions, state = acted(policy, contexts, None, ALL, generator=generator)
        for plays, restarts, waits, answers, fresh in steps:
            for slot, context in enumerate(contexts):
                if restarts[slot]:
                    context[:] = fresh[slot]
                    continue
                if playing[slot] or not waits[slot]:  # who has not played may keep what it has
                    context.append(int(actions[slot]))
                context += answers[slot]
            starts, appended = torch.tensor(restarts), torch.tensor([len(answer) for answer in answers])
            playing.copy_(torch.tensor(plays))
            more = {"appended": appended.where(~starts, 0)} if told else {}
            actions, state = acted(policy, contexts, state, starts, playing, generator, **more)


def test_equal_contexts_are_computed_once_until_they_differ(monkeypatch):
    policy, rows = policy_of(), []
    step = decoder.NewestToken.__call__

    def counted(self, tokens, *parts):
        rows.append(len(tokens))
        return step(self, tokens, *parts)

    monkeypatch.setattr(decoder.NewestToken, "__call__", counted)
    contexts = [[1, 2], [1, 2], [1, 2], [3], [3], [1, 2]]  # only neighbours are compared, such as a group's
    _, state = acted(policy, contexts, None, ALL)
    everyone, but_one = [True] * SLOTS, [True, False, True, True, True, True]
    for more, playing in (
        ([[4], [4], [4], [5], [5], [4]], everyone),
        ([[6], [7], [6], [5], [], [6]], everyone),  # the last but one waits, and its newest token is 5, too
        ([[9], [9], [9], [9], [9], [9]], but_one),
        ([[8, 3, 1], [], [8, 2, 1], [8], [8], [8]], but_one),  # equal actions, two replies
    ):
        contexts = [[*context, *tokens] for context, tokens in zip(contexts, more, strict=True)]
        _, state = acted(policy, contexts, state, NONE, torch.tensor(playing))
    assert rows == [3, 3, 5, 4, 5], rows


def test_a_cache_is_passed_by_the_name_that_the_model_has_for_it(monkeypatch):
    """Releases of transformers have two names; the models get the other one here."""
    now = kv_cache.cache_argument(LlamaForCausalLM.forward)
    (other,), passed = {*kv_cache.CACHE} - {now}, []
    for model in (LlamaForCausalLM, LlamaModel):
        declared = signature(model.forward)

        def forward(self, *args, usual=model.forward, **more):
            if other in more:
                passed.append(type(self))
                more[now] = more.pop(other)
            return usual(self, *args, **more)

        parameters = [each.replace(name=other) if each.name == now else each for each in declared.parameters.values()]
        forward.__signature__ = declared.replace(parameters=parameters)
        monkeypatch.setattr(model, "forward", forward)
    contexts = [[1, 2]] * 3 + [[3, 4]] * 3
    policy = tiny_policy("llama", text_envs(1, max_new_tokens=52), layers=2, dtype="float64")
    _, state = acted(policy, contexts, None, ALL)
    acted(policy, [[*context, 7, 2] for context in contexts], state, NONE)
    assert {*passed} == {LlamaForCausalLM, LlamaModel}


def test_two_threads_act_with_one_policy_whose_attention_is_plain_products(monkeypatch):
    """Attention is chosen by the configuration of the model, which threads share."""
    monkeypatch.setattr(decoder, "MANY", 1)
    policy = policy_of()

    def play(seed):
        generator, contexts, state = torch.Generator().manual_seed(seed), [[1, 2, 3]] * 3 + [[4, 5]] * 3, None
        for _ in range(20):
            obs = observe(contexts, policy.max_length)
            actions, _, state = policy.act(obs, state, NONE if state else ALL, generator=generator)
            contexts = [[*context, action] for context, action in zip(contexts, actions.tolist(), strict=True)]
        return contexts

    alone = [play(seed) for seed in (0, 1)] * 4  # so that one reads prompts while the other goes on
    hooked = policy.model.base_model.register_forward_pre_hook(lambda *given: time.sleep(0.002))  # the other's turn
    with hooked, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(play, (0, 1) * 4)) == alone


@pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])
def test_two_users_of_a_captured_decoder_do_not_disturb_each_other(name, monkeypatch):
    monkeypatch.setattr(*CAPTURED[0])
    monkeypatch.setattr(cuda_graph, "BUCKET", 4)  # so that windows grow
    policy = policy_of(name)
    contexts = [[[1, 2], [3], [3], [4, 5, 6], [1], [2]], [[5], [6], [1, 2, 3], [4], [4], [7, 8]]]
    states, starts = [None, None], [ALL, ALL]
    for user in [0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0]:
        actions, states[user] = acted(policy, contexts[user], states[user], starts[user])
        starts[user] = NONE
        contexts[user] = [[*context, action] for context, action in zip(contexts[user], actions.tolist(), strict=True)]
    assert states[0] is not states[1] and states[0].capture is states[1].capture


def test_a_captured_decoder_counts_the_steps_that_gave_distributions(monkeypatch):
    monkeypatch.setattr(*CAPTURED[0])
    monkeypatch.setattr(cuda_graph, "BUCKET", 4)
    policy, contexts = policy_of(), [[1, 2], [3], [3], [4, 5, 6], [1], [2]]
    _, state = acted(policy, contexts, None, ALL)
    for token in range(1, 8):
        contexts = [[*context, token] for context in contexts]
        _, state = policy.distribution(observe(contexts, policy.max_length), state, NONE)
    acted(policy, [[*context, 8] for context in contexts], state, NONE)


# A state is a memo, never the truth.


def by_address(model):
    """Stand in for the copy of a captured step: it reads weights where they were when it was made."""
    seen = copy.deepcopy(model)
    for copied, weight in zip(seen.parameters(), model.parameters(), strict=True):
        copied.data = weight.data
    return seen


def moved(policy):
    policy.model.lm_head.weight = torch.nn.Parameter(policy.model.lm_head.weight.detach() * 2)


CHANGES = {
    "an update": lambda policy: [weight.mul_(1.1) for weight in policy.parameters()],
    "other storage": lambda policy: [setattr(weight, "data", weight.data * 1.1) for weight in policy.parameters()],
    "another parameter": moved,
    "another precision": lambda policy: [weight.mul_(1.1) for weight in policy.float().double().parameters()],
    "other buffers": lambda policy: [
        setattr(part, "inv_freq", part.inv_freq * 1.1) for part in policy.modules() if hasattr(part, "inv_freq")
    ],
}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_state_is_not_used_when_weights_or_buffers_changed_or_lie_elsewhere(change, captured, monkeypatch):
    """A change that torch does not count is seen once all slots start anew."""
    for patch in [*CAPTURED, (cuda_graph, "acting_copy", by_address)] if captured else ():
        monkeypatch.setattr(*patch)
    policy, contexts = policy_of(), [[1, 2], [1, 2, 3], [4], [4], [5, 6], [1]]
    _, state = acted(policy, contexts, None, ALL)
    with torch.no_grad():
        CHANGES[change](policy)
    contexts = [[*context, 7] for context in contexts]
    counted = change == "an update" or (captured and change == "another precision")
    acted(policy, contexts, state, NONE if counted else ALL)


# Training: whatever episodes are read together, a step's law is that of its own context.

symbols = st.integers(0, 2)  # few, so that beginnings repeat
turn = st.tuples(st.lists(symbols, max_size=3), st.lists(symbols, max_size=4))
episode = st.tuples(st.lists(symbols, min_size=1, max_size=4), st.lists(turn, min_size=1, max_size=3))
batches = st.lists(episode, min_size=1, max_size=6).flatmap(
    lambda distinct: st.lists(st.sampled_from(distinct), min_size=1, max_size=10)
)


@drawn(20, report_multiple_bugs=False)
@given(
    st.sampled_from(MODELS), batches, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0, 20]),
    st.sampled_from([None, "head", "separate"]), st.sampled_from([reading.WORTH_IT, 1e9]), st.sampled_from([5, 1000]),
)  # fmt: skip
@torch.no_grad()
def test_every_step_has_the_law_and_the_value_of_its_own_context(
    name, episodes, talk, merge, share, width, critic, worth, rows
):
    """Also where a forest is more work than plain rows, in chunks, with replies, and in episodes without a step."""
    episodes = [[(prompt, said[0][1]), *(said[1:] if talk else ())] for prompt, said in episodes]
    policy = policy_of(name, critic=critic, temperature=0.7)
    policy.merge_rows, policy.share_prefixes = merge, share
    reference, rollout = policy_of(name, seed=1), rollout_of(episodes, width)
    trunk = policy.model.base_model
    if critic == "separate":
        for parameter in policy.critic.parameters():
            parameter.mul_(1.1)  # no copy of the policy
        trunk = policy.critic.trunk
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WORTH_IT", worth)
        patch.setattr(language, "ELEMENTS", rows * VOCABULARY)
        found = policy.evaluate(rollout, ("log_probs", "entropy", "kl", "score_norms"), reference)
        found["value"] = policy.values(rollout) if critic else torch.zeros(rollout.mask.shape)
    wanted = {key: torch.zeros_like(each) for key, each in found.items()}
    contexts = [[token for reply, actions in turns for token in (*reply, *actions)] for turns in episodes]
    ids = observe(contexts, max(map(len, contexts)))["tokens"]
    laws, others = (policy.model(ids).logits / 0.7).log_softmax(-1), reference.model(ids).logits.log_softmax(-1)
    values = policy.critic.head(trunk(ids).last_hidden_state)[..., 0] if critic else torch.zeros(ids.shape)
    for row, step in rollout.mask.nonzero().tolist():
        column = int(rollout.columns[row, step])
        law, before = laws[row, column - 1], (row, column - 1)
        chosen = law[contexts[row][column]]
        wanted["log_probs"][row, step], wanted["value"][row, step] = chosen, values[before]
        wanted["entropy"][row, step] = -(law.exp() * law).sum()
        wanted["kl"][row, step] = (law.exp() * (law - others[before])).sum()
        wanted["score_norms"][row, step] = 1 - 2 * chosen.exp() + law.exp().square().sum()
    for key, each in found.items():
        assert_close(each, wanted[key], EXACT, f"{key} together and alone")


# What is sampled.

DRAWS = 3_000  # from each of two contexts


@pytest.mark.parametrize(("name", "temperature", "many"), [("gpt2", 1.3, 99), ("llama", 1.3, VOCABULARY)])
def test_acting_samples_the_full_softmax_at_the_temperature(name, temperature, many, generator, monkeypatch):
    """The first token, after reading the prompt, and the second, read with the cache; a chi-squared test."""
    monkeypatch.setattr(choosing, "MANY_ACTIONS", many)  # from which on one number is drawn for each
    policy, context, state = policy_of(name, temperature=temperature), [1, 2, 3], None
    for start in (True, False):
        obs = observe([context], policy.max_length)
        many = {key: value.expand(DRAWS, *value.shape[1:]) for key, value in obs.items()}
        actions, _, state = policy.act(many, state, torch.full((DRAWS,), start), generator=generator)
        law = torch.softmax(policy.model(torch.tensor([context])).logits[0, -1].detach() / temperature, -1)
        counts, expected = actions.bincount(minlength=len(law)).double(), DRAWS * law
        statistic = ((counts - expected).square() / expected).sum()
        share = torch.special.gammaincc(torch.tensor((len(law) - 1) / 2, dtype=torch.float64), statistic / 2)
        assert expected.min() > 5 and share > 1e-4
        context = [*context, 4]
