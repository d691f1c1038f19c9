"""The parts of `rlenv bench h200`: each technique for a GPU with and without it, and shares of the measured floor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from gymnasium import spaces
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from agents import LanguageModelPolicy, find_agent
from agents.policies.language import policy as language_model
from agents.policies.language.decoding import decoder as decoding
from agents.policies.language.decoding import products, sampling
from agents.policies.language.decoding.cuda_graph import BUCKET, CapturedDecoder, Captures
from agents.policies.language.decoding.decoder import Decoder
from agents.policies.language.models import attention as masks
from agents.policies.language.training import forward
from agents.rollouts.collector import Collector

from .gpu import PROMPT, TOKENS, Floors, even_words, text_envs
from .measure import Row, alternate, clock

ROOT = Path(__file__).parents[1]
CUDNN = "attention without cuDNN"
OFF: dict[str, list[tuple[Any, str, Any]]] = {  # technique: what switches it off
    "tokens chosen in parts": [(sampling, "CACHED", {})],
    "masks added": [(masks, "ADDED_ON", ())],
    "projections joined": [(products, "JOINED_ON", ())],
    CUDNN: [(module, "without_cudnn", lambda device: nullcontext()) for module in (language_model, forward)],
    "large chunks of the head": [(forward, "GPU_ELEMENTS", forward.ELEMENTS)],
    "prompts read in parts": [(decoding, "PREFILL", 2**62)],
}
TESTED = 180  # seconds that tests/gpu may take
OF_A_STEP = ("tokens chosen in parts", "masks added", "projections joined")


@dataclass(frozen=True)
class Bench:
    """What is measured on, and how large."""

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

    def policy(self) -> LanguageModelPolicy:
        """Return a policy around the model, with the techniques that are switched on now."""
        size = self.model.config.vocab_size
        text = spaces.Dict(
            tokens=spaces.Box(0, size - 1, (self.length,), np.int64), length=spaces.Discrete(self.length + 1)
        )
        return LanguageModelPolicy(text, spaces.Discrete(size), self.model)


def without(*techniques: str) -> ExitStack:
    """Return a context in which these techniques are switched off."""
    stack = ExitStack()
    for module, name, value in (switch for technique in techniques for switch in OFF[technique]):
        stack.enter_context(mock.patch.object(module, name, value))
    return stack


def tests(bench: Bench) -> Iterator[Row]:
    """Run tests/gpu."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *bench.tests]
    with clock() as seconds:
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TESTED)
            said = (done.stdout.splitlines() or ["not run"])[-1]
        except subprocess.TimeoutExpired:
            said = f"stopped after {TESTED} s"
    yield Row.of("tests/gpu", [seconds()], [seconds()], "s", said)


def attention(bench: Bench) -> Iterator[Row]:
    """Time attention, forward and backward, on shapes that were not seen before, with a mask as in rows of trees."""
    config, device = bench.model.config, bench.model.device
    width = config.hidden_size // config.num_attention_heads
    lengths = {side: iter(range(bench.length, 10**6, 7)) for side in ("ours", "peer")}

    def inputs(length: int, masked: bool = True) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        shape = 4, config.num_attention_heads, length, width
        made = [torch.randn(shape, device=device, dtype=bench.model.dtype, requires_grad=True) for _ in range(3)]
        causal = torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()
        return made, masks._added(causal, bench.model.dtype) if masked else None

    def timed(side: str) -> float:
        qkv, mask = inputs(next(lengths[side]))
        with clock() as seconds, masks.without_cudnn(device) if side == "ours" else nullcontext():
            q, k, v = qkv
            scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
        return seconds() * 1e3

    taken = alternate(lambda: timed("ours"), lambda: timed("peer"), 5 * bench.pairs)
    with masks.without_cudnn(device):
        ours = _chosen(*inputs(bench.length)), _chosen(*inputs(bench.length, False))
    theirs = _chosen(*inputs(bench.length)), _chosen(*inputs(bench.length, False))
    quality = f"with a mask and without: ours {' and '.join(ours)}, torch's choice {' and '.join(theirs)}"
    yield Row.of("attention of a new shape, without cuDNN", *taken, "ms", quality)


