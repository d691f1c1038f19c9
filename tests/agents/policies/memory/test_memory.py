"""The plan of memory: known sizes, and the same peaks as the real thing."""

import gc
from dataclasses import replace
from functools import cache

import gymnasium as gym
import pytest
import torch
from diagonal import diagonal
from identity_checks import collect
from tiny_models import MODELS, tiny_model
from transformers import Gemma2Config

import rlenv  # noqa: F401
from agents import LanguageModelPolicy
from agents.policies.choosing import choose
from agents.policies.memory import plan as memory
from agents.policies.memory import trace
from agents.policies.memory.plan import Workload
from verifiers import Dialogue, Reply
from verifiers.function import FunctionVerifier

models = pytest.mark.parametrize("name", ["gpt2", "llama", pytest.param("mistral", marks=pytest.mark.slow)])
LETTERS = "".join(chr(0x4E00 + i) for i in range(500))  # random episodes seldom end before their limit
PROMPT, COMPLETION, VOCABULARY, ROWS = 8, 24, 502, 16
MIB = 2**20


def envs_of(slots=ROWS):
    prompts = [LETTERS[i : i + PROMPT] for i in range(0, 400, PROMPT)]
    verifier = FunctionVerifier(lambda prompts, completions: [1.0] * len(prompts), alphabet=LETTERS)
    lengths = {"max_prompt_tokens": PROMPT, "max_new_tokens": COMPLETION}
    return gym.make_vec("TextGen-v0", slots, verifier=verifier, problems=prompts, test_fraction=0.0, **lengths)


@cache
def config_of(name):
    return tiny_model(name, VOCABULARY).config


@pytest.fixture(scope="module")
def llama_plan():
    """Return plans of runs with a reference, several of which several tests look at."""
    return cache(lambda **settings: memory.plan(config_of("llama"), work(reference=True, **settings)))


def work(**settings):
    return Workload(VOCABULARY, PROMPT, COMPLETION, **{"episodes": ROWS, "slots": ROWS, **settings})


SETTINGS = [
    *({}, {"activation_checkpointing": True}),
    *({"dtype": "bfloat16"}, {"critic": "separate", "entropy": True}),
]
RARE = ["mistral", *map(str, SETTINGS[2:])]


@diagonal("name, settings", MODELS, SETTINGS, rare=RARE)
def test_a_training_pass_takes_what_is_planned(name, settings):
    envs = envs_of()
    options = {key: value for key, value in settings.items() if key != "entropy"}
    policy = LanguageModelPolicy(
        envs.single_observation_space, envs.single_action_space, tiny_model(name, VOCABULARY), **options
    )
    rollout = collect(policy, envs, ROWS)
    assert int(rollout.lengths.max()) == COMPLETION and policy._reading(rollout).visible is None
    with trace.Meter() as meter:
        loss = torch.stack([x.sum() for x in policy.evaluate_actions(rollout, "entropy" in settings) if x is not None])
        if policy.critic is not None:
            loss = loss.sum() + policy.predict_values(rollout).sum()
        loss.sum().backward()
    planned = trace.training(config_of(name), work(**settings), ROWS)
    assert meter.peak == pytest.approx(planned.peak, rel=0.1), "one or two episodes may end early"
    assert 0 < planned.held < planned.peak


@models
def test_acting_takes_what_is_planned(name):
    envs = envs_of()
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, tiny_model(name, VOCABULARY))
    with trace.Meter() as meter:
        collect(policy, envs, ROWS)
    gc.collect()
    planned = trace.acting(config_of(name), work(), ROWS, ROWS)
    heads = 4 if name == "gpt2" else 2
    assert planned.held == pytest.approx(2 * 2 * heads * 4 * (PROMPT + COMPLETION) * ROWS * 4, abs=2048)
    assert planned.peak <= meter.peak < 1.35 * planned.peak, "the environment's tensors are small, but not here"


REPLY, TURNS = 12, 3
TALK = {"turns": TURNS, "reply_length": REPLY, "completion_length": 6}


