"""The parts of `rlenv bench h200`: each technique for a GPU with and without it, and shares of the measured floor.

`decode` and `train`, the parts of `h200-decode` and `h200-train`, compare with other libraries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from agents.core.devices import to_device
from agents.policies.language import policy as language_model
from agents.policies.language.decoding import decoder as decoding
from agents.policies.language.decoding import products, sampling
from agents.policies.language.decoding.cuda_graph import BUCKET, CapturedDecoder, Captures
from agents.policies.language.decoding.decoder import Decoder
from agents.policies.language.models import attention as masks
from agents.policies.language.training import forward

from .gpu import Bench, even_words, peak_memory, per_second, row
from .measure import Row, alternate, clock
from .peers import SAME_LOSS, train_beside

ROOT = Path(__file__).parents[1]
CUDNN, IN_PARTS = "attention without cuDNN", "prompts read in parts"
OFF: dict[str, list[tuple[Any, str, Any]]] = {  # technique: what switches it off
    "tokens chosen in parts": [(sampling, "CACHED", {})],
    "masks added": [(masks, "ADDED_ON", ())],
    "projections joined": [(products, "JOINED_ON", ())],
    CUDNN: [(module, "without_cudnn", lambda device: nullcontext()) for module in (language_model, forward)],
    "large chunks of the head": [(forward, "GPU_ELEMENTS", forward.ELEMENTS)],
    IN_PARTS: [(decoding, "PREFILL", 2**62)],
}
TESTED = 180  # seconds that tests/gpu may take
UPDATES = 2  # of each side per turn
OF_A_STEP = ("tokens chosen in parts", "masks added", "projections joined")


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
        return made, masks.added_mask(causal, bench.model.dtype) if masked else None

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
    taken = alternate(ours, peer, bench.pairs)
    return row(f"B = {batch}, {label}", taken, "us/step", bench.decode_floor(batch) * 1e6)


def _nothing(logits: torch.Tensor, deterministic: bool, source: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return logits[:, 0], logits[:, 0]


def _step(bench: Bench, batch: int, deterministic: bool = False, choose: Any = None) -> Callable[[], float]:
    """Return what times a captured step, its random numbers included, in microseconds; captured here and now."""
    policy, context = bench.policy(), bench.prompt + bench.tokens // 2
    parts = policy._actor, policy._step, choose or policy._choose, batch, bench.length, Captures()
    capture = (decoder := CapturedDecoder(*parts)).capture
    capture.tokens.random_(bench.model.config.vocab_size, generator=_seeded(bench.model.device))
    capture.positions.fill_(context - 1)
    draws, numbers = not deterministic and choose is None, torch.rand(batch, dtype=torch.float64)
    capture.numbers.fill_(0.5)
    sampled_with = None if deterministic else capture.numbers
    with torch.no_grad(), language_model.without_cudnn(bench.model.device):
        run, _ = decoder._captured_step(min(-(-context // BUCKET) * BUCKET, bench.length), sampled_with)

    def timed() -> float:
        with clock() as seconds, torch.no_grad():
            for _ in range(bench.replays):
                if draws:
                    capture.numbers.copy_(to_device(numbers, capture.numbers.device))
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

    def timed(*off: str) -> float:
        peak_memory()
        with without(*off), torch.no_grad(), clock() as seconds:
            decoder._prefill(tokens, lengths, slots, slots, head=False)
        peaks[off] = peak_memory()
        return batch * bench.prompt / seconds()

    taken = alternate(timed, lambda: timed(IN_PARTS), bench.pairs)
    floor, name = bench.floors.operations / (2 * bench.size), f"{batch} prompts of {bench.prompt}, in parts"
    yield row(name, taken, "tokens/s", floor, f"; peak {peaks[()]:.1f} GiB, at once {peaks[IN_PARTS,]:.1f}")


def acting(bench: Bench) -> Iterator[Row]:
    """Time whole rollouts through reset and step against their captured steps alone."""
    for batch in bench.batches:
        _, collect = bench.acting(batch)
        collect()  # captures the graphs
        step = _step(bench, batch)
        peak_memory()
        taken = alternate(per_second(collect), lambda step=step, batch=batch: batch / step() * 1e6, bench.pairs)  # type: ignore[misc]
        name = f"B = {batch}, rollouts against their steps alone"
        yield row(name, taken, "tokens/s", batch / bench.decode_floor(batch), f"; peak {peak_memory():.1f} GiB")


def update(bench: Bench) -> Iterator[Row]:
    """Time an update of GRPO, without the rollout, and without each technique of a training pass."""
    agent = bench.agent()
    rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
    assert rollout is not None
    read = int(rollout.lengths.sum()) + bench.groups * bench.prompt
    peaks = {}

    def timed(*off: str) -> float:
        peak_memory()
        with without(*off), clock() as seconds:
            agent.update(rollout)
        peaks[off] = peak_memory()
        return seconds()

    for technique in (CUDNN, "masks added", "large chunks of the head"):
        taken = alternate(timed, lambda technique=technique: timed(technique), bench.pairs)  # type: ignore[misc]
        name = f"an update of GRPO, {bench.groups} x {bench.k}, {technique}"
        memory = f"; peak {peaks[()]:.1f} GiB, without it {peaks[technique,]:.1f}"
        yield row(name, taken, "s/update", 6 * bench.size * read / bench.floors.operations, memory)


def decode(bench: Bench) -> Iterator[Row]:
    """Time whole rollouts against the ways of transformers' `generate`."""
    for batch in bench.batches:
        policy, collect = bench.acting(batch)
        rollout = collect()  # captures the graphs
        prompts, few = rollout.observations["tokens"][:, : bench.prompt], rollout.select(slice(0, 4))  # type: ignore[index]
        with torch.no_grad():
            again = policy.evaluate_actions(few, entropy=False)[0]
        gap = float((again - few.log_probs).where(few.mask, 0).abs().max())
        for label, how in {"dynamic cache": {}, "static cache, compiled": {"cache_implementation": "static"}}.items():

            def peer(prompts: torch.Tensor = prompts, how: dict[str, Any] = how) -> float:
                with clock() as seconds, torch.no_grad():
                    bench.model.generate(
                        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=bench.tokens,
                        min_new_tokens=bench.tokens, do_sample=True, top_k=0, pad_token_id=1, eos_token_id=0, **how,
                    )  # fmt: skip
                return len(prompts) * bench.tokens / seconds()

            taken = alternate(per_second(collect), peer, bench.pairs)
            same = f"; log-probabilities differ from training's by at most {gap:.2g}"
            yield row(f"B = {batch}, {label}", taken, "tokens/s", batch / bench.decode_floor(batch), same)


