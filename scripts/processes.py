"""rlenv under torchrun: one process per device, which print once."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist

SECONDS = 1800  # that one process waits for the others in an update; a dead one is noticed at once
_WAIT = 1.0  # second that a process with an error waits for the main one to print the same
_LOST = re.compile(r"closed by peer|Connection reset|Broken pipe|Socket closed|NCCL|Timed out waiting", re.IGNORECASE)
_store: dist.Store | None = None


def number() -> int:
    """Return the number of this process among them, from 0."""
    return int(os.environ.get("RANK", "0"))


def join(device: str) -> str:
    """Meet the other processes that torchrun has started; return the device of this one.

    Without torchrun, nothing is done.

    Args:
        device: "auto", "cpu" or "cuda", as of the option.

    Raises:
        ValueError: for more processes than devices on this machine, a device with a number, or a meeting that fails.
    """
    global _store
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    here, most = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if device.startswith("cuda:"):
        raise ValueError(f"--device {device} names one device for {here} processes: use --device cuda")
    if on_gpu and here > most:
        raise ValueError(
            f"torchrun started {here} processes on this machine, which has {most} GPUs: "
            f"use --nproc-per-node {most}, or --device cpu"
        )
    if on_gpu:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        _store = _meeting_place()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=_store,
            rank=number(),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timedelta(seconds=SECONDS),
        )
    except (RuntimeError, dist.DistError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the {os.environ['WORLD_SIZE']} processes did not meet at {address}: {reason}") from error
    if number() > 0:  # the main process speaks for all
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    return device


def own_folder(run: Path, given: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return where this process logs, and its options: the run folder, or for all but the main one, one that vanishes.

    So no other code asks which process it is in. Checkpoints are written once, by `Agent.save`.
    """
    if number() == 0:
        return run, given
    folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="rlenv-process-"))
    own = Path(folder, "run")
    own.mkdir()
    return own, given | {"report": False, "track": None}


def _meeting_place() -> Any:
    """Return the store of torchrun's agent, with keys of this start: after a failure, torchrun starts again."""
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        int(os.environ["WORLD_SIZE"]),
        is_master=number() == 0 and not served,
        timeout=timedelta(seconds=30),
    )
    return dist.PrefixStore(f"rlenv/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def is_lost(error: Exception) -> bool:
    """Tell whether this is how the end of another process shows in this one."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))


def said_once(message: str) -> str:
    """Return what this process prints of an error: nothing if the main one has the same, which prints it.

    The processes read the same options, so that most errors come up in all of them.
    """
    if number() == 0:
        if _store is not None:
            _store.set("error", message)
        return message
    if _store is None:  # before they met, all fail alike
        return ""
    deadline = time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        if _store.check(["error"]):
            return "" if _store.get("error").decode() == message else f"process {number()}: {message}"
        time.sleep(0.02)
    return f"process {number()}: {message}"
