"""Teacher forcing in which a language model reads every distinct context of a batch only once.

A context is a prompt and the tokens after it: those chosen, and replies of the environment. Episodes of one prompt
share their contexts up to the token where they differ, so the contexts of a batch form trees. They are read as one row:
each token occurs once and attends to its ancestors only (see `prefix_sharing.py`). So it depends on exactly the tokens
that it depends on in a row of one episode: log-probabilities and gradients are the same, with less work. Where that is
not less work, or a model's attention is not known, each distinct episode is a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from ..devices import take_rows, to_device, to_host
from ..rollout import Rollout
from .attention import without_cudnn
from .prefix_sharing import Forest, attention_over, build_forest, parts_of
from .products import fast_products

WORTH_IT = 0.8  # a forest is read if it is at most this share of the plain rows' work


@dataclass(frozen=True)
class Reading:
    """The tokens to read, and which output predicts each step of a rollout.

    An edge is a context and the token chosen in it. Steps with the same edge are computed once.

    Attributes:
        ids: the tokens to read, right-padded [R, W].
        nodes: index into the flattened `ids` of the token whose output predicts each edge [E].
        actions: the token chosen at each edge [E].
        edge_of_step: the edge of each existing step, in order of (episode, step) [M].
        forest: how the tokens of the only row attend to each other; None if rows are causal.
    """

    ids: torch.Tensor
    nodes: torch.Tensor
    actions: torch.Tensor
    edge_of_step: torch.Tensor
    forest: Forest | None = None

    def by_step(self) -> Reading:
        """Return the same reading with an edge for every step."""
        nodes, actions = self.nodes[self.edge_of_step], self.actions[self.edge_of_step]
        every = torch.arange(len(actions), device=actions.device)
        return replace(self, nodes=nodes, actions=actions, edge_of_step=every)

    def outputs(self, part: nn.Module, name: str, recompute: bool = False) -> torch.Tensor:
        """Run a part of a model and return the output of this name for each edge [E, ...].

        Args:
            part: of the policy's model, or the critic's trunk.
            name: of the output.
            recompute: whether the backward pass computes each layer again; see `recomputed_layers`.
        """
        inputs: dict[str, Any] = {}  # rows need no mask: padding is on the right, where it cannot influence anything
        if self.forest is not None:  # a mask of four dimensions keeps transformers from making one
            mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.ids.device)
            inputs = {"attention_mask": mask, "position_ids": self.forest.positions}

        model: Any = part  # of transformers
        numbers = self.ids.numel() * model.config.get_text_config().hidden_size

        @contextmanager
        def attention() -> Iterator[None]:
            forest = nullcontext() if self.forest is None else attention_over(self.forest, part)
            with without_cudnn(self.ids.device), fast_products(self.ids.device, model.dtype, numbers), forest:
                yield

        with attention(), recomputed_layers(part, attention) if recompute else nullcontext():
            made = part(self.ids, use_cache=False, **inputs)
        return take_rows(made[name].flatten(0, 1), self.nodes)


def plan_reading(rollout: Rollout, merge_rows: bool, width: int | None) -> Reading:
    """Plan how the contexts of a rollout are read: on the host, from one copy of its tokens.

    Args:
        rollout: its observations are `tokens` [N, L] and `length` [N]; see `Rollout`.
        merge_rows: whether equal episodes are read once.
        width: tokens of a row in which attention costs as much as all else; None if no forest may be read.
    """
    device = rollout.mask.device
    ids, lengths, steps, columns, actions = _sequences(rollout)
    rows = steps[:, 0]
    if (merge_rows or width is not None) and len(columns):
        beyond = torch.arange(ids.shape[1]) >= lengths[:, None]
        chains, chain_of_row = ids.masked_fill(beyond, -1).unique(dim=0, return_inverse=True)  # sorted
        own, shared = _counts(chains)
        if width is not None and _is_worth_it(chains, own, shared, width):
            ids, forest, node = build_forest(chains, own, shared, device)
            return _edges(ids, node[chain_of_row[rows], columns], actions, True, forest)
        if merge_rows:
            ids, rows = chains.clamp(min=0), chain_of_row[rows]
    return _edges(to_device(ids, device), rows * ids.shape[1] + columns, actions, merge_rows)


def _sequences(rollout: Rollout) -> tuple[torch.Tensor, ...]:
    """Put actions into their contexts, on the host.

    Returns:
        ids: the tokens to read [N, W], right-padded, without the last action.
        lengths: of the rows of `ids` [N]; 0 for an episode without a step.
        steps: (episode, step) of every existing action [M, 2].
        columns: the column of `ids` whose output predicts that action [M].
        actions: themselves [M].
    """
    assert isinstance(rollout.observations, dict)
    first = rollout.observations["tokens"], rollout.observations["length"]
    gaps = () if rollout.positions is None else (rollout.positions,)
    tokens, prompt_lengths, actions, mask, *positions = to_host(*first, rollout.actions, rollout.mask, *gaps)
    steps = mask.nonzero()  # [M, 2]
    actions = actions[mask]
    columns = positions[0][mask] - 1 if positions else prompt_lengths[steps[:, 0]] + steps[:, 1] - 1
    ids = torch.nn.functional.pad(tokens, (0, 1))  # a truncated episode may fill the context
    ids[steps[:, 0], columns + 1] = actions
    width = int(columns.max()) + 1 if len(columns) else 1
    lengths = torch.zeros_like(prompt_lengths).scatter_reduce(0, steps[:, 0], columns + 1, "amax")
    return ids[:, :width], lengths, steps, columns, actions


def _edges(
    ids: torch.Tensor, node_of_step: torch.Tensor, actions: torch.Tensor, merge: bool, forest: Forest | None = None
) -> Reading:
    """Return a reading of these tokens; if `merge`, equal steps share an edge. The steps are still on the host."""
    nodes, edge_of_step = node_of_step, torch.arange(len(actions), device=actions.device)
    if merge and len(actions):
        vocab = int(actions.max()) + 1
        edges, edge_of_step = (node_of_step * vocab + actions).unique(return_inverse=True)
        nodes, actions = edges // vocab, edges % vocab
    nodes, actions, edge_of_step = (to_device(each, ids.device) for each in (nodes, actions, edge_of_step))
    return Reading(ids, nodes, actions, edge_of_step, forest)


def forest_of_two(contexts: torch.Tensor, fork: int) -> Reading:
    """Read two contexts [2, L] that differ from column `fork` on as a forest, with an edge for every token of both."""
    (chains,), lengths = to_host(contexts), torch.full((2,), contexts.shape[1])
    ids, forest, node = build_forest(chains, lengths, torch.tensor([0, fork]), contexts.device)
    return _edges(ids, node.flatten(), chains.flatten(), False, forest)


def _counts(chains: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the length of each chain and how many tokens it shares with the one before it, both [C]."""
    same = (chains[1:] == chains[:-1]) & (chains[1:] >= 0)
    return (chains >= 0).sum(1), torch.nn.functional.pad(same.cumprod(1).sum(1), (1, 0))


