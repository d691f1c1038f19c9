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

from ..run_files import CONFIG
from .environment import count, count_here, number, number_here, restarts
from .watch import Watch

_EVER = 1e8  # seconds
_MARGIN = 60.0  # seconds after which torch ends an exchange that the watch has not ended
_WAIT = 1.0  # second that a process with an error waits for the main one to print the same
LOST = "another process has ended, and this one with it"
_LOST = re.compile(r"closed by peer|Connection reset|Broken pipe|Socket closed|NCCL|Timed out waiting", re.IGNORECASE)
_store: dist.Store | None = None


def join(device: str, limit: float | None) -> str:
    """Meet the other processes that torchrun has started, and watch them from then on; return the device of this one.

    Without torchrun, nothing is done.

    Args:
        device: "auto", "cpu" or "cuda", as of the option.
        limit: seconds that the processes wait for one of them; None for ever.

    Raises:
        ValueError: for more processes than devices on this machine, a device with a number, a torch without processes,
            or a meeting that fails.
    """
    global _store
    if count() == 1:
        return device
    if not dist.is_available():
        raise ValueError(
            f"torchrun started {count()} processes, but this PyTorch was built without torch.distributed: "
            "install a build that has it, or start rlenv without torchrun"
        )
    here, most = count_here(), torch.cuda.device_count()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if device.startswith("cuda:"):
        raise ValueError(f"--device {device} names one device for {here} processes: use --device cuda")
    if on_gpu and here > most:
        raise ValueError(
            f"torchrun started {here} processes on this machine, which has {most} GPUs: "
            f"use --nproc-per-node {most}, or --device cpu"
        )
    if on_gpu:
        device = f"cuda:{number_here()}"
        torch.cuda.set_device(device)
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        _store = _meeting_place()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=_store,
            rank=number(),
            world_size=count(),
            timeout=timedelta(seconds=_EVER if limit is None else min(_EVER, limit + _MARGIN)),
        )
        watch = Watch(_meeting_place(again=True), number(), count(), limit)
    except (RuntimeError, dist.DistError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the {count()} processes did not meet at {address}: {reason}") from error
    watch.start()
    click.get_current_context().call_on_close(watch.leave)
    if number() > 0:  # the main process speaks for all
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    return device


def keep_begun(folder: Path) -> None:
    """Remember the folder that this job writes until torchrun ends, for the processes that it starts again."""
    if _store is not None and number() == 0:
        _everlasting(_store).set("folder", str(folder.absolute()))


def begun(config: str = CONFIG) -> Path | None:
    """Return the folder that this job began before torchrun restarted its processes, if any.

    Args:
        config: the file that is written there first.
    """
    if _store is None or restarts() == 0:
        return None
    store = _everlasting(_store)
    folder = Path(store.get("folder").decode()) if store.check(["folder"]) else None
    return folder if folder is not None and (folder / config).is_file() else None


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


def _meeting_place(again: bool = False) -> Any:
    """Return a connection to torchrun's store, with keys of this start: after a failure, torchrun starts again.

    Args:
        again: whether this process is connected already.
    """
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        count(),
        is_master=number() == 0 and not served and not again,
        timeout=timedelta(seconds=30),
    )
    return dist.PrefixStore(f"rlenv/{restarts()}", store)


def _everlasting(store: Any) -> Any:
    """Return the same store with keys of all starts."""
    return dist.PrefixStore("rlenv", store.underlying_store)


def is_lost(error: Exception) -> bool:
    """Tell whether this is how the end of another process shows in this one."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))


def said_once(message: str) -> str:
    """Return what this process prints of an error: nothing if another one has the same, or has ended with its own.

    The processes read the same options, so that most errors come up in all of them, and the main one prints those.
    """
    own = message if number() == 0 else f"process {number()}: {message}"
    if _store is None:  # before they met, those of a machine fail alike
        return own if number_here() == 0 else ""
    lost = message == LOST
    deadline = time.monotonic() + (_WAIT if number() or lost else 0)
    try:
        while time.monotonic() < deadline:
            if _store.check(["error"]):
                return "" if lost or _store.get("error").decode() == message else own
            time.sleep(0.02)
        _store.set("error", message)
    except (RuntimeError, dist.DistError):  # the store is lost, too
        pass
    return own
