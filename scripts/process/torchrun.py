"""rlenv under torchrun, which starts one process per device, and ends all of them if one fails."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from pathlib import Path

FOREVER = 1e8  # seconds
LOST = "another process has ended, or has not answered within --process-timeout; this one ends with it"
_LOST = re.compile(r"closed by peer|Connection reset|Broken pipe|Socket closed|NCCL|Timed? ?out", re.IGNORECASE)


def count() -> int:
    """Return the number of processes of the job."""
    return number("WORLD_SIZE", alone=1)


def number(variable: str = "RANK", alone: int = 0) -> int:
    """Return a number that torchrun sets, by default that of this process among all, from 0; `alone` without it."""
    return int(os.environ.get(variable, alone))


def meet(device: str, limit: float) -> str:
    """Meet the other processes that torchrun has started; return the device of this one.

    Without torchrun, nothing is done. Those that have met, for an earlier job in Python, do not meet again.

    Args:
        device: "auto", "cpu" or "cuda", as of the option.
        limit: seconds that the processes wait for one of them.

    Raises:
        ValueError: for more processes than devices on this machine, a device with a number, a torch without processes,
            or a meeting that fails.
    """
    if count() == 1:
        return device
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise ValueError(
            f"torchrun started {count()} processes, but this PyTorch was built without torch.distributed: "
            "install a build that has it, or start rlenv without torchrun"
        )
    here, most = number("LOCAL_WORLD_SIZE", alone=1), torch.cuda.device_count()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if device.startswith("cuda:"):
        raise ValueError(f"--device {device} names one device for {here} processes: use --device cuda")
    if on_gpu and here > most:
        raise ValueError(
            f"torchrun started {here} processes on this machine, which has {most} GPUs: "
            f"use --nproc-per-node {most}, or --device cpu"
        )
    if on_gpu:
        device = f"cuda:{number('LOCAL_RANK')}"
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return device
    try:
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=min(FOREVER, limit)))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the {count()} processes of torchrun did not meet: {reason}") from error
    if number() > 0:  # the main process speaks for all
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    return device


def is_lost(error: BaseException) -> bool:
    """Tell whether this is how the end of another process shows in this one."""
    return count() > 1 and isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))
