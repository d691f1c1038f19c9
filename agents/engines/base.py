"""What every engine does: it writes whole turns as tokens, with the weights that it was sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import EngineError
from ..fsdp import full
from ..language.adapters import adapted_layers, merged_weight


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
        tokens: as many as were asked for, or fewer; those beyond are dropped.
        log_probs: of the tokens; none of greedy ones are needed.
    """

    place: int
    tokens: Sequence[int]
    log_probs: Sequence[float]


class StaleEngineError(EngineError):
    """An engine has lost the weights that it was sent; they are sent again."""


class Engine(ABC):
    """Writes turns over the environment's vocabulary, drawn from the whole softmax: no top-k, top-p or penalties."""

    @abstractmethod
    def write(self, requests: Sequence[Request]) -> Iterable[Written]:
        """Return the answer to each request of a round, in any order.

        Raises:
            StaleEngineError: if it has other weights than those that were sent.
            EngineError: if it cannot.
        """

    @abstractmethod
    def load(self, policy: Any) -> None:
        """Take a policy's weights as they are now, and forget everything computed with others; no request is open.

        All processes call this together.
        """


@dataclass(frozen=True)
class Sent:
    """A weight as an engine gets it.

    Attributes:
        name: in a checkpoint of transformers, without an adapter.
        weight: that of the model.
        adapted: the layer whose adapter is merged into it; None for none.
        rows: of embeddings, the environment's vocabulary; None for all.
    """

    name: str
    weight: torch.Tensor
    adapted: Any = None
    rows: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that is sent, known without communication."""
        first, *rest = self.weight.shape
        return (first if self.rows is None else self.rows, *rest)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that is sent."""
        return self.weight.dtype

    def whole(self) -> torch.Tensor:
        """Return the values; of a weight that is dealt out, all processes call this together."""
        found = full(self.weight) if self.adapted is None else merged_weight(self.adapted).to(self.weight.dtype)
        return found.detach()[: self.rows]


def weights_of(policy: Any, merges: bool = True, cuts: bool = False) -> list[Sent]:
    """Return a language model's weights, tied ones under each of their names: engines do not tie them again.

    Args:
        policy: of language.
        merges: whether an adapter is merged into the weights that it changes.
        cuts: whether embeddings end with the environment's vocabulary: some models pad theirs.
    """
    model, adapted = policy.model, dict(adapted_layers(policy.model)) if merges else {}
    embeddings = [id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())]
    return [
        Sent(
            name.replace(".base_layer.", "."),
            weight,
            adapted.get(name.removesuffix(".base_layer.weight")),
            policy.vocab_size if cuts and id(weight) in embeddings else None,
        )
        for name, weight in model.named_parameters(remove_duplicate=False)
        if ".lora_" not in name
    ]
