"""The memory that a run with a language model needs, before it begins: what takes how much, and which phase most."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transformers import PretrainedConfig

from ..language.decoding.step import WRITTEN_OUT
from . import trace
from .trace import Shape


@dataclass(frozen=True)
class Workload(Shape):
    """What a run does with a language model.

    Attributes:
        episodes: trained on per optimizer step.
        slots: of the environment.
        group_size: slots that share a prompt, which is read once.
        reference: whether there is a frozen reference.
        teacher: bytes of the weights of a frozen teacher.
        micro_batch_size: episodes per pass; None for all.
        micro_batch_tokens: tokens per pass; None for all.
        imitated: demonstrations per step of the warm start; 0 without one.
        evaluated: slots of evaluations; 0 without one.
        pack_weights: whether acting on a CPU has packed copies; see `packed.py`.
        shards: processes among which weights, gradients, optimizer and reference are dealt out; see `sharded.py`.
            Episodes and slots are those of one process.
    """

    episodes: int = 256
    slots: int = 256
    group_size: int = 1
    reference: bool = False
    teacher: int = 0
    micro_batch_size: int | None = None
    micro_batch_tokens: int | None = None
    imitated: int = 0
    evaluated: int = 0
    pack_weights: bool = True
    shards: int = 1

    def rows(self, episodes: int) -> int:
        """Return how many of these episodes are in one pass, if all are as long as the context."""
        by_tokens = episodes if self.micro_batch_tokens is None else self.micro_batch_tokens // (self.context - 1)
        return max(min(episodes, by_tokens, self.micro_batch_size or episodes), 1)


@dataclass(frozen=True)
class Plan:
    """Bytes of a run.

    Attributes:
        parameters: their number.
        parts: what takes memory, by name; not all of it at the same time.
        phases: the peak of each phase of a run, by name.
    """

    parameters: int
    parts: dict[str, int]
    phases: dict[str, int]

    @property
    def peak(self) -> int:
        """The most of all phases."""
        return max(self.phases.values())

    @property
    def busiest(self) -> str:
        """The phase with the peak."""
        return max(self.phases, key=lambda name: self.phases[name])


@dataclass(frozen=True)
class _Held:
    """Bytes that are held for a whole run: weights, master weights, moments, gradients and the reference.

    Attributes:
        kept: gradients while the policy acts: master weights drop theirs after a step.
        whole: weights that are put together for acting, if they are dealt out.
        gathered: what the gathered layers take in training: buffers, and gradients before their sum is dealt out.
    """

    weights: int
    masters: int
    moments: int
    gradients: int
    reference: int
    kept: int
    whole: int = 0
    gathered: int = 0

    @classmethod
    def of(cls, sizes: trace.Weights, work: Workload) -> _Held:
        wide = max(sizes.trained_bytes, 4 * sizes.trained)  # Adam's numbers have at least 32 bits
        copied = work.reference and work.lora_rank is None  # an adapter's reference is the base itself
        held = cls(
            sizes.nbytes, 4 * sizes.halves, 2 * wide, wide, sizes.nbytes if copied else 0, wide - 4 * sizes.halves
        )
        held = replace(held, reference=held.reference + work.teacher)
        if work.shards == 1:
            return held
        if work.reference:  # with a separate base
            held = replace(held, reference=sizes.nbytes)
        parts = {name: -(-size // work.shards) for name, size in vars(held).items()}
        return cls(**parts | {"whole": sizes.nbytes, "gathered": 3 * sizes.rest + 5 * sizes.layer})

    @property
    def always(self) -> int:
        return self.weights + self.masters + self.moments + self.reference

    @property
    def acting(self) -> int:
        return self.always + self.kept + self.whole


def plan(config: PretrainedConfig, work: Workload) -> Plan:
    """Return what a run needs at most: every episode as long as the context, none sharing anything but its prompt.

    The rollout is counted, the interpreter and its libraries are not, and neither is what allocators keep in reserve.

    Args:
        config: of the model.
        work: what the run does.
    """
    sizes = trace.weights(config, work)
    held = _Held.of(sizes, work)
    packed = _packed(config, sizes, work)
    rows = work.rows(work.episodes)
    again = rows < work.episodes or work.shards > 1  # a shard's gradients are made elsewhere
    trained = trace.training(config, work, rows, again)
    acted = trace.acting(config, work, work.slots, max(work.slots // work.group_size, 1))
    rollout = _rollout(work)
    phases = {
        "acting": held.acting + packed + max(acted.peak, held.whole if held.reference else 0) + rollout,
        "training": held.always + _pass(held, sizes, trained, again) + rollout,
        "optimizer step": held.always + held.gradients + _step(sizes, work) + rollout,
    }
    if work.imitated:  # has a separate optimizer, before the run's has moments
        part = work.rows(work.imitated)
        split = part < work.imitated or work.shards > 1
        learned = trace.training(config, replace(work, critic=None, entropy=False), part, split)
        first = held.weights + 2 * held.masters + held.moments
        phases["warm start"] = first + _pass(held, sizes, learned, split)
    if work.evaluated:
        played = trace.acting(config, work, work.evaluated, work.evaluated)
        phases["evaluation"] = held.acting + packed + played.peak
    parts = {
        "weights": held.weights,
        "gradients": held.gradients,
        "optimizer": held.moments + held.masters,
        "reference": held.reference,
        "KV cache": acted.held,
        "logits of acting": acted.logits,
        "activations": trained.held,
        "logits of training": trained.logits,
    }
    return Plan(sizes.count, parts, phases)


def fitting_micro_batch_tokens(config: PretrainedConfig, work: Workload, budget: int) -> int:
    """Return the largest `micro_batch_tokens` with which training stays within a budget.

    Args:
        config: of the model.
        work: what the run does; its own micro-batches are ignored.
        budget: bytes for the whole run, weights included.

    Returns:
        At most what all episodes of an update have together; 0 if not even one episode fits.
    """
    sizes = trace.weights(config, work)
    held = _Held.of(sizes, work)
    room = budget - held.always - _rollout(work)

    def need(rows: int) -> int:
        again = rows < work.episodes or work.shards > 1
        return _pass(held, sizes, trace.training(config, work, rows, again), again)

    rows, same = work.episodes, min(held.gathered + held.gradients + 2 * sizes.halves, room)  # for any number of rows
    while (needed := need(rows)) > room and rows > 1:  # the rest is nearly proportional to the rows, and no less
        rows = max(min(int(0.97 * rows * (room - same) / (needed - same)), rows - 1), 1)
    fits = needed <= room and held.gradients + _step(sizes, work) <= room
    return rows * (work.context - 1) if fits else 0


def _rollout(work: Workload) -> int:
    """Return the bytes of an update's episodes: with replies, also of first observations, and of positions."""
    tokens, steps = (8, 48) if work.turns == 1 else (16, 56)
    return work.episodes * (tokens * work.context + steps * work.sampled)


def _packed(config: PretrainedConfig, sizes: trace.Weights, work: Workload) -> int:
    """Return the bytes of the packed copies that decode steps on a CPU use; see `packed.py`."""
    size = {"float32": 4, "bfloat16": 2}.get(work.dtype, 0)
    if not (size and work.pack_weights and work.device == "cpu" and config.model_type in WRITTEN_OUT):
        return 0
    text = config.get_text_config()
    head = size * text.vocab_size * text.hidden_size
    if work.dtype == "bfloat16" and work.lora_rank:  # the second copy of the layers is the packed one
        return head
    return size * sizes.count - sizes.rest + head


def _pass(held: _Held, sizes: trace.Weights, made: trace.Traced, again: bool) -> int:
    """Return what a pass adds to what is held; gradients that it makes are in its peak.

    After the first pass, gradients of 16 bits lie beside the float32 ones that they are added to.
    """
    return made.peak + held.gathered + (held.gradients + 2 * sizes.halves if again else 0)


def _step(sizes: trace.Weights, work: Workload) -> int:
    """Return what Adam needs for its intermediate results: of one weight, on a GPU of all at once."""
    return 4 * (2 * sizes.largest if work.device == "cpu" else sizes.trained) // work.shards
