"""A trained language model or reward model as a folder for transformers, with a model card."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from rlenv.agents import LanguageModelPolicy
from rlenv.agents.files import new_folder, share
from rlenv.agents.language.adapters import merged
from rlenv.agents.language.loading import has_adapter
from rlenv.agents.language.reward_head import make_reward_model, save_reward_model
from rlenv.agents.policies import text_spaces
from rlenv.agents.training.checkpoint import Checkpoint
from rlenv.tokenizer import load_tokenizer, vocabulary_size

from ..reports.model_card import write_card
from ..run.folder import BEST, MODEL, RunFolder, check_place, checkpoint_of, reward_model_of

MARK = "rlenv_export.json"  # in every export: such a folder may be replaced
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "adapter_config.json", "*.bin")


def export_run(run: Path, folder: Path, best: bool, merge: bool, overwrite: bool) -> Path:
    """Write the model of a run, and return the checkpoint or reward model that was exported.

    Args:
        run: a run folder or a checkpoint.
        folder: is made, or replaced if it is an earlier export.
        best: the best checkpoint, instead of the newest.
        merge: an adapter into the weights, or write it alone.
        overwrite: write into a folder that holds other files, which stay.

    Raises:
        ValueError: if there is no such model, or the folder holds something else.
    """
    if best and not (run / BEST).is_dir():
        raise ValueError(f"{str(run)!r} has no best checkpoint; a run with --eval-every writes one")
    judge = reward_model_of(run)
    saved = checkpoint_of(run / BEST if best else run) if judge is None else None
    source = Path(judge or "") if saved is None else saved.path
    _check_target(folder, source, overwrite)
    fill = _language_model(saved, merge) if saved is not None else _reward_model(source, merge)
    with nullcontext(folder) if _holds_others(folder) else new_folder(folder.resolve()) as target:
        for old in {file for pattern in WEIGHTS for file in target.glob(pattern)}:
            old.unlink()  # transformers would load them
        fill(target)
        write_card(source, target, merge, folder.resolve().name, is_judge=saved is None)
        (target / MARK).write_text(json.dumps({"checkpoint": source.name}) + "\n", encoding="utf-8")
        share(target, "*.safetensors")
    return source


def _language_model(saved: Checkpoint, merge: bool) -> Callable[[Path], None]:
    """Return the writer of a checkpoint's policy into a folder; no environment or verifier is made."""
    held, model = f"{str(saved.path)!r} holds no", saved.path / MODEL
    if saved.policy.kind != LanguageModelPolicy.kind:
        raise ValueError(f"{held} language model; rlenv export is for text")
    if not (model / "tokenizer_config.json").is_file():
        raise ValueError(f"{held} tokenizer; load the agent in Python, set agent.policy.tokenizer, and save it")
    tokenizer = load_tokenizer(model, "")
    policy: Any = saved.policy.load(*text_spaces(vocabulary_size(tokenizer)))
    ends = GenerationConfig.from_pretrained(model).eos_token_id  # the model of an adapter has those of its base
    policy.tokenizer, policy.stop_token_ids = tokenizer, tuple(ends if isinstance(ends, list) else [ends])
    return partial(policy.export, merge=merge)


def _reward_model(source: Path, merge: bool) -> Callable[[Path], None]:
    """Return the writer of a reward model into a folder."""
    if not merge and not has_adapter(source):
        raise ValueError("this reward model has no adapter to write alone; omit --adapter")
    tokenizer = load_tokenizer(source, "")
    model = make_reward_model(source, vocabulary_size(tokenizer), 0, None)

    def fill(target: Path) -> None:
        save_reward_model(merged(model) if merge else model, target)
        tokenizer.save_pretrained(target)

    return fill


def _check_target(folder: Path, checkpoint: Path, overwrite: bool) -> None:
    """Refuse a folder with a run or a checkpoint, or without --overwrite, with anything but an earlier export."""
    check_place(folder)
    inside = any((part / "agent.json").is_file() for part in (folder, *folder.resolve().parents))
    if inside or RunFolder(folder).checkpoints() or checkpoint.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{str(folder)!r} holds a run or a checkpoint, or is in one; choose another folder")
    if _holds_others(folder) and not overwrite:
        advice = "choose another folder, or pass --overwrite to write into it"
        raise ValueError(f"{str(folder)!r} is not empty and not an earlier export; {advice}")


def _holds_others(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file()
