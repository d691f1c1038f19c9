"""The benchmark of a GPU: acting captured and not, against `generate`, and an update with its memory and its floor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlenv.agents import find_agent

from .generate import Sampling, case
from .measure import Case, in_turn, peak_of_gpu
from .update import parts
from .worlds import even_words, half_billion, word_envs

PREFILLED = 8  # parts of an update: the activations of an eighth of the rows fit beside everything else


@dataclass(frozen=True)
class Scale:
    """How large the measured things are; small ones run on a CPU, too."""

    device: str = "cuda"
    model: float = 1.0
    batches: tuple[int, ...] = (32, 256, 1024)
    prompt: int = 128
    tokens: int = 256
    groups: int = 64
    k: int = 8


def cases(name: str, scale: Scale | None = None) -> Iterator[Case]:
    """Yield an update, then decoding with and without captured steps, and against `generate`, by batch."""
    scale = scale or Scale()
    model = half_billion(scale.model).to(scale.device)
    name = f"GRPO, {scale.groups} x {scale.k}"
    yield from parts(_agent(model, scale), name, rows=8192, work=1e12 * scale.model)
    for batch in scale.batches:
        captured, plain = (_sampling(model, batch, scale, cuda_graphs=on) for on in (True, False))
        yield _captured(f"B = {batch}, a step captured", captured, plain)
        del captured, plain  # and their caches
    for label, how in {"dynamic cache": {}, "static cache, compiled": {"cache_implementation": "static"}}.items():
        for batch in scale.batches:
            yield case(f"B = {batch}, generate with a {label}", _sampling(model, batch, scale), **how)


def _sampling(model: Any, batch: int, scale: Scale, **policy: Any) -> Sampling:
    envs = word_envs(batch, model.config.vocab_size, scale.prompt, scale.tokens, device=scale.device)
    return Sampling(envs, model, **policy)


def _agent(model: Any, scale: Scale) -> Any:
    batch, reward = scale.groups * scale.k, partial(even_words, scale.tokens)
    envs = word_envs(
        batch, model.config.vocab_size, scale.prompt, scale.tokens, reward, group_size=scale.k, device=scale.device
    )
    return find_agent("grpo")(
        model, envs, learning_rate=1e-6, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
        micro_batch_tokens=max(batch // PREFILLED, 1) * (scale.prompt + scale.tokens), device=scale.device,
    )  # fmt: skip


def _captured(label: str, captured: Sampling, plain: Sampling) -> Case:
    peaks: dict[Sampling, float] = {}

    def timed(sampling: Sampling) -> float:
        peak_of_gpu()
        speed = sampling.ours()
        peaks[sampling] = peak_of_gpu()
        return speed

    pair = in_turn(lambda: timed(captured), lambda: timed(plain))
    quality = lambda: f"peak {peaks[captured]:.1f} GiB, not captured {peaks[plain]:.1f}"  # noqa: E731
    return Case(label, "tokens/s", pair, quality, less_is_better=False)
