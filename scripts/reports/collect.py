"""The runs of a report, read from their folders, and their kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlenv._json import read_table
from rlenv.agents.files import is_locked

from ..config.names import resume_command, short_name
from ..process.terminal import plain
from ..run.folder import CHECKPOINT, CSV, LOCK
from .history import History, read_run
from .rules import Finding, findings_of

COMPARISON = "compare.json"  # in the folder of `rlenv compare`
# Options that do not make another kind of run: what is repeated, where it runs, what is written and measured.
OF_ONE_RUN = (
    "seed", "device", "save_every", "save_every_updates", "keep", "log_interval", "log_kl", "eval_every",
    "eval_episodes", "verifier_workers", "verifier_timeout", "verifier_memory_mb",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run(History):
    """One run of `rlenv train`.

    Attributes:
        folder: where it is.
    """

    folder: Path

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings of the doctor, errors first."""
        return findings_of(self)

    @cached_property
    def checkpoint(self) -> dict[str, Any]:
        """The facts of the newest checkpoint, such as `settings` of the agent; empty without one."""
        facts = self.folder / CHECKPOINT / "agent.json"
        return read_table(facts) if facts.is_file() else {}

    @property
    def world(self) -> str:
        """The environment and, for text, its verifier."""
        env_id = self.config["env_id"].split(":")[-1]
        return f"{env_id} · {short_name(self.config['verifier'])}" if self.is_text else env_id

    @property
    def stop(self) -> dict[str, str]:
        """State of a run that is not at its end: `title`, `why` and, if it does not run, how to go on; else empty.

        An earlier end that the run has gone on from does not count.
        """
        result = {} if self.updates > self.result.get("updates", self.updates) else self.result
        if result.get("eval") is not None and "stopped" not in result and not result.get("interrupted"):
            return {}
        if "stopped" in result:
            end = {"title": "stopped", "why": str(result["stopped"])}
        elif result.get("interrupted"):
            end = {"title": "interrupted", "why": f"It was stopped by {result.get('signal') or 'a signal'}."}
        elif is_locked(self.folder / LOCK):
            return {"title": "running", "why": "It had logged what is here when the page was made."}
        else:
            end = {"title": "ended", "why": "It was killed, for memory or with its machine, or the disk is full."}
        return end | {"command": resume_command(self.folder, self.config)}


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in their seed only."""

    label: str
    runs: tuple[Run, ...]


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs in these folders, which may still be going; the folder of a comparison has many.

    Raises:
        ValueError: for a folder that holds no run of `rlenv train` or none that has logged anything, a damaged file,
            and runs of different environments.
    """
    folders = dict.fromkeys(folder for path in paths for folder in _expanded(path))
    runs = [Run(**vars(read_run(folder))) for folder in folders]
    for run in runs:
        if not run.columns and not run.result:
            raise ValueError(
                f"{str(run.folder)!r} has no figures yet ({CSV} has no line); wait for its first evaluation, or resume "
                "the run"
            )
    worlds = {run.world: run for run in runs}
    if len(worlds) > 1:
        each = ", ".join(f"{str(run.folder)!r} is of {world}" for world, run in worlds.items())
        raise ValueError(f"runs of different environments have no curve in common: {each}; make a report of each")
    return runs


def _expanded(path: Path) -> list[Path]:
    """Return the folders of a comparison's runs that have logged anything; for any other folder itself."""
    tables = sorted(path.glob(f"*/seed-*/{CSV}")) if (path / COMPARISON).is_file() else []
    return [table.parent for table in tables if table.stat().st_size] or [path]


def kinds_of(runs: Sequence[Run]) -> list[Kind]:
    """Return the runs by kind, in the order of their first runs; a label has the options in which the kinds differ."""
    groups: dict[frozenset[tuple[str, str]], list[Run]] = {}
    for run in runs:
        options = frozenset((name, shown_value(value)) for name, value in run.config.items() if name not in OF_ONE_RUN)
        groups.setdefault(options, []).append(run)
    common = frozenset.intersection(*groups)
    return [Kind(_label(own[0], dict(sorted(options - common))), tuple(own)) for options, own in groups.items()]


def _label(run: Run, differing: dict[str, str]) -> str:
    agent = [short_name(run.config["agent"])] if differing.pop("agent", None) or not differing else []
    return plain(", ".join([*agent, *(f"{name} {value}" for name, value in differing.items())]))


def shown_value(value: Any) -> str:
    """Return the value of an option as a person reads it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, default=str)
