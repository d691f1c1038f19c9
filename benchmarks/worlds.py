"""The models and environments of the benchmarks, the same for both sides."""

from __future__ import annotations

import copy
import functools
import random
import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import LanguageModelPolicy, Rollout, make_envs, warm_start
from rlenv.agents.language.loading import load_model, model_folder
from rlenv.demonstrations import demonstrate
from rlenv.verifiers import FunctionVerifier, Problem

GROUPS, K = 32, 8
LETTERS = "abcdefghijklmno"
WHO = ("fox", "baker", "robot", "child", "sailor", "dragon", "teacher", "farmer", "ghost", "queen", "spider", "pilot")
WHAT = ("is lost in a forest", "finds a key", "learns to sing", "hates the rain", "wants a friend", "builds a boat")


@functools.cache
def _warm_model() -> PreTrainedModel:
    envs = arith_envs(4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space)
    task = envs.task
    task.reseed(np.random.default_rng(0))
    shown = demonstrate(task, 0, 650, torch.device("cpu"))
    episodes = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)
    generator = torch.Generator().manual_seed(0)

    def batch(size: int) -> Rollout:
        return episodes.select(torch.randint(len(episodes), (size,), generator=generator))

    warm_start(policy, batch, steps=500)
    return policy.model


def warm_model() -> PreTrainedModel:
    """Return a model of 0.43 million parameters that gets about half of the sums right after 650 demonstrations."""
    return copy.deepcopy(_warm_model())


def arith_envs(num_envs: int, **kwargs: Any) -> Any:
    """Return the batched arithmetic environment."""
    return make_envs("TextGen-v0", num_envs, {"verifier": "arith", **kwargs})


def endless_model(vocab_size: int, max_length: int, end: int, seed: int = 0) -> PreTrainedModel:
    """Return a random model of 0.43 million parameters that never chooses the token `end`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = load_model("tiny", vocab_size, max_length, None)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(3)  # far from uniform, so that a wrong context changes results
    return never_ends(model, [end])


def never_ends(model: PreTrainedModel, ends: Sequence[int]) -> PreTrainedModel:
    """Return the model with a head that never chooses these tokens."""
    embedding: Any = model.get_input_embeddings()
    head = torch.nn.Linear(1, len(embedding.weight)).to(embedding.weight)
    with torch.no_grad():
        head.bias.zero_()
        head.bias[list(ends)] = -1e4
    head.in_features, head.weight = embedding.embedding_dim, embedding.weight
    model.lm_head = head
    return model.eval()


def text_envs(num_envs: int, problems: Any, new_tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return a batched environment over these problems with a reward function of TRL's signature; 0 by default."""
    verifier = FunctionVerifier(reward or (lambda completions: [0.0] * len(completions)), alphabet=LETTERS)
    return gym.make_vec(
        "TextGen-v0", num_envs=num_envs, verifier=verifier, problems=problems, test_fraction=0.0,
        max_new_tokens=new_tokens, **kwargs,
    )  # fmt: skip


