"""Several processes that train as one; the only module that knows their ranks.

Every process has the whole policy (with `fsdp.py`, a part of it). It plays its share of the
episodes; then all of them get the whole rollout, so that baselines, whitening, denominators and every decision are
those of one process. Each computes log-probabilities and gradients of its share of the rows, the gradients are added
up, and all take the same optimizer step:

    ∇L = Σ_r ∇L_r        L_r = - Σ_{i of r} Σ_t w_{i,t} surrogate_{i,t}, with the weights w of the whole rollout

Processes are those of `torch.distributed`'s default group; without one, every function here is that of a single
process, and costs nothing.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from .rollout import Rollout, join, map_obs

T = TypeVar("T")

_alone = False


def size() -> int:
    """Return the number of processes W."""
    return 1 if _alone or not dist.is_available() or not dist.is_initialized() else dist.get_world_size()


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if size() > 1 else 0


def is_main() -> bool:
    """Return whether this is the process that logs and saves."""
    return rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Let this process act as a single one, for work without the other processes."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def is_dealt_out(value: Any) -> bool:
    """Return whether this is a DTensor, of which each process holds a part.

    Their module is slow to import, and missing in some builds of torch; without it there are none.
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


# Talking to each other. Every process must call these at the same place.


def gather(mine: T) -> list[T]:
    """Return the objects of all processes, in order of rank."""
    if size() == 1:
        return [mine]
    received: list[Any] = [None] * size()
    dist.all_gather_object(received, mine)
    return received


def on_all(work: Callable[[], T]) -> list[T]:
    """Do this in every process, and return the results in order of rank; an error in one is raised in all.

    With several processes, rollouts among the results are on the host.
    """
    if size() == 1:
        return [work()]
    result, error = None, None
    try:
        result = _on_host(work())
    except Exception as failure:
        error = failure
    outcomes = gather((result, None if error is None else _portable(error)))
    if error is not None:
        raise error
    for number, (_, other) in enumerate(outcomes):
        if other is not None:
            other.add_note(f"in process {number}")
            raise other
    return [outcome[0] for outcome in outcomes]  # type: ignore[misc]


def on_main(work: Callable[[], T]) -> T:
    """Do this in the main process only, and return its result in all; its error is raised in all."""
    return on_all(lambda: work() if is_main() else None)[0]  # type: ignore[return-value]


def any_of(flag: bool) -> bool:
    """Return whether this holds in any process."""
    return any(gather(bool(flag)))


# Sharing the work.


