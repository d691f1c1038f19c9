"""The interface of engines, which write whole turns as tokens, with the weights that the agent sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlenv._loop import always

from ..errors import EngineError
from ..fsdp import full
from ..language.adapters import adapted_layers, merged_weight

ROUNDING = 1e-4  # nats; a log-probability above 0 by at most this much is a rounded 0


@dataclass(frozen=True)
class Request:
    """A turn, or the rest of one, to be written after a context.

    Attributes:
        context: token ids.
        most: tokens to write, unless a stop token comes first.
        temperature: divides the logits; 0 takes the likeliest tokens.
        stop_token_ids: end it; the one that came is part of it.
        seed: of its draws, which depend on nothing else.
    """

    context: list[int]
    most: int
    temperature: float
    stop_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Written:
    """The tokens that an engine wrote, with the log-probability that each was drawn with.

    Attributes:
        place: of the request in its round.
        tokens: ids, as many as were asked for, or fewer; those beyond are dropped.
        log_probs: of all tokens, finite and at most `ROUNDING`; none of greedy ones are needed.
    """

    place: int
    tokens: Sequence[int]
    log_probs: Sequence[float]


def checked(written: Written, request: Request, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens [T] of an answer that are not surplus, and their log-probabilities, float32 [T], at most 0.

    Args:
        written: the answer; log-probabilities up to `ROUNDING` above 0 are 0.
        request: that it answers; for a greedy answer without log-probabilities, they are 0.
        vocab_size: V, of the environment.

    Raises:
        EngineError: for what no policy over this vocabulary writes.
    """
    tokens = _numbers("tokens that are not whole numbers", written.tokens, "iu")
    given = _numbers("log-probabilities that are not numbers", written.log_probs, "fiu")
    if not len(tokens) or (len(given) != len(tokens) and (len(given) or request.temperature)):
        sent = f"{len(tokens)} tokens with {len(given)} log-probabilities"
        raise EngineError(f"the engine sent {sent}; it must write at least one token, each with its own")
    tokens, given = tokens[: request.most], given[: request.most]
    if (strange := (tokens < 0) | (tokens >= vocab_size)).any():
        raise EngineError(
            f"the engine sent token {tokens[strange][0]}, which the environment does not have (allowed: 0 to "
            f"{vocab_size - 1}): it was started with another model, or with a padded vocabulary; give it the model of "
            "this run"
        )
    if not len(given):
        return tokens, np.zeros(len(tokens), np.float32)
    with np.errstate(over="ignore"):
        log_probs = given.astype(np.float32)
    if (strange := ~(np.isfinite(log_probs) & (log_probs <= ROUNDING))).any():
        at = int(strange.argmax())
        raise EngineError(
            f"the engine sent the log-probability {given[at]:g} for token {tokens[at]}; it must send those that tokens "
            "were drawn with, finite and at most 0: restart it with the model of this run (vLLM: with "
            "--logprobs-mode processed_logprobs)"
        )
    return tokens, np.minimum(log_probs, 0)


def _numbers(fault: str, values: Any, kinds: str) -> np.ndarray:
    """Return a list of numbers of these kinds of numpy's as an array, which is empty if the list is."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # lists of unequal length, tensors that numpy does not have
        found = np.empty((1, 1))
    if found.ndim != 1 or (found.size and found.dtype.kind not in kinds):
        raise EngineError(f"the engine sent {fault} ({values!r:.60}); mend what it returns")
    return found


def unasked(place: Any, count: int) -> str:
    """Return the fault of an answer without an open request, as a line."""
    if place in range(count):
        return f"the engine sent two answers to request {place + 1} of {count}; it must send one"
    said = f"request {place + 1}" if isinstance(place, int) else f"{place!r:.60}"
    return f"the engine sent an answer to {said}, which is not among the {count} that were asked; restart it"


class StaleEngineError(EngineError):
    """An engine has lost the weights that it was sent; they are sent again."""


class Engine(ABC):
    """Writes turns over the environment's vocabulary, drawn from the whole softmax: no top-k, top-p or penalties.

    Attributes:
        goes_on: asked while a server is waited for; once it returns False, the wait ends with a `CancelledError`.
    """

    goes_on: Callable[[], bool] = staticmethod(always)

    @abstractmethod
    def write(self, requests: Sequence[Request]) -> Iterable[Written]:
        """Return the answer to each request of a round, in any order.

        Raises:
            StaleEngineError: if it has other weights than the ones that were sent.
            EngineError: if it cannot.
        """

    @abstractmethod
    def load(self, policy: Any) -> None:
        """Take a policy's weights as they are now, and forget everything computed with others; no request is open.

        All processes call this together.
        """


def weights_of(policy: Any, merges: bool = True, cuts: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a language model's weights by their names in a checkpoint of transformers, without an adapter.

    Tied ones come under each of their names, since engines do not tie them again. Of weights that are dealt out, all
    processes ask for each together.

    Args:
        policy: of language.
        merges: whether an adapter is merged into the weights that it changes.
        cuts: whether embeddings end with the environment's vocabulary: some models pad theirs.
    """
    model, adapted = policy.model, dict(adapted_layers(policy.model)) if merges else {}
    embeddings = [id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())]
    for name, weight in model.named_parameters(remove_duplicate=False):
        if ".lora_" not in name:
            layer = adapted.get(name.removesuffix(".base_layer.weight"))
            found = full(weight) if layer is None else merged_weight(layer).to(weight.dtype)
            rows = policy.vocab_size if cuts and id(weight) in embeddings else None
            yield name.replace(".base_layer.", "."), found.detach()[:rows]
