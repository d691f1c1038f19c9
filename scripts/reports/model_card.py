"""The model card of an export: how to load the model, the run's options, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlenv._json import read_table
from rlenv.agents.training.checkpoint import read_facts

from ..config.base import Config, by_field
from ..config.configs import SftConfig, TrainConfig
from ..config.names import without_folders
from ..config.other_configs import RewardModelConfig
from ..run.folder import CHECKPOINT, CONFIG, EVALUATIONS, RunFolder, content_of
from .evaluation_figures import table
from .templates import render


def write_card(source: Path, target: Path, merged: bool, name: str, is_judge: bool) -> None:
    """Write README.md.

    Args:
        source: the checkpoint or reward model that is exported; the folder around it may be a run.
        target: of the export.
        merged: whether the target holds a whole model.
        name: of the model.
        is_judge: whether it is a reward model.
    """
    run = RunFolder(source.parent)
    evaluations = {} if is_judge else _evaluations(source, run.result)
    card = render(
        "card.md",
        merged=merged,
        name=name,
        is_judge=is_judge,
        training=None if is_judge else _training(read_facts(source)),
        **_options(run.config if (run.path / CONFIG).is_file() else {}),
        result=run.result,
        evaluations=evaluations,
        splits=", ".join(sorted({str(figures["split"]) for figures in evaluations.values() if figures.get("split")})),
        table=table,
    )
    (target / "README.md").write_text(card, encoding="utf-8")


def _training(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return agent, problems and verifier of a checkpoint, without the paths of this machine."""
    kwargs = facts.get("env_kwargs") or {}
    problems = kwargs.get("problems") or ""
    return {
        "agent": facts.get("agent"),
        "episodes": facts.get("num_episodes"),
        "updates": facts.get("num_updates"),
        "verifier": without_folders(kwargs.get("verifier")),
        "its arguments": without_folders(kwargs.get("verifier_kwargs")),
        "problems": without_folders(problems) if isinstance(problems, str) else f"a list of {len(problems)}",
    }


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command of a run, and its options that differ from the defaults."""
    cls: type[Config]
    cls, command = (RewardModelConfig, "reward-model") if "pairs" in options else (SftConfig, "sft")
    if "agent" in options:
        cls, command = TrainConfig, "train"
    config = cls().but(**by_field(cls, without_folders(options)))
    return {"command": command, "options": config.changed()}


def _evaluations(checkpoint: Path, result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the evaluations of a checkpoint by name: those of its run, and of `rlenv evaluate`."""
    rows: dict[str, Mapping[str, Any]] = {}
    if result.get("initial_eval"):
        rows["before training"] = result["initial_eval"]
    if result.get("eval") and checkpoint.name == CHECKPOINT:
        rows["after training"] = result["eval"]
    for file in sorted((checkpoint.parent / EVALUATIONS).glob("*.json")):
        facts = read_table(file)
        if facts.get("figures") and facts.get("settings", {}).get("content") == content_of(checkpoint):
            rows[file.stem] = facts["figures"]
    return rows
