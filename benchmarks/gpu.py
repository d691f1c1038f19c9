"""A task over random words, and the model of the GPU benchmarks: Qwen2.5-0.5B's shape with random weights."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import rlenv  # noqa: F401 (registers TextGen-v0)
from verifiers import FunctionVerifier

PROMPT, TOKENS = 128, 256
BANDWIDTH, FLOPS = 4.8e12, 989e12  # vendor's figures for an H200: bytes and dense bfloat16 operations per second
VOCABULARY = 151_936


def require_gpu() -> None:
    """Raise a ValueError if torch finds no GPU."""
    if not torch.cuda.is_available():
        raise ValueError("this benchmark needs a CUDA device; torch finds none")


def qwen(scale: float = 1.0) -> PreTrainedModel:
    """Return the model; a `scale` below 1 makes it smaller, to try the code on a CPU."""
    width = max(int(896 * scale) // 64 * 64, 64)
    config = Qwen2Config(
        vocab_size=max(int(VOCABULARY * scale), 64), hidden_size=width, intermediate_size=width * 38 // 7,
        num_hidden_layers=max(int(24 * scale), 2), num_attention_heads=width // 64,
        num_key_value_heads=2 if width >= 128 else 1, max_position_embeddings=4096, rope_theta=1e6,
        tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config).to(torch.bfloat16).eval()


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of words w0, w1, ... with as many tokens as the model."""
    words = {"<eos>": 0, "<pad>": 1} | {f"w{i}": i for i in range(2, size)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", unk_token="<pad>", padding_side="left"
    )


def even_words(completions: list[str], **rest: Any) -> list[float]:
    """Reward the share of words with an even number: about one half for a random model, with variance."""
    return [sum(text[-1] in "02468" for text in c.split()) / max(len(c.split()), 1) for c in completions]


def text_envs(model: PreTrainedModel, batch: int, prompt: int, tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return a batched environment on the model's device, with random prompts; the reward is 0 by default."""
    size = model.config.vocab_size
    draw = torch.randint(2, size, (batch, prompt), generator=torch.Generator().manual_seed(0))
    function = reward or (lambda prompts, completions: [0.0] * len(prompts))
    return gym.make_vec(
        "TextGen-v0", num_envs=batch, device=str(model.device), tokenizer=tokenizer(size), test_fraction=0.0,
        verifier=FunctionVerifier(function), problems=[" ".join(f"w{i}" for i in row) for row in draw.tolist()],
        max_prompt_tokens=prompt, max_new_tokens=tokens, **kwargs,
    )  # fmt: skip
