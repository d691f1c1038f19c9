"""What a report is made of: runs, read from their folders, and the kinds of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agents.files import read_table

from ..agent_names import label
from ..run import CHECKPOINT, CONFIG, CSV, LOCAL, runs_in
from ..run import Run as RunFolder
from ..terminal import plain
from ..verifier_names import short_name
from .findings import Finding
from .history import names_text
from .rules import examine_run

COMPARISON = "compare.json"  # in the folder of `rlenv compare`
# Options that do not make another kind of run: what is repeated, where it runs, what is written and measured.
OF_ONE_RUN = (
    "seed", "device", "save_every", "save_every_updates", "keep", "log_interval", "log_kl", "eval_every",
    "eval_episodes", "verifier_workers", "verifier_timeout", "verifier_memory_mb", *LOCAL,
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One run of `rlenv train`.

    Attributes:
        folder: where it is.
        config: its options.
        settings: of the agent, defaults among them, from its newest checkpoint; empty without one.
        saved_updates: after how many updates that was written; None without one.
        result: what it printed at its end; empty for one that is running or was killed.
        columns: of progress.csv, NaN where a cell is empty [rows], by name.
        samples: rows of samples.jsonl.
    """

    folder: Path
    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    saved_updates: int | None
    result: Mapping[str, Any]
    columns: Mapping[str, np.ndarray]
    samples: Sequence[Mapping[str, Any]]

    @cached_property
    def findings(self) -> list[Finding]:
        """What the doctor says."""
        return examine_run(self.folder)

    @property
    def world(self) -> str:
        """The environment and, for text, its verifier."""
        env_id = self.config["env_id"].split(":")[-1]
        return f"{env_id} · {short_name(self.config['verifier'])}" if self.is_text else env_id

    @property
    def is_text(self) -> bool:
        """Whether it trains a language model."""
        return names_text(self.config["env_id"])

    def curve(self, x: str, y: str) -> np.ndarray:
        """Return two columns [2, n], without rows in which one of them is empty."""
        nothing = np.full(1, np.nan)
        pair = np.stack(np.broadcast_arrays(self.columns.get(x, nothing), self.columns.get(y, nothing)))
        return pair[:, np.isfinite(pair).all(0)]


@dataclass(frozen=True)
class Kind:
    """Runs that differ in their seed only."""

    label: str
    runs: tuple[Run, ...]


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs in these folders; the folder of a comparison has many.

    Raises:
        ValueError: for a folder that holds no run of `rlenv train` or none that has logged anything, a damaged file,
            and runs of different environments.
    """
    folders = dict.fromkeys(folder for path in paths for folder in _expanded(path))
    runs = [_read(folder) for folder in folders]
    worlds = {run.world: run for run in runs}
    if len(worlds) > 1:
        each = ", ".join(f"{str(run.folder)!r} is of {world}" for world, run in worlds.items())
        raise ValueError(f"runs of different environments have no curve in common: {each}; make a report of each")
    return runs


def _expanded(path: Path) -> list[Path]:
    if not (path / COMPARISON).is_file():
        return [path]
    settings = read_table(path / COMPARISON)
    agents = str(settings.get("agents", "")).split(",")
    found = [folder for agent in agents for folder in sorted(path.glob(f"{label(agent)}/seed-*/"), key=_seed)]
    found = [folder for folder in found if (folder / CSV).is_file() and (folder / CSV).stat().st_size]
    if not found:
        raise ValueError(f"the comparison {str(path)!r} has no run yet that logged a figure; wait for the first one")
    return found


def _seed(folder: Path) -> int:
    seed = folder.name.removeprefix("seed-")
    return int(seed) if seed.isdecimal() and len(seed) < 10 else -1


def _read(folder: Path) -> Run:
    if not (folder / CONFIG).is_file():
        what = "is not a run folder (no config.json)" if folder.is_dir() else "is not a folder"
        missing = f"{str(folder)!r} {what}; give folders that rlenv train or rlenv compare wrote"
        raise ValueError(runs_in(folder) or missing)
    config = read_table(folder / CONFIG)
    if not isinstance(config.get("agent"), str) or not isinstance(config.get("env_id"), str):
        raise ValueError(
            f"{str(folder)!r} is not a run of rlenv train: its config.json names no agent; give one that is"
        )
    facts = folder / CHECKPOINT / "agent.json"
    checkpoint = read_table(facts) if facts.is_file() else {}
    settings, updates = checkpoint.get("settings"), checkpoint.get("num_updates")
    result = RunFolder(folder).result
    return Run(
        folder,
        config,
        settings if isinstance(settings, dict) else {},
        updates if isinstance(updates, int) else None,
        result,
        _columns(folder, ended=bool(result)),
        RunFolder(folder).samples(_checked),
    )


def _columns(folder: Path, ended: bool) -> dict[str, np.ndarray]:
    """Return the table of a run's progress; a line that is still being written is left out.

    Raises:
        ValueError: for a run without a line that has not ended: there is nothing to say yet.
    """
    rows = list(RunFolder(folder).figures())
    if not rows and ended:
        return {}
    if not rows:
        raise ValueError(
            f"{str(folder)!r} has no figures yet ({CSV} has no line); wait for its first evaluation, or resume the run"
        )
    names = [name for name in rows[0] if name]
    return {name: np.array([row[name] for row in rows]) for name in names}


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with exactly what a page shows, each of the right type."""
    steps = len(row["texts"])
    credit = row["advantages"]
    if len(row["log_probs"]) != steps or (credit is not None and len(credit) != steps):
        raise ValueError("the columns of the tokens have different lengths")
    return {
        **{name: str(row[name]) for name in ("kind", "when", "split", "prompt", "completion", "status")},
        "answer": None if row["answer"] is None else str(row["answer"]),
        "updates": int(row["updates"]),
        "reward": float(row["reward"]),
        "success": None if row["success"] is None else bool(row["success"]),
        "truncated": bool(row["truncated"]),
        "parts": {str(name): float(value) for name, value in row["parts"].items()},
        "texts": [str(text) for text in row["texts"]],
        "log_probs": [math.nan if value is None else float(value) for value in row["log_probs"]],
        "dialogue": [_turn(turn) for turn in row.get("dialogue", ())],
        "advantages": None if credit is None else [math.nan if value is None else float(value) for value in credit],
    }


def _turn(row: Mapping[str, Any]) -> dict[str, Any]:
    reward = None if row["reward"] is None else float(row["reward"])
    return {"text": str(row["text"]), "tokens": int(row["tokens"]), "reply": str(row["reply"]), "reward": reward}


def kinds_of(runs: Sequence[Run]) -> list[Kind]:
    """Return the runs by kind, in the order in which the kinds come up; a label says what tells a kind from others."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps({name: run.config[name] for name in sorted({*run.config} - {*OF_ONE_RUN})}, default=str)
        groups.setdefault(key, []).append(run)
    firsts = [group[0].config for group in groups.values()]
    names = [name for name in dict.fromkeys(name for config in firsts for name in config) if name not in OF_ONE_RUN]
    differing = [name for name in names if any(config.get(name) != firsts[0].get(name) for config in firsts)]
    return [Kind(_label(group[0].config, differing), tuple(group)) for group in groups.values()]


def _label(config: Mapping[str, Any], differing: Sequence[str]) -> str:
    rest = [f"{name} {shown_value(config.get(name))}" for name in differing if name != "agent"]
    return plain(", ".join([label(config["agent"]), *rest] if "agent" in differing or not rest else rest))


def shown_value(value: Any) -> str:
    """Return the value of an option as a person reads it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, default=str)
