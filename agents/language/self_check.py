"""Checks a model before it is used: acting and training must agree with a plain forward pass on a few tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from rlenv._checks import first_line

from ..devices import to_device, widest
from .acting_copy import acting_copy
from .decoder import Decoder
from .kv_cache import SlotCache
from .loading import SUPPORTED, model_type
from .prefix_sharing import takes_forests
from .reading import Reading, forest_of_two
from .seats import Contexts

TOKENS = 8  # length of each of the two contexts
# Relative to the range of log-probabilities. Rounding is far smaller (1e-6, in bfloat16 0.02), a wrong position is not.
TOLERANCE, HALF_TOLERANCE = 0.01, 0.1


@contextmanager
def faults_named(model: PreTrainedModel) -> Iterator[None]:
    """Turn an exception of a model's first forward passes into one line that names the model's type.

    Running out of memory says nothing about the model and passes unchanged.

    Raises:
        ValueError: for any other exception.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "can't allocate memory" in str(error):  # torch's allocator on a CPU raises a plain RuntimeError
            raise
        reason = first_line(error)[:120]
        raise ValueError(
            f"model type {model_type(model)!r} cannot be used: reading with positions, masks and a KV cache fails "
            f"({reason}); supported: {SUPPORTED}"
        ) from error


@torch.no_grad()
def try_out(policy: Any, logits_of: Callable[[Reading], torch.Tensor]) -> None:
    """Check that decoding, and reading a forest of contexts, give the log-probabilities of a plain forward pass.

    Args:
        policy: a `LanguageModelPolicy`.
        logits_of: returns the logits of each edge of a reading, as training does.

    Raises:
        ValueError: if they differ; the message names the model's type.
    """
    model, length = policy.model, max(min(TOKENS, policy.max_length), 2)
    fork = length // 2
    with faults_named(model):
        contexts = (3 + 7 * torch.arange(length, device=model.device).repeat(2, 1)) % policy.vocab_size
        contexts[1, fork:] = (contexts[1, fork:] + 1) % policy.vocab_size
        plain = model(contexts, use_cache=False).logits  # [2, n, V']
        acting = acting_copy(model, policy.pack_weights)
        gaps = {"with a KV cache": _gap(*_decoded(acting, contexts, plain))}
        if takes_forests(model):
            made = logits_of(forest_of_two(contexts, fork)).view_as(plain)
            gaps["in a forest of contexts"] = _gap(made, plain)
    exact = model.dtype in (torch.float32, torch.float64)
    for how, gap in gaps.items():
        if not gap <= (TOLERANCE if exact else HALF_TOLERANCE):
            raise ValueError(
                f"model type {model_type(model)!r} cannot be used: its log-probabilities {how} and in a plain pass "
                f"differ by {gap:.0%} of their range; supported: {SUPPORTED}"
            )


def _decoded(model: PreTrainedModel, contexts: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode from beginnings of unequal length, and go on after replies; return logits and the plain pass's [4, V']."""
    rows, starts = torch.arange(2, device=contexts.device), torch.ones(2, dtype=torch.bool)
    full = contexts.shape[1]
    first, then = torch.tensor([[1, full // 2], [max(full - 1, 2), full]])
    decoder = Decoder(model, model, SlotCache(model, 2, full))
    made, wanted = [], []
    for lengths, starting, appended in ((first, starts, None), (then, ~starts, then - first - 1)):
        ends = to_device(lengths, contexts.device)
        made.append(decoder.logits(Contexts(contexts, ends, starting, appended=appended)))
        wanted.append(plain[rows, ends - 1])
    return torch.cat(made), torch.cat(wanted)


def _gap(made: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest difference between log-probabilities relative to their range; NaN if one of them is NaN."""
    ours, theirs = (logits.to(widest(logits.device)).log_softmax(-1).clamp(min=-1e4) for logits in (made, wanted))
    spread = float((theirs.amax(-1) - theirs.amin(-1)).max())
    return float((ours - theirs).abs().max()) / max(spread, 1e-6)