def share(count: int, unit: int = 1) -> int:
    """Return how many of so many things are this process's: as equal as possible, the first ones have more.

    Args:
        count: how many.
        unit: so many stay together: a group of episodes, of which the last may have fewer.
    """
    units, rest = divmod(count, unit)
    return unit * (units // size() + (rank() < units % size())) + (rest if rank() == units % size() else 0)


def own_seed(seed: int) -> int:
    """Return the seed of this process's sampling: the one given in the main process, another in each other one."""
    return seed if is_main() else int(np.random.SeedSequence([seed, rank()]).generate_state(1)[0])


def seed_generators(own: torch.Generator, common: torch.Generator, seed: int) -> None:
    """Seed the generator of this process's sampling, and one that draws the same in all processes."""
    own.manual_seed(own_seed(seed))
    common.manual_seed(int(np.random.SeedSequence([seed, 0, 1]).generate_state(1)[0]))


def check_episodes(episodes: int, group_size: int | None, count: int | None = None) -> int:
    """Return the episodes that each process collects per update.

    Args:
        episodes: of an update, all processes together.
        group_size: episodes that share a prompt, which must not be divided; None without groups.
        count: of processes; None for the number of the run.

    Raises:
        ValueError: if the groups cannot be dealt out equally.
    """
    count, group_size = count or size(), group_size or 1
    unit = group_size * count
    if episodes % unit:
        parts = [f"group_size={group_size}"] * (group_size > 1) + [f"the number of processes ({count})"] * (count > 1)
        by = " x ".join(parts)
        raise ValueError(f"{by} does not divide episodes_per_update={episodes}; use a multiple of {unit}")
    return episodes // count


def merge_rollouts(
    parts: Sequence[Rollout | None], obs_from_actions: bool, device: torch.device, numbered: bool
) -> Any:
    """Return the rollouts of all processes as one, ordered as one process would have collected it; None if one is.

    Args:
        parts: of each process.
        obs_from_actions: see `Policy`.
        device: of the result.
        numbered: whether group numbers are unique over all processes; otherwise equal numbers in two processes are
            different groups.
    """
    if any(part is None for part in parts):
        return None
    found: list[Rollout] = [part for part in parts if part is not None]
    joined = on(join(found, obs_from_actions), device)
    numbers = [part.groups if numbered else part.groups * size() + r for r, part in enumerate(found)]
    joined = replace(joined, groups=torch.cat(numbers).to(device))
    return joined.select(joined.groups.argsort(stable=True))


def on(rollout: Any, device: Any) -> Any:
    """Return a rollout with its tensors on this device."""
    return rollout.mapped(lambda value, _: map_obs(lambda x: x.to(device), value))


def own_rows(costs: torch.Tensor) -> slice:
    """Return this process's rows of a rollout: consecutive ones, so that prompts stay together, of about equal cost.

    Args:
        costs: of each row, above 0 [N]; the same in every process.
    """
    if size() == 1:
        return slice(0, len(costs))
    after = costs.double().cumsum(0)
    middle = (after - costs / 2) / after[-1].clamp(min=1)  # of each row, in 0..1
    owner = (middle * size()).long().clamp(max=size() - 1).tolist()
    return slice(sum(each < rank() for each in owner), sum(each <= rank() for each in owner))


def with_parts(rollout: Rollout, own: Rollout, evaluated: Rollout) -> Rollout:
    """Return a rollout with tensors [N, ...] that each process has made for its rows.

    Args:
        rollout: the same in every process.
        own: this process's rows, from `own_rows`.
        evaluated: the same rows, in which tensors were added or replaced.
    """
    before = own.tensors()
    mine = {name: value.cpu() for name, value in evaluated.tensors().items() if value is not before.get(name)}
    parts = [part for part in gather(mine) if part]
    made = {name: torch.cat([part[name] for part in parts]).to(rollout.mask.device) for name in next(iter(parts), ())}
    return rollout.with_tensors(made)


# Weights and gradients.


@torch.no_grad()
def same_start(module: nn.Module) -> None:
    """Give every process the main process's weights."""
    if size() > 1:
        for tensor in (*module.parameters(), *module.buffers()):
            if not is_dealt_out(tensor):  # parts of what is the same
                dist.broadcast(tensor, 0)


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up the gradients of all processes, in place, with one message per precision.

    A parameter that has no gradient in any process still has none afterwards. Gradients of sharded parameters have been
    added up in the backward pass.
    """
    if size() == 1:
        return
    by_kind: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        if not is_dealt_out(parameter):
            by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for (dtype, device), group in by_kind.items():
        present = torch.tensor([parameter.grad is not None for parameter in group], dtype=dtype, device=device)
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
        flat = torch.cat([present, *(piece.reshape(-1) for piece in pieces)])
        dist.all_reduce(flat)
        counts = flat[: len(group)].tolist()
        _, *sums = flat.split([len(group), *(parameter.numel() for parameter in group)])
        for parameter, count, total in zip(group, counts, sums, strict=True):
            parameter.grad = total.view_as(parameter).clone() if count else None


def check_equal(digest: str | None, what: str, why: str, kind: type[Exception] = ValueError) -> None:
    """Check that a hash is the same in every process.

    Args:
        digest: of this process.
        what: it is of, for the message.
        why: what has happened, or what to do.
        kind: of the error that is raised if it is not.
    """
    digests = gather(digest)
    if others := [number for number, each in enumerate(digests) if each != digests[0]]:
        raise kind(f"the {what} of process {others[0]} is not that of process 0: {why}")


def _on_host(result: Any) -> Any:
    """Return a result as it is sent to the other processes: rollouts in it on the host."""
    if type(result) is tuple:
        return tuple(map(_on_host, result))
    return on(result, "cpu") if isinstance(result, Rollout) else result


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent: itself, or one that says the same."""
    try:
        again = str(pickle.loads(pickle.dumps(error)))
    except Exception:  # of its constructor, or of what it holds, such as a lock
        again = None
    return error if again == str(error) else RuntimeError(f"{type(error).__name__}: {error}")
