"""The runs of a report, read from their folders, and their kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlenv.agents.files import is_locked

from ..config.names import resume_command, short_name
from ..process.terminal import plain
from ..run.folder import CSV, LOCK
from .history import History, read_run

COMPARISON = "compare.json"  # in the folder of `rlenv compare`
# Options that do not make another kind of run: what is repeated, where it runs, what is written and measured.
OF_ONE_RUN = (
    "seed", "device", "save_every", "save_every_updates", "keep", "log_interval", "eval_every",
    "eval_episodes", "verifier_workers", "verifier_timeout", "verifier_memory_mb",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in their seed only."""

    label: str
    runs: tuple[History, ...]


def read_runs(paths: Sequence[Path]) -> list[History]:
    """Return the runs in these folders, which may still be going; the folder of a comparison has many.

    Raises:
        ValueError: for a folder that holds no run of `rlenv train` or none that has logged anything, a damaged file,
            and runs of different environments.
    """
    folders = dict.fromkeys(folder for path in paths for folder in _expanded(path))
    runs = list(map(read_run, folders))
    for run in runs:
        if not run.columns and not run.result:
            raise ValueError(
                f"{str(run.folder)!r} has no figures yet ({CSV} has no line); wait for its first evaluation, or resume "
                "the run"
            )
    worlds = {world_of(run): run for run in runs}
    if len(worlds) > 1:
        each = ", ".join(f"{str(run.folder)!r} is of {world}" for world, run in worlds.items())
        raise ValueError(f"runs of different environments have no curve in common: {each}; make a report of each")
    return runs


def world_of(run: History) -> str:
    """Return the environment of a run and, for text, its verifier."""
    env_id = run.config["env_id"].split(":")[-1]
    return f"{env_id} · {short_name(run.config['verifier'])}" if run.is_text else env_id


def stop_of(run: History) -> dict[str, str]:
    """Return `title`, `why` and, if it does not run, the `command` to go on of a run that is not at its end; else {}.

    An earlier end that the run has gone on from does not count.
    """
    assert run.folder is not None
    result = {} if run.updates > run.result.get("updates", run.updates) else run.result
    if "stopped" in result:
        title, why = "stopped", str(result["stopped"])
    elif result.get("interrupted"):
        title, why = "interrupted", f"It was stopped by {result.get('signal') or 'a signal'}."
    elif result.get("eval") is not None:
        return {}
    elif is_locked(run.folder / LOCK):
        return {"title": "running", "why": "It had logged what is here when the page was made."}
    else:
        title, why = "ended", "It was killed, for memory or with its machine, or the disk is full."
    return {"title": title, "why": why, "command": resume_command(run.folder, run.config)}


def _expanded(path: Path) -> list[Path]:
    """Return the folders of a comparison's runs that have logged anything; for any other folder itself."""
    tables = sorted(path.glob(f"*/seed-*/{CSV}")) if (path / COMPARISON).is_file() else []
    return [table.parent for table in tables if table.stat().st_size] or [path]


def kinds_of(runs: Sequence[History]) -> list[Kind]:
    """Return the runs by kind, in the order of their first runs; a label has the options in which the kinds differ."""
    groups: dict[frozenset[tuple[str, str]], list[History]] = {}
    for run in runs:
        options = frozenset((name, shown_value(value)) for name, value in run.config.items() if name not in OF_ONE_RUN)
        groups.setdefault(options, []).append(run)
    common = frozenset.intersection(*groups)
    return [Kind(_label(own[0], dict(sorted(options - common))), tuple(own)) for options, own in groups.items()]


def _label(run: History, differing: dict[str, str]) -> str:
    agent = [short_name(run.config["agent"])] if differing.pop("agent", None) or not differing else []
    return plain(", ".join([*agent, *(f"{name} {value}" for name, value in differing.items())]))


def shown_value(value: Any) -> str:
    """Return the value of an option as a person reads it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, default=str)
