"""rlenv info: the machine and the installation, for a bug report."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib import metadata
from typing import Any

import click

from . import DISTRIBUTION
from .config.command import Command
from .config.options import as_json

MISSING = "not installed"


@click.command(
    cls=Command,
    examples={"rlenv info": "For the form of a bug report", "rlenv info --json": "The same for a program"},
)
@as_json
def info(as_json: bool) -> None:
    """Print versions and devices for a bug report.

    The output has no path, no environment variable, and no name of a user or a machine.
    """
    needed = required()
    versions = {"rlenv": _version(DISTRIBUTION), "Python": platform.python_version()}
    versions |= {name: _version(name) for name in needed.pop("")}
    extras = {}
    for extra, names in needed.items():
        missing = [name for name in names if _version(name) == MISSING]
        extras[extra] = f"missing: {', '.join(missing)}" if missing else "complete"
    sections = {"versions": versions, "extras": extras, "machine": machine()}
    if as_json:
        click.echo(json.dumps(sections))
        return
    for title, facts in sections.items():
        click.echo(title)
        for name, value in facts.items():
            click.echo(f"  {name}: {value}")


def required() -> dict[str, list[str]]:
    """Return the packages that each extra needs; under "" the packages that are always needed."""
    needed: dict[str, list[str]] = {"": []}
    lines = "\n".join(metadata.requires(DISTRIBUTION) or [])
    for name, extra in re.findall(r"(?m)^([\w.-]+)(?:.*extra == ['\"]([\w-]+))?", lines):
        needed.setdefault(extra, []).append(name)
    return needed


def machine() -> dict[str, Any]:
    """Return the system, the processors, and the GPUs and threads that torch uses."""
    import torch

    from rlenv.verifiers.sandbox.pool import available_cores

    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": f"{platform.python_implementation()}, {sys.getfilesystemencoding()}",
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "CUDA of torch": torch.version.cuda or "none",
        "GPUs": ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus) or "none",
        "terminals": ", ".join(name for name in ("stdin", "stdout", "stderr") if getattr(sys, name).isatty()) or "none",
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return MISSING