def _chosen(qkv: list[torch.Tensor], mask: torch.Tensor | None) -> str:
    """Return the name of the attention that torch takes."""
    if qkv[0].device.type != "cuda" or not torch.cuda.is_initialized():
        return "none of a GPU"
    return SDPBackend(torch._fused_sdp_choice(*qkv, attn_mask=mask, is_causal=mask is None)).name  # type: ignore


def steps(bench: Bench) -> Iterator[Row]:
    """Time a captured step in the middle of an episode, without each technique and without choosing tokens."""
    for batch in bench.batches:
        ours = _step(bench, batch)
        nothing, greedy = _step(bench, batch, choose=_nothing), _step(bench, batch, deterministic=True)
        yield _against(bench, batch, "against a step that chooses nothing", ours, nothing)
        yield _against(bench, batch, "against a greedy step", ours, greedy)
        del nothing, greedy  # and their caches
        for techniques in (*((each,) for each in OF_A_STEP), OF_A_STEP):
            label = techniques[0] if len(techniques) == 1 else "all of these"
            with without(*techniques):
                peer = _step(bench, batch)
            yield _against(bench, batch, label, ours, peer)


def cudnn_steps(bench: Bench) -> Iterator[Row]:
    """Time a captured step with and without cuDNN; by itself, because cuDNN may refuse to be captured."""
    for batch in bench.batches:
        with without(CUDNN):
            peer = _step(bench, batch)
        yield _against(bench, batch, CUDNN, _step(bench, batch), peer)


