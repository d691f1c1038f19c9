"""The plan of memory: known sizes, and peaks of processes that took two updates, measured on 27 November 2026.

Those are beyond what a process had before (docs/gpu.md says how).
"""

from functools import cache

import pytest
import torch
from tiny_models import tiny_model
from transformers import GPT2Config, LlamaConfig

from rlenv.agents.language import memory
from rlenv.agents.language.memory import Workload

PROMPT, COMPLETION, VOCABULARY, ROWS = 8, 24, 502, 16
CLOSE = 0.2


@cache
def config_of(name):
    return tiny_model(name, VOCABULARY, layers=2).config


def work(**settings):
    shape = {"prompt_length": PROMPT, "context": PROMPT + COMPLETION, "sampled": COMPLETION}
    return Workload(**shape | {"episodes": ROWS, "slots": ROWS} | settings)


def plan(name="llama", **settings):
    return memory.plan(config_of(name), work(**settings))


ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LLAMA = LlamaConfig(
    vocab_size=3002, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
    num_key_value_heads=3, max_position_embeddings=128, tie_word_embeddings=True, **ENDS,
)  # fmt: skip
GPT2 = GPT2Config(vocab_size=3002, n_positions=128, n_embd=384, n_layer=6, n_head=6, **ENDS)
SMOLLM2 = LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "settings", "parameters", "measured"),
    [
        (LLAMA, {}, 10.9, 1709),
        (LLAMA, {"micro_batch_tokens": 2048}, 10.9, 565),
        (LLAMA, {"activation_checkpointing": True}, 10.9, 509),
        (LLAMA, {"dtype": "bfloat16"}, 10.9, 1130),
        (LLAMA, {"reference": True, "entropy": True, "group_size": 4}, 10.9, 1967),
        (LLAMA, {"slots": 256, "episodes": 256, "micro_batch_size": 4}, 10.9, 584),
        (GPT2, {"critic": "separate", "micro_batch_size": 16}, 23.8, 1422),
        (SMOLLM2, {"lora_rank": 16, "dtype": "bfloat16"}, 139.4, 832),
    ],
)
def test_a_run_takes_what_was_measured(config, settings, parameters, measured):
    size = {"prompt_length": 32, "context": 128, "sampled": 96, "episodes": 64, "slots": 64}
    if config is SMOLLM2:
        size = {"prompt_length": 32, "context": 64, "sampled": 32, "episodes": 8, "slots": 8}
    made = memory.plan(config, Workload(**size | settings))
    assert made.parameters / 1e6 == pytest.approx(parameters, abs=0.05)
    assert made.peak / 2**20 == pytest.approx(measured, rel=CLOSE)


def test_weights_optimizer_and_reference_have_their_known_sizes():
    before = torch.get_rng_state()
    count = sum(parameter.numel() for parameter in tiny_model("llama", VOCABULARY, layers=2).parameters())
    single, half = plan(reference=True), plan(reference=True, dtype="bfloat16")
    assert single.parameters == half.parameters == count
    parts = ("weights", "gradients", "optimizer", "reference")
    assert [single.parts[name] / count for name in parts] == [4, 4, 8, 4]
    assert [half.parts[name] / count for name in parts] == [2, 4, 12, 2], "float32 copies are the optimizer's"
    assert 2 * half.parts["KV cache"] == single.parts["KV cache"] == 2 * 2 * 8 * (PROMPT + COMPLETION) * ROWS * 4
    assert set(single.phases) == {"acting", "training", "optimizer step"}
    assert torch.equal(before, torch.get_rng_state())


def test_shards_are_a_part_of_what_is_held_and_acting_takes_the_whole_weights():
    parts = ("weights", "gradients", "optimizer", "reference")
    one, four = (plan(reference=True, pack_weights=False, holders=holders) for holders in (1, 4))
    saved = sum(one.parts[name] - four.parts[name] for name in parts)
    assert [four.parts[name] * 4 for name in parts] == [one.parts[name] for name in parts]
    assert one.phases["acting"] - four.phases["acting"] == saved - one.parts["weights"]
    again = [plan(reference=True, holders=holders, micro_batch_size=4).phases["training"] for holders in (1, 4)]
    assert 0 < again[0] - again[1] < saved, "gathered layers take some of it"
    lora = {"reference": True, "dtype": "bfloat16", "lora_rank": 2, "lora_targets": "q_proj"}
    adapted = [plan(**lora, holders=holders).parts["reference"] for holders in (1, 4)]
    assert adapted[0] == 0 < adapted[1], "a sharded reference has a base of its own"


def test_the_micro_batch_that_fits_is_the_largest():
    need = lambda rows: plan(episodes=64, micro_batch_size=rows).phases["training"]  # noqa: E731
    fitting = lambda budget: memory.fitting(config_of("llama"), work(episodes=64), budget)["training"]  # noqa: E731
    assert fitting(10 * need(64)) == 64 and fitting(100_000) == 0
    rows = fitting(need(64) // 3)
    assert 1 < rows < 32 and need(rows) <= need(64) // 3 < need(rows + 1)
