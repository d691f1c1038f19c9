"""The benchmark of a GPU: acting captured and not, against `generate`, and an update with its memory and its floor.

    rlenv bench gpu                                   # three pairs at most, ten minutes
    python -m benchmarks.h200 --minutes 5 --out FILE  # from the repository, with another budget

The second writes a row at a time. When the minutes are used up, nothing else is begun, and it says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents import find_agent

from .floors import product_speed, read_once, size
from .generate import Sampling, case
from .measure import Case, clock, in_turn, measured
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
    """Yield decoding with and without captured steps by batch, an update, then decoding against `generate`.

    Raises:
        ValueError: without a GPU, unless the scale says otherwise.
    """
    scale = scale or Scale()
    if scale.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("this benchmark needs a CUDA device; torch finds none")
    model = half_billion(scale.model).to(scale.device)
    for batch in scale.batches:
        captured, plain = (_sampling(model, batch, scale, cuda_graphs=on) for on in (True, False))
        yield _captured(f"B = {batch}, a step captured", captured, plain)
        del captured, plain  # and their caches
    yield from _update(model, scale)
    for label, how in {"dynamic cache": {}, "static cache, compiled": {"cache_implementation": "static"}}.items():
        for batch in scale.batches:
            yield case(f"B = {batch}, generate with a {label}", _sampling(model, batch, scale), **how)


def _sampling(model: Any, batch: int, scale: Scale, **policy: Any) -> Sampling:
    envs = word_envs(batch, model.config.vocab_size, scale.prompt, scale.tokens, device=scale.device)
    return Sampling(envs, model, **policy)


def _captured(label: str, captured: Sampling, plain: Sampling) -> Case:
    peaks: dict[Sampling, float] = {}

    def timed(sampling: Sampling) -> float:
        _peak()
        speed = sampling.ours()
        peaks[sampling] = _peak()
        return speed

    pair = in_turn(lambda: timed(captured), lambda: timed(plain))
    quality = lambda: f"peak {peaks[captured]:.1f} GiB, not captured {peaks[plain]:.1f}"  # noqa: E731
    return Case(label, "tokens/s", pair, quality, less_is_better=False)


def _update(model: Any, scale: Scale) -> Iterator[Case]:
    """Yield an update of GRPO without its rollout, against the arithmetic of its passes."""
    batch = scale.groups * scale.k
    reward = lambda prompts, completions: even_words(scale.tokens, completions)  # noqa: E731
    envs = word_envs(
        batch, model.config.vocab_size, scale.prompt, scale.tokens, reward, group_size=scale.k, device=scale.device
    )
    agent: Any = find_agent("grpo")(
        model, envs, learning_rate=1e-6, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
        micro_batch_tokens=max(batch // PREFILLED, 1) * (scale.prompt + scale.tokens), device=scale.device,
    )  # fmt: skip
    rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
    peaks: list[float] = []

    def pair() -> tuple[float, float]:
        _peak()
        with clock() as seconds:
            agent.update(rollout)
        peaks.append(_peak())
        return seconds(), 6 * size(model) * read_once(rollout) / product_speed(
            model, rows=8192, work=1e12 * scale.model
        )

    name = f"an update of GRPO, {scale.groups} x {scale.k}; peer: its arithmetic"
    yield Case(name, "s/update", pair, lambda: f"peak {max(peaks):.1f} GiB")


def _peak() -> float:
    """Return the peak of the device's memory in GiB since the last call; 0 without a GPU."""
    if not torch.cuda.is_initialized():
        return 0.0
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return peak


def write(cases_of: Iterator[Case], pairs: int, minutes: float, out: Path) -> int:
    """Measure these cases until the minutes are used up, and write a row at a time; return how many were made.

    A case that fails, such as by too little memory, is named and the others go on.
    """
    began, made = time.monotonic(), 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as file:
        for each in cases_of:
            if time.monotonic() - began >= 60 * minutes:
                print(f"the time is used up; not measured: {each.name} and what follows", file=sys.stderr)
                break
            try:
                row = measured(each, pairs)
                record, made = row.as_dict("python -m benchmarks.h200"), made + 1
                said = f"{row.name}: {row.ratio['median']:.2f}x, {row.ours:g} {row.unit} ({row.quality})"
            except RuntimeError as error:
                record, said = {"failed": each.name, "why": str(error)}, f"{each.name} failed: {error}"
            print(said, file=sys.stderr, flush=True)
            file.write(json.dumps(record) + "\n")
            file.flush()
    return made


def main() -> None:
    """Measure, with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="after which nothing is begun")
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each side")
    parser.add_argument("--out", type=Path, default=Path("benchmarks", "results", "gpu.jsonl"))
    given = parser.parse_args()
    try:
        made = write(cases("gpu"), given.pairs, given.minutes, given.out)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if made else 1)


if __name__ == "__main__":
    main()