def _against(bench: Bench, batch: int, label: str, ours: Callable[[], float], peer: Callable[[], float]) -> Row:
    """Return the row of two captured steps."""
    floor = bench.floors.step(bench.model, batch, bench.prompt + bench.tokens / 2) * 1e6
    taken = alternate(ours, peer, bench.pairs)
    share = floor / sorted(taken[0])[len(taken[0]) // 2]
    return Row.of(f"B = {batch}, {label}", *taken, "us/step", f"{share:.0%} of the floor", floor=floor)


def _nothing(logits: torch.Tensor, deterministic: bool, source: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return logits[:, 0], logits[:, 0]


def _step(bench: Bench, batch: int, deterministic: bool = False, choose: Any = None) -> Callable[[], float]:
    """Return what times a captured step, its random numbers included, in microseconds; captured here and now."""
    policy, context = bench.policy(), bench.prompt + bench.tokens // 2
    parts = policy._actor, policy._step, choose or policy._choose, batch, bench.length, Captures()
    capture = (decoder := CapturedDecoder(*parts)).capture
    capture.tokens.random_(bench.model.config.vocab_size, generator=_seeded(bench.model.device))
    capture.positions.fill_(context - 1)
    draws, generator = not deterministic and choose is None, _seeded(bench.model.device)
    capture.noise.fill_(1.0)
    with torch.no_grad(), language_model.without_cudnn(bench.model.device):
        run, _ = decoder._captured_step(min(-(-context // BUCKET) * BUCKET, bench.length), deterministic)

    def timed() -> float:
        with clock() as seconds, torch.no_grad():
            for _ in range(bench.replays):
                if draws:
                    capture.noise.exponential_(generator=generator)
                run()
        return seconds() / bench.replays * 1e6

    return timed


def prefill(bench: Bench) -> Iterator[Row]:
    """Time reading the prompts of the largest batch, in parts and at once."""
    batch, device, policy = bench.batches[-1], bench.model.device, bench.policy()
    shape, size = (batch, bench.length), bench.model.config.vocab_size
    tokens = torch.randint(size, shape, device=device, generator=_seeded(device))
    slots, lengths = (x.to(device) for x in (torch.arange(batch), torch.full((batch,), bench.prompt)))
    decoder, peaks = Decoder(policy._actor, policy._step, policy._choose, batch, bench.length), {}

    def timed(parts: bool) -> float:
        _reset_peak()
        with without(*([] if parts else ["prompts read in parts"])), torch.no_grad(), clock() as seconds:
            decoder._prefill(tokens, lengths, slots, slots, head=False)
        peaks[parts] = _peak()
        return batch * bench.prompt / seconds()

    taken = alternate(lambda: timed(True), lambda: timed(False), bench.pairs)
    used = 2 * sum(p.numel() for p in bench.model.parameters()) * sorted(taken[0])[len(taken[0]) // 2]
    quality = (
        f"peak {peaks[True]:.1f} GiB, at once {peaks[False]:.1f}; {used / bench.floors.operations:.0%} of the floor"
    )
    name = f"{batch} prompts of {bench.prompt}, in parts"
    yield Row.of(name, *taken, "tokens/s", quality, less_is_better=False, floor=bench.floors.operations)


def acting(bench: Bench) -> Iterator[Row]:
    """Time whole rollouts through reset and step against their captured steps alone."""
    for batch in bench.batches:
        envs = text_envs(bench.model, batch, bench.prompt, bench.tokens)
        policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, bench.model)
        collector, generator = Collector(envs, bench.model.device), _seeded(bench.model.device)

        def ours(
            collector: Any = collector, policy: Any = policy, batch: int = batch, generator: Any = generator
        ) -> float:
            with clock() as seconds:
                rollout = collector.collect(policy, batch, generator)
            return int(rollout.lengths.sum()) / seconds()

        ours()  # captures the graphs
        step = _step(bench, batch)
        taken = alternate(ours, lambda step=step, batch=batch: batch / step() * 1e6, bench.pairs)  # type: ignore[misc]
        floor = batch / bench.floors.step(bench.model, batch, bench.prompt + bench.tokens / 2)
        share = sorted(taken[0])[len(taken[0]) // 2] / floor
        quality = f"{share:.0%} of the floor; peak {_peak():.1f} GiB"
        name = f"B = {batch}, rollouts against their steps alone"
        yield Row.of(name, *taken, "tokens/s", quality, less_is_better=False, floor=floor)


def update(bench: Bench) -> Iterator[Row]:
    """Time an update of GRPO, without the rollout, and without each technique of a training pass."""
    batch = bench.groups * bench.k
    envs = text_envs(bench.model, batch, bench.prompt, bench.tokens, even_words, group_size=bench.k)
    agent = find_agent("grpo")(
        bench.model, envs, learning_rate=1e-6, lr_schedule="constant", episodes_per_update=batch, num_envs=batch,
        micro_batch_tokens=max(batch // bench.parts, 1) * bench.length, device=str(bench.model.device),
    )  # fmt: skip
    rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
    assert rollout is not None
    read = int(rollout.lengths.sum()) + bench.groups * bench.prompt
    peaks = {}

    def timed(*off: str) -> float:
        _reset_peak()
        with without(*off), clock() as seconds:
            agent.update(rollout)
        peaks[off] = _peak()
        return seconds()

    for technique in (CUDNN, "masks added", "large chunks of the head"):
        taken = alternate(timed, lambda technique=technique: timed(technique), bench.pairs)  # type: ignore[misc]
        seconds = sorted(taken[0])[len(taken[0]) // 2]
        floor = 6 * sum(p.numel() for p in bench.model.parameters()) * read / bench.floors.operations
        quality = f"{floor / seconds:.0%} of the floor; peak {peaks[()]:.1f} GiB, without it {peaks[technique,]:.1f}"
        name = f"an update of GRPO, {bench.groups} x {bench.k}, {technique}"
        yield Row.of(name, *taken, "s/update", quality, floor=floor)


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


def _peak() -> float:
    """Return the peak of the device's memory in GiB; 0 without a GPU."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_initialized() else 0.0


def _reset_peak() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


PARTS = (tests, attention, steps, prefill, acting, update, cudnn_steps)