class Insisting(Dialogue):
    def reply(self, turn):
        return Reply(LETTERS[: REPLY - 1])  # and the end token of the turn that was cut off


class Talking(FunctionVerifier):
    """Answers every turn with `REPLY` tokens, until turns run out."""

    reply_length, max_turns = REPLY - 1, TURNS

    def dialogue(self, problem):
        return Insisting()


def talking_envs(slots=ROWS):
    prompts = [LETTERS[i : i + PROMPT] for i in range(0, 400, PROMPT)]
    verifier = Talking(lambda prompts, completions: [1.0] * len(prompts), alphabet=LETTERS)
    lengths = {"max_prompt_tokens": PROMPT, "max_new_tokens": 6}
    return gym.make_vec("TextGen-v0", slots, verifier=verifier, problems=prompts, test_fraction=0.0, **lengths)


def talking_work(**settings):
    shape = {"vocab_size": VOCABULARY, "prompt_length": PROMPT, **TALK}
    return Workload(**shape, **{"episodes": ROWS, "slots": ROWS, **settings})


def test_contexts_hold_replies_and_sampled_tokens_do_not():
    work = talking_work()
    assert (work.context, work.sampled) == (PROMPT + 3 * 6 + 2 * REPLY, 18)
    cut = talking_work(context_length=20)
    assert (cut.context, cut.sampled) == (20, 12), "turns may fill the context without replies"
    assert talking_work(micro_batch_tokens=3 * (work.context - 1)).rows(16) == 3
    envs = talking_envs()
    assert envs.task.max_length == work.context


@models
def test_dialogues_take_what_is_planned(name):
    envs = talking_envs()
    model = tiny_model(name, VOCABULARY)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    with trace.Meter() as meter:
        rollout = collect(policy, envs, ROWS)
    gc.collect()
    config, work = tiny_model(name, VOCABULARY).config, talking_work()
    planned = trace.acting(config, work, ROWS, ROWS)
    assert int(rollout.lengths.max()) == work.sampled and rollout.positions is not None
    assert 0.9 * planned.peak < meter.peak < 1.35 * planned.peak, "the last reply is not at the end of the context"
    assert planned.peak > 1.2 * trace.acting(config, replace(work, turns=1, reply_length=0), ROWS, ROWS).peak
    policy.share_prefixes = False
    with trace.Meter() as meter:
        policy.evaluate_actions(rollout, False)[0].sum().backward()
    planned = trace.training(config, work, ROWS)
    assert 0.85 * planned.peak < meter.peak < 1.05 * planned.peak, "some turns end before their limit"
    assert sum(x.nbytes for x in (rollout.observations["tokens"], rollout.positions)) < memory._rollout(work)


def test_weights_optimizer_and_reference_have_their_known_sizes(llama_plan):
    model = tiny_model("llama", VOCABULARY)
    count = sum(parameter.numel() for parameter in model.parameters())
    single, half = llama_plan(), llama_plan(dtype="bfloat16")
    assert single.parameters == half.parameters == count
    parts = ("weights", "gradients", "optimizer", "reference")
    assert [single.parts[name] / count for name in parts] == [4, 4, 8, 4]
    assert [half.parts[name] / count for name in parts] == [2, 4, 12, 2], "float32 copies are the optimizer's"
    assert half.parts["KV cache"] == pytest.approx(single.parts["KV cache"] / 2, abs=2048)
    assert single.peak == single.phases[single.busiest] == max(single.phases.values())
    assert set(single.phases) == {"acting", "training", "optimizer step"}


