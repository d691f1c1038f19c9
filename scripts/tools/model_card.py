"""The model card of an export: data, command, figures and the learning curve."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.checkpoints.checkpoint import read_facts
from agents.core.files import read_table
from rlenv.version import __version__

from ..evaluation.figures import table
from ..evaluation.subject import FOLDER
from ..reports.figures import plots
from ..runs import run_folder
from ..runs.logged import read_result, read_rows
from ..runs.run_files import CSV, RESULT
from ..setup.defaults import common_settings
from ..setup.verifier_names import without_folders

CURVE = "learning_curve.png"


def write_card(checkpoint: Path, target: Path, name: str, merged: bool) -> None:
    """Write README.md and the learning curve.

    Args:
        checkpoint: that is exported; the folder around it may be a run.
        target: of the export.
        name: of the model.
        merged: whether the folder holds a whole model.
    """
    run = checkpoint.parent
    config = read_table(run / run_folder.CONFIG) if (run / run_folder.CONFIG).is_file() else {}
    result = read_result(run / RESULT)
    parts = [
        _header(name, merged, "text-generation", "A language model trained with reinforcement learning"),
        _USE if merged else "",
        _data(read_facts(checkpoint)),
        _command(config) if config else "",
        _figures(checkpoint, result, _evaluations(checkpoint)),
        f"## Learning curve\n\n![learning curve]({CURVE})\n" if draw_curve(run / CSV, target / CURVE) else "",
    ]
    (target / "README.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def write_reward_card(run: Path, target: Path, name: str, merged: bool) -> None:
    """Write README.md of a reward model; the arguments are those of `write_card`, with the run folder first."""
    config, result = (read_table(run / file) if (run / file).is_file() else {} for file in (run_folder.CONFIG, RESULT))
    figures = ""
    if result.get("eval"):
        before, after = (result[when]["accuracy"] for when in ("initial_eval", "eval"))
        said = f"{result['held_out_pairs']} held-out pairs: {before:.3f} before training, {after:.3f} after"
        figures = f"## Evaluation\n\nAccuracy on {said}.\n"
    header = _header(name, merged, "text-classification", "A reward model trained on preferences")
    parts = [header, _command(config) if config else "", figures]
    (target / "README.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def _header(name: str, merged: bool, task: str, about: str) -> str:
    front = ["library_name: transformers" if merged else "library_name: peft", f"pipeline_tag: {task}"]
    front += ["tags:", "- reinforcement-learning", "- rlenv", "# license: choose one before you share this model"]
    return "\n".join(["---", *front, "---", "", f"# {name}", "", f"{about} by rlenv {__version__}.", ""])


_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)
inputs = tokenizer(PROMPT, return_tensors="pt", add_special_tokens=False)
print(tokenizer.decode(model.generate(inputs["input_ids"], do_sample=False, max_new_tokens=64)[0]))
```
"""


def _data(facts: Mapping[str, Any]) -> str:
    """Return what the model was trained on."""
    kwargs = facts.get("env_kwargs") or {}
    problems = kwargs.get("problems")
    verifiers = kwargs.get("verifier")
    given = {name: _shared(value) for name, value in (kwargs.get("verifier_kwargs") or {}).items()}
    rows = {
        "agent": facts.get("agent"),
        "verifier": verifiers and ",".join(map(_shared, [verifiers] if isinstance(verifiers, str) else verifiers)),
        "its arguments": ", ".join(f"{name}={value}" for name, value in given.items()) or None,
        "problems": _source(problems) if kwargs else None,
        "episodes": facts.get("num_episodes"),
        "updates": facts.get("num_updates"),
    }
    lines = [f"| {title} | {_cell(value)} |" for title, value in rows.items() if value is not None]
    return "\n".join(["## Training data", "", "| | |", "|---|---|", *lines, ""])


def _source(problems: Any) -> str:
    if problems is None:
        return "sampled by the verifier"
    return _shared(problems) if isinstance(problems, str) else f"a list of {len(problems)}"


def _command(config: Mapping[str, Any]) -> str:
    """Return the command of the run, with the options that differ from their defaults."""
    from ..training.command import train
    from ..training.sft import sft
    from .reward_model import reward_model

    command = train if "agent" in config else reward_model if "pairs" in config else sft
    usual = common_settings() | {option.name: option.default for option in command.params if option.default is not None}
    words = ["rlenv", str(command.name)]
    for option in command.params:
        value = config.get(str(option.name))
        if value in (None, {}, False) or value == usual.get(str(option.name)):
            continue
        pairs = (
            [f"{key}={_shared(text)}" for key, text in value.items()] if isinstance(value, dict) else [_shared(value)]
        )
        for text in pairs:
            words += [option.opts[0]] if value is True else [option.opts[0], text]
    return f"## Command\n\n```\n{shlex.join(words)}\n```\n"


def _evaluations(checkpoint: Path) -> dict[str, Mapping[str, Any]]:
    """Return the figures of the evaluations of this checkpoint, by the name of their file."""
    from ..evaluation.subject import content_of

    found = {}
    for file in sorted((checkpoint.parent / FOLDER).glob("*.json")):
        facts = read_table(file)
        if facts.get("figures") and facts.get("settings", {}).get("content") == content_of(checkpoint):
            found[file.stem] = facts["figures"]
    return found


def _figures(checkpoint: Path, result: Mapping[str, Any], evaluations: dict[str, Mapping[str, Any]]) -> str:
    """Return a table of the evaluations: those of the run itself, if the newest checkpoint is exported, and others."""
    rows: dict[str, Mapping[str, Any]] = {}
    if result.get("initial_eval"):
        rows["before training"] = result["initial_eval"]
    if result.get("eval") and checkpoint.name == run_folder.CHECKPOINT:
        rows["after training"] = result["eval"]
    rows |= evaluations
    if not rows:
        return ""
    splits = sorted({str(figures["split"]) for figures in rows.values() if figures.get("split")})
    where = f" Split: {', '.join(splits)}." if splits else ""
    text = f"Greedy unless it says sampled; 95 % bootstrap intervals over problems in brackets.{where}"
    return f"## Evaluation\n\n{text}\n\n{table(rows)}\n"


def draw_curve(log: Path, path: Path) -> bool:
    """Draw success, or else reward, of training and evaluation over the steps of a run; tell whether it was drawn.

    It is not without a log of at least two entries.
    """
    if not log.is_file():
        return False
    rows = list(read_rows(log))
    pairs = (("rollout/success_rate", "eval/success_rate"), ("rollout/ep_rew_mean", "eval/mean_reward"))
    curves = {}
    for names in pairs:
        for name in names:
            drawn = [(row.get("time/total_timesteps", math.nan), row.get(name, math.nan)) for row in rows]
            points = [point for point in drawn if all(map(math.isfinite, point))]
            if points:
                curves[name] = points
        if curves:
            break
    if max(map(len, curves.values()), default=0) < 2:
        return False

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for name, points in curves.items():
            axes.plot(*zip(*points, strict=True), marker="o" if name.startswith("eval/") else "", label=name)
        axes.set_xlabel("tokens of training")
        axes.legend()

    plots.save_figure(draw, path, (6.0, 3.5))
    return True


def _shared(value: Any) -> str:
    """Return a value as text, without the folders of this machine, which are private."""
    shared = _without_folders(value)
    return shared if isinstance(shared, str) else json.dumps(shared)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(each) for each in value]
    return without_folders(value) if isinstance(value, str) else value


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