def letter_envs(num_envs: int, prompts: list[str], new_tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return the environment over prompts of letters."""
    return text_envs(num_envs, prompts, new_tokens, reward, **{"max_prompt_tokens": len(prompts[0]), **kwargs})


def letter_prompts(count: int, length: int, seed: int = 0) -> list[str]:
    """Return `count` different prompts of `length` letters."""
    draw = np.random.default_rng(seed).integers(len(LETTERS), size=(count * 2, length))
    return list(dict.fromkeys("".join(LETTERS[i] for i in row) for row in draw))[:count]


def qwen3(width: int, layers: int, context: int) -> PreTrainedModel:
    """Return a Qwen3-type model with random weights; its 512 words make an early end token rare."""
    config = Qwen3Config(
        vocab_size=512, hidden_size=width, intermediate_size=width * 23 // 8, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=width // 4, max_position_embeddings=context,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config).eval()


def half_billion(scale: float = 1.0) -> PreTrainedModel:
    """Return a random model of Qwen2.5-0.5B's shape in bfloat16; a `scale` below 1 makes it smaller."""
    width = max(int(896 * scale) // 64 * 64, 64)
    config = Qwen2Config(
        vocab_size=max(int(151_936 * scale), 64), hidden_size=width, intermediate_size=width * 38 // 7,
        num_hidden_layers=max(int(24 * scale), 2), num_attention_heads=width // 64,
        num_key_value_heads=2 if width >= 128 else 1, max_position_embeddings=4096, rope_theta=1e6,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config).to(torch.bfloat16).eval()


def words(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of words w0, w1, ..."""
    numbered = {"<eos>": 0, "<pad>": 1} | {f"w{i}": i for i in range(2, size)}
    inner = Tokenizer(models.WordLevel(numbered, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", unk_token="<pad>", padding_side="left"
    )


def word_envs(num_envs: int, size: int, prompt: int, new_tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return the environment over random prompts of words, as many as slots."""
    draw = torch.randint(2, size, (num_envs, prompt), generator=torch.Generator().manual_seed(0))
    problems = [" ".join(f"w{i}" for i in row) for row in draw.tolist()]
    return text_envs(num_envs, problems, new_tokens, reward, tokenizer=words(size), max_prompt_tokens=prompt, **kwargs)


def smollm2() -> str:
    """Return the folder of SmolLM2-135M-Instruct in float32.

    Raises:
        ValueError: if the package that it comes in is not installed.
    """
    return str(model_folder("smollm2"))


def chat_envs(num_envs: int, problems: list[Problem], new_tokens: int, reward: Any = None, **kwargs: Any) -> Any:
    """Return the environment over conversations for SmolLM2."""
    return text_envs(num_envs, problems, new_tokens, reward, tokenizer=smollm2(), **kwargs)


def sums(count: int, seed: int) -> list[Problem]:
    """Return distinct sums of numbers from 2 to 30."""
    pairs = random.Random(seed).sample([(a, b) for a in range(2, 31) for b in range(2, 31)], count)
    return [_asked(f"What is {a} plus {b}? Answer with a number.", str(a + b)) for a, b in pairs]


def stories(count: int, seed: int) -> list[Problem]:
    """Return distinct wishes for a story."""
    wishes = random.Random(seed).sample([(who, what) for who in WHO for what in WHAT], count)
    return [_asked(f"Tell a short story about a {who} that {what}.", "") for who, what in wishes]


def _asked(question: str, answer: str) -> Problem:
    return Problem([{"role": "user", "content": question}], answer)


# Rewards, with TRL's signature.


def same_text(completions: list[str], answer: list[str], **rest: Any) -> list[float]:
    """Reward 1 for the answer and nothing else."""
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def share_of_vowels(completions: list[str], **rest: Any) -> list[float]:
    """Reward the share of vowels, whatever the length."""
    return [sum(c in "aeio" for c in text) / max(len(text), 1) for text in completions]


def even_words(tokens: int, completions: list[str], **rest: Any) -> list[float]:
    """Reward the share of words with an even number; each of `tokens` that is missing counts as half.

    The share of an answer that ends after a word or two would be a lottery, which teaches some seeds to end early.
    """
    each = ([word for word in text.split() if word[0] == "w"] for text in completions)  # TRL omits <pad>
    signs = ([1 if word[-1] in "02468" else -1 for word in found] for found in each)
    return [0.5 + sum(found) / (2 * tokens) for found in signs]


def right_number(completions: list[Any], answer: list[str], **rest: Any) -> list[float]:
    """Reward 1 for an answer whose last number is the right one."""
    found = (re.findall(r"\d+", completion[-1]["content"]) for completion in completions)
    return [float(bool(numbers) and numbers[-1] == right) for numbers, right in zip(found, answer, strict=True)]


def short_words(completions: list[Any], **rest: Any) -> list[float]:
    """Reward the share of letters in words of at most four: seldom the same for two answers, so each has a gradient."""
    each = (re.findall(r"[A-Za-z]+", completion[-1]["content"]) for completion in completions)
    return [sum(len(w) for w in found if len(w) <= 4) / max(sum(map(len, found)), 1) for found in each]