def train(bench: Bench) -> Iterator[Row]:
    """Time updates of GRPO, rollouts included, against TRL's."""
    agent, gpu, times, read = bench.agent(), bench.model.device.type == "cuda", [], []
    collect_rollout = agent.collect_rollout

    def timed(listener: Any) -> Any:
        with clock() as seconds:
            rollout = collect_rollout(listener)
        assert rollout is not None
        times.append(seconds())
        read.append(int(rollout.lengths.sum()) + len(rollout) * bench.prompt)
        return rollout

    agent.collect_rollout = timed  # type: ignore[assignment, method-assign]
    peak_memory()
    turns, *_ = train_beside(
        "GRPO", agent, bench.model, even_words, UPDATES, bench.pairs + 1, use_cpu=not gpu, bf16=gpu,
        per_device_train_batch_size=agent.episodes_per_update // bench.parts, gradient_accumulation_steps=bench.parts,
        **SAME_LOSS,
    )  # fmt: skip
    acting = mean(times[UPDATES:])
    training = mean(turns.ours[1:]) - acting
    used = 6 * bench.size * read[-1] / training / bench.floors.operations
    gap = agent.last_metrics["train/logp_gap_max"]
    quality = (
        f"acting {acting:.2f} s, training {training:.2f} s, {used:.0%} of the arithmetic (6 N per token); "
        f"peak of both together {peak_memory():.0f} GiB; "
        f"log-probabilities of acting and training differ by at most {gap:.2g}"
    )
    name = f"GRPO, {bench.groups} x {bench.k}, {bench.tokens} tokens"
    yield Row.of(name, turns.ours[1:], turns.theirs[1:], "s/update", quality)


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


PARTS = {  # of each benchmark
    "h200": (tests, attention, steps, prefill, acting, update, cudnn_steps),
    "h200-decode": (decode,),
    "h200-train": (train,),
}