def _is_worth_it(chains: torch.Tensor, lengths: torch.Tensor, shared: torch.Tensor, width: int) -> bool:
    """Whether a forest of these chains, sorted [C, L], is less work than a row for each; see `plan_reading`."""
    own, tokens, longest = lengths - shared, chains.numel(), chains.shape[1]
    pairs = sum(int(len(part) * own[part].max() * lengths[part].max()) for part in parts_of(lengths, shared))
    return int(own.sum()) + pairs / width <= WORTH_IT * tokens * (1 + longest / width)


def layers_of(part: nn.Module) -> list[nn.Module]:
    """Return the modules that transformers marks as layers of a model."""
    return [each for each in part.modules() if isinstance(each, GradientCheckpointingLayer)]


@contextmanager
def recomputed_layers(part: nn.Module, attention: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Within the context, layers keep their inputs only, as long as gradients are recorded (activation checkpointing).

    transformers does the same in training mode alone, which would turn dropout on. Afterwards the model is as before,
    so that captured graphs stay valid.

    Args:
        part: of the model, with the layers in it.
        attention: makes the context in which the backward pass computes a layer again.
    """
    if not torch.is_grad_enabled():
        yield
        return
    layers = layers_of(part)
    again = partial(
        checkpoint, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), attention())
    )
    try:
        for layer in layers:
            layer.forward = partial(again, layer.forward)
        yield
    finally:
        for layer in layers:
            del layer.forward


class ChosenLogProbs(torch.autograd.Function):
    """log π(a) of chosen actions [E], given logits [E, V] and actions [E]:  ∂ log π(a) / ∂ logits = 1_a - π

    Autograd would make two more tensors [E, V] for the gradient, and read them several times.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return them in at least float32."""
        ctx.dtype, precision = logits.dtype, torch.promote_types(logits.dtype, torch.float32)
        log_probs = torch.log_softmax(logits, dim=-1, dtype=precision)
        ctx.save_for_backward(log_probs, actions)
        return log_probs.gather(1, actions[:, None])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the logits."""
        log_probs, actions = ctx.saved_tensors
        made = log_probs.exp().mul_(-gradient[:, None])
        return made.scatter_add_(1, actions[:, None], gradient[:, None]).to(ctx.dtype), None
