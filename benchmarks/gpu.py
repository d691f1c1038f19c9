"""A task over random words, the model of the GPU benchmarks (Qwen2.5-0.5B's shape), and what the device can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Agent, Collector, LanguageModelPolicy, Rollout, find_agent
from verifiers import FunctionVerifier

from .measure import Row, clock

PROMPT, TOKENS = 128, 256
VOCABULARY = 151_936
SQUARE, COPIED = 8192, 2**31  # a large product [n, n] [n, n], and the bytes of a large copy


def require_gpu() -> None:
    """Raise a ValueError if torch finds no GPU."""
    if not torch.cuda.is_available():
        raise ValueError("this benchmark needs a CUDA device; torch finds none")


@dataclass(frozen=True)
class Floors:
    """The speed of a device, measured: a floor of everything that runs on it.

    Attributes:
        operations: per second, of a large product in bfloat16.
        bandwidth: bytes read and written per second by a large copy.
    """

    operations: float
    bandwidth: float

    @classmethod
    def of(cls, device: torch.device, square: int = SQUARE, copied: int = COPIED, repeats: int = 10) -> Floors:
        """Measure the device: the best of five rounds, after one that warms up."""
        generator = torch.Generator(device).manual_seed(0)  # a GPU is faster on zeros and ones than on real numbers
        x = torch.randn(square, square, dtype=torch.bfloat16, device=device, generator=generator)
        source = torch.ones(copied, dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        seconds: dict[str, list[float]] = {"product": [], "copy": []}
        for _ in range(6):
            for name, run in (("product", lambda: x @ x), ("copy", lambda: target.copy_(source))):
                with clock() as taken:
                    for _ in range(repeats):
                        run()
                seconds[name].append(taken() / repeats)
        product, copy = (min(each[1:]) for each in seconds.values())
        return cls(2 * square**3 / product, 2 * copied / copy)

    def step(self, model: PreTrainedModel, batch: int, context: float) -> float:
        """Return the least seconds of a decode step: weights and cache are read once, and each weight multiplied."""
        config = model.config
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        head = config.hidden_size // config.num_attention_heads
        memory = 2 * config.num_hidden_layers * config.num_key_value_heads * head * model.dtype.itemsize
        computed = 2 * batch * sum(p.numel() for p in model.parameters())
        return max((weights + batch * context * memory) / self.bandwidth, computed / self.operations)


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


@dataclass(frozen=True)
class Bench:
    """What a GPU benchmark measures on, and how large; small sizes run on a CPU, too."""

    model: PreTrainedModel
    floors: Floors
    pairs: int
    batches: tuple[int, ...] = (32, 256, 1024)
    prompt: int = PROMPT
    tokens: int = TOKENS
    groups: int = 64
    k: int = 8
    parts: int = 8  # of an update: the activations of an eighth of the rows fit beside everything else
    replays: int = 20
    tests: tuple[str, ...] = ("tests/gpu",)

    @property
    def length(self) -> int:
        """L, the longest context."""
        return self.prompt + self.tokens

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(p.numel() for p in self.model.parameters())

    def policy(self) -> LanguageModelPolicy:
        """Return a policy around the model, with the techniques that are switched on now."""
        size = self.model.config.vocab_size
        text = spaces.Dict(
            tokens=spaces.Box(0, size - 1, (self.length,), np.int64), length=spaces.Discrete(self.length + 1)
        )
        return LanguageModelPolicy(text, spaces.Discrete(size), self.model)

    def acting(self, batch: int) -> tuple[LanguageModelPolicy, Callable[[], Rollout]]:
        """Return a policy, and what collects a rollout with it."""
        envs, policy = text_envs(self.model, batch, self.prompt, self.tokens), self.policy()
        collector, generator = Collector(envs, self.model.device), torch.Generator(self.model.device).manual_seed(0)

        def collect() -> Rollout:
            rollout = collector.collect(policy, batch, generator)
            assert rollout is not None
            return rollout

        return policy, collect

    def agent(self) -> Agent:
        """Return an agent whose update has `groups` prompts with `k` answers each."""
        batch = self.groups * self.k
        envs = text_envs(self.model, batch, self.prompt, self.tokens, even_words, group_size=self.k)
        return find_agent("grpo")(
            self.model, envs, learning_rate=1e-6, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
            micro_batch_tokens=max(batch // self.parts, 1) * self.length, device=str(self.model.device),
        )  # fmt: skip

    def decode_floor(self, batch: int) -> float:
        """Return the least seconds of a decode step in the middle of an episode."""
        return self.floors.step(self.model, batch, self.prompt + self.tokens / 2)


def per_second(collect: Callable[[], Rollout]) -> Callable[[], float]:
    """Return what times the collection of a rollout, in tokens per second."""

    def timed() -> float:
        with clock() as seconds:
            rollout = collect()
        return int(rollout.lengths.sum()) / seconds()

    return timed


def row(name: str, taken: tuple[list[float], list[float]], unit: str, floor: float, more: str = "") -> Row:
    """Return a row that says which share of its floor ours reaches; of speeds the floor is the highest possible."""
    speed = unit == "tokens/s"
    made = Row.of(name, *taken, unit, "", less_is_better=not speed, floor=floor)
    made.quality = f"{made.ours / floor if speed else floor / made.ours:.0%} of the floor{more}"
    return made


def peak_memory() -> float:
    """Return the peak of the device's memory in GiB since the last call, which begins anew; 0 without a GPU."""
    if not torch.cuda.is_initialized():
        return 0.0
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return peak