def test_shards_are_a_part_of_what_is_held_and_acting_takes_the_whole_weights(llama_plan):
    parts = ("weights", "gradients", "optimizer", "reference")
    one, four = llama_plan(), llama_plan(shards=4)
    saved = sum(one.parts[name] - four.parts[name] for name in parts)
    assert [four.parts[name] * 4 for name in parts] == [one.parts[name] for name in parts]
    assert one.phases["acting"] - four.phases["acting"] == saved - one.parts["weights"]
    again = [llama_plan(shards=shards, micro_batch_size=4).phases["training"] for shards in (1, 4)]
    assert 0 < again[0] - again[1] < saved, "gathered layers take some of it"
    lora = {"dtype": "bfloat16", "lora_rank": 2, "lora_targets": "q_proj"}
    adapted = [llama_plan(**lora).parts["reference"], llama_plan(**lora, shards=4).parts["reference"]]
    assert adapted[0] == 0 < adapted[1], "a sharded reference has a base of its own"


@pytest.mark.slow
def test_settings_move_the_phase_that_they_are_for():
    config = config_of("llama")
    plain = memory.plan(config, work(imitated=64, evaluated=64)).phases
    assert set(plain) == {"acting", "training", "optimizer step", "warm start", "evaluation"}
    split = memory.plan(config, work(imitated=64, evaluated=64, micro_batch_tokens=4 * 31)).phases
    assert all(split[name] < 0.5 * plain[name] for name in ("training", "warm start"))
    slots = memory.plan(config, work(slots=4 * ROWS)).phases
    assert slots["acting"] > 2 * plain["acting"] and slots["training"] == plain["training"]
    assert plain["evaluation"] > 2 * plain["acting"]
    unpacked = memory.plan(config, work(imitated=64, evaluated=64, pack_weights=False)).phases
    assert {name for name in plain if unpacked[name] < plain[name]} == {"acting", "evaluation"}


@pytest.mark.slow
def test_the_micro_batch_that_fits_is_nearly_the_largest():
    config, width = config_of("gpt2"), PROMPT + COMPLETION - 1
    whole = memory.plan(config, work(episodes=64)).phases["training"]
    fitting = lambda budget: memory.fitting_micro_batch_tokens(config, work(episodes=64), budget)  # noqa: E731
    assert fitting(10 * whole) == 64 * width and fitting(100_000) == 0
    assert 0.95 * 64 * width < fitting(whole) <= 64 * width
    tokens = fitting(whole // 3)
    rows = tokens // width
    assert 1 < rows < 32 and tokens == rows * width
    need = lambda rows: memory.plan(config, work(episodes=64, micro_batch_size=rows)).phases["training"]  # noqa: E731
    assert need(rows) <= whole // 3 < need(int(1.1 * rows) + 1)


def test_a_model_that_changes_logits_after_its_head_makes_them_all_at_once():
    shape = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    capped, plain = (Gemma2Config(**shape, **heads, final_logit_softcapping=cap) for cap in (30.0, None))
    made = [trace.training(config, work(), ROWS).held for config in (capped, plain)]
    assert made[0] - made[1] > ROWS * (PROMPT + COMPLETION - 1) * VOCABULARY * 4


def test_planning_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    memory.plan(config_of("llama"), work(critic="head", imitated=2))
    assert torch.equal(before, torch.get_rng_state())


def test_the_meter_counts_what_is_alive():
    with trace.Meter() as meter:
        first = torch.zeros(MIB // 4)
        view = first[1:]
        assert meter.now == meter.peak == MIB
        del first
        assert meter.now == MIB, "a view keeps its memory"
        del view
        assert meter.now == 0 and meter.peak == MIB
        choose(torch.zeros(2, 5), True, None)
    assert meter.peak_since() == MIB and meter.peak == meter.now


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_an_adapter_is_all_that_gradients_and_the_optimizer_are_planned_for(dtype, llama_plan):
    whole = llama_plan(dtype=dtype)
    plan = llama_plan(dtype=dtype, lora_rank=2, lora_targets="q_proj")
    adapter = 2 * 2 * (16 + 16)  # two layers; A [2, 16] and B [16, 2]
    assert plan.parameters == whole.parameters + adapter
    assert plan.parts["gradients"] == 4 * adapter
    assert plan.parts["optimizer"] == (8 if dtype == "float32" else 12) * adapter
    assert plan.parts["reference"] == 0 < whole.parts["reference"]
    assert plan.peak < whole.peak
