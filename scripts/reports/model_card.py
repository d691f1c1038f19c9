"""The model card of an export: how to load the model, the run's options, and its figures."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlenv._json import read_table
from rlenv.agents.training.checkpoint import read_facts
from rlenv.version import __version__

from ..config.base import Config
from ..config.configs import RewardModelConfig, SftConfig, TrainConfig
from ..config.names import without_folders
from ..run.folder import CHECKPOINT, CONFIG, EVALUATIONS, RunFolder, content_of
from .evaluation_figures import table

HEADER = """---
library_name: {library}
pipeline_tag: {task}
tags:
- reinforcement-learning
- rlenv
# license: choose one before you share this model
---

# {name}

A {about} by rlenv {version}.
"""
USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)
inputs = tokenizer(PROMPT, return_tensors="pt", add_special_tokens=False)
print(tokenizer.decode(model.generate(inputs["input_ids"], do_sample=False, max_new_tokens=64)[0]))
```
"""


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
    options, result = run.config if (run.path / CONFIG).is_file() else {}, run.result
    about = "reward model trained on preferences" if is_judge else "language model trained with reinforcement learning"
    task, library = "text-classification" if is_judge else "text-generation", "transformers" if merged else "peft"
    parts = [HEADER.format(library=library, task=task, name=name, about=about, version=__version__)]
    if not is_judge:
        parts += [USE if merged else "", _data(read_facts(source))]
    parts.append(_command(options) if options else "")
    parts.append(_accuracy(result) if is_judge else _figures(source, result))
    (target / "README.md").write_text("\n".join(filter(None, parts)), encoding="utf-8")


def _data(facts: Mapping[str, Any]) -> str:
    """Return a table of the model's training: agent, problems and verifier, without the paths of this machine."""
    kwargs = facts.get("env_kwargs") or {}
    problems = kwargs.get("problems") or ""
    rows = {
        "agent": facts.get("agent"),
        "episodes": facts.get("num_episodes"),
        "updates": facts.get("num_updates"),
        "verifier": _without_folders(kwargs.get("verifier")),
        "its arguments": _without_folders(kwargs.get("verifier_kwargs")),
        "problems": without_folders(problems) if isinstance(problems, str) else f"a list of {len(problems)}",
    }
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in rows.items() if value}
    cells = {name: text.replace("|", "\\|").replace("\n", " ") for name, text in texts.items()}
    return "\n".join(["## Training data", "", "| | |", "|---|---|", *(f"| {n} | {c} |" for n, c in cells.items()), ""])


def _command(options: Mapping[str, Any]) -> str:
    """Return the command of the run, with the options that differ from their defaults."""
    cls: type[Config]
    cls, command = (RewardModelConfig, "reward-model") if "pairs" in options else (SftConfig, "sft")
    if "agent" in options:
        cls, command = TrainConfig, "train"
    config = cls.of({name: _without_folders(value) for name, value in options.items()})
    return f"## Command\n\n```\n{shlex.join(['rlenv', *config.command_line(command)])}\n```\n"


def _accuracy(result: Mapping[str, Any]) -> str:
    if not result.get("eval"):
        return ""
    before, after = (result[when]["accuracy"] for when in ("initial_eval", "eval"))
    figures = f"{result['held_out_pairs']} held-out pairs: {before:.3f} before training, {after:.3f} after"
    return f"## Evaluation\n\nAccuracy on {figures}.\n"


def _figures(checkpoint: Path, result: Mapping[str, Any]) -> str:
    """Return a table of the run's own evaluations, if the newest checkpoint is exported, and of `rlenv evaluate`."""
    rows: dict[str, Mapping[str, Any]] = {}
    if result.get("initial_eval"):
        rows["before training"] = result["initial_eval"]
    if result.get("eval") and checkpoint.name == CHECKPOINT:
        rows["after training"] = result["eval"]
    for file in sorted((checkpoint.parent / EVALUATIONS).glob("*.json")):
        facts = read_table(file)
        if facts.get("figures") and facts.get("settings", {}).get("content") == content_of(checkpoint):
            rows[file.stem] = facts["figures"]
    splits = ", ".join(sorted({str(figures["split"]) for figures in rows.values() if figures.get("split")}))
    text = "Greedy unless it says sampled; 95 % bootstrap intervals over problems in brackets."
    return f"## Evaluation\n\n{text}{splits and f' Split: {splits}.'}\n\n{table(rows)}\n" if rows else ""


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(each) for each in value]
    return without_folders(value) if isinstance(value, str) else value
