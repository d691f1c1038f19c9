"""Captured graphs of the pretend device: operations on fixed memory, replayed without running any Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pretend_rules import Facts, leaves


class PretendGraph:
    """A captured graph. What it computes for itself is overwritten between replays, so that nothing relies on it."""

    pools: dict[Any, list[PretendGraph]] = {}  # graphs that share memory

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.calls: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []
        self.pool: Any = None

    def record(self, call: Callable[[], Any], facts: Facts, made: Any) -> None:
        """Note an operation; what it makes, unless it is a view or was given, is memory of the graph."""
        self.calls.append((call, list(leaves((made,))) if facts.makes else []))

    def finish(self, pool: Any) -> None:
        """End the capture. Nothing has been computed yet, as far as anyone can see."""
        self.pool = pool
        self.pools.setdefault(pool, []).append(self)
        self.forget()

    def forget(self) -> None:
        """Overwrite the memory of the graph."""
        for x in (x for _, made in self.calls for x in made):
            x.fill_(torch.nan if x.is_floating_point() else True if x.dtype is torch.bool else 2**20)

    def replay(self) -> None:
        """Run the operations again."""
        for graph in self.pools[self.pool]:
            graph.forget()
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            for call, made in self.calls:
                again = call()
                for old, new in zip(made, leaves((again,)) if made else (), strict=True):
                    assert old.shape == new.shape, "a shape changed within a captured graph"
                    old.copy_(new)


class PretendStream:
    """A stream on which nothing overlaps."""

    def wait_stream(self, other: Any) -> None: ...
