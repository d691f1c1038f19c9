"""rlenv export: a trained language model or reward model as a folder for transformers, with a model card; to a hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .config.command import Command
from .config.options import as_json

if TYPE_CHECKING:
    from rlenv.agents.training.checkpoint import Checkpoint

MARK = "rlenv_export.json"  # in every export: such a folder may be replaced
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "adapter_config.json", "*.bin")


@click.command(
    cls=Command,
    examples={
        "rlenv export runs/NAME trained": "A folder for transformers, with a model card",
        "rlenv export runs/NAME trained --best --adapter": "The best checkpoint by --eval-every, its adapter alone",
        "rlenv export runs/NAME trained --push USER/NAME --private": "Upload it, too",
    },
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--best", is_flag=True, help="The best checkpoint by --eval-every, instead of the newest.")
@click.option("--merged/--adapter", "merge", default=True, help="Merge an adapter into the weights, or write it alone.")
@click.option("--push", metavar="REPO_ID", default=None, help="Also upload the folder to this repository of a hub.")
@click.option("--private", is_flag=True, help="Make the repository private, if --push makes a new one.")
@click.option("--overwrite", is_flag=True, help="Write into FOLDER although it holds other files, which stay.")
@as_json
def export(
    run: Path, folder: Path, best: bool, merge: bool, push: str | None, private: bool, overwrite: bool, as_json: bool
) -> None:
    """Export the model of RUN, a run folder or checkpoint, to FOLDER.

    AutoModelForCausalLM and AutoTokenizer load a language model, and its greedy generation is that of `rlenv evaluate`.
    AutoModelForSequenceClassification loads the reward model of a run of `rlenv reward-model`.
    """
    from rlenv.agents.files import write_folder

    from .reports.model_card import write_card
    from .run.folder import BEST, checkpoint_of, reward_model_of

    if private and push is None:
        raise ValueError("--private is about the repository of --push, which was not given")
    if best and not (run / BEST).is_dir():
        raise ValueError(f"{str(run)!r} has no best checkpoint; a run with --eval-every writes one")
    judge = reward_model_of(run)
    saved = checkpoint_of(run / BEST if best else run) if judge is None else None
    source = Path(judge or "") if saved is None else saved.path
    _check_target(folder, source, overwrite)
    fill = _language_model(saved, merge) if saved is not None else _reward_model(source, merge)

    def marked(target: Path) -> None:
        fill(target)
        write_card(source, target, merge, folder.resolve().name, is_judge=saved is None)
        (target / MARK).write_text(json.dumps({"checkpoint": source.name}) + "\n", encoding="utf-8")

    if _holds_others(folder):
        for old in {file for pattern in WEIGHTS for file in folder.glob(pattern)}:
            old.unlink()  # transformers would load them
        marked(folder)
    else:
        write_folder(folder.resolve(), marked)
    result = {"folder": str(folder), "checkpoint": str(source)}
    if push is not None:
        result["url"] = _upload(folder, push, private)
    click.echo(json.dumps(result) if as_json else f"Exported to {result.get('url', folder)}")


def _language_model(saved: Checkpoint, merge: bool) -> Callable[[Path], None]:
    """Return the writer of a checkpoint's policy into a folder; no environment or verifier is made."""
    from rlenv.agents import LanguageModelPolicy
    from rlenv.agents.policies import text_spaces
    from rlenv.tokenizer import load_tokenizer

    from .run.folder import MODEL

    held, model = f"{str(saved.path)!r} holds no", saved.path / MODEL
    if saved.policy.kind != LanguageModelPolicy.kind:
        raise ValueError(f"{held} language model; rlenv export is for text")
    if not (model / "tokenizer_config.json").is_file():
        raise ValueError(f"{held} tokenizer; load the agent in Python, set agent.policy.tokenizer, and save it")
    tokenizer = load_tokenizer(model, "")
    policy: Any = saved.policy.load(*text_spaces(len(tokenizer)))
    ends = policy.model.generation_config.eos_token_id or tokenizer.eos_token_id
    policy.tokenizer, policy.stop_token_ids = tokenizer, tuple(ends if isinstance(ends, list) else [ends])
    return partial(policy.export, merge=merge)


def _reward_model(source: Path, merge: bool) -> Callable[[Path], None]:
    """Return the writer of a reward model into a folder."""
    from rlenv.agents.language.adapters import has_adapter
    from rlenv.agents.training.reward_model import make_reward_model, merged, save_reward_model
    from rlenv.tokenizer import load_tokenizer

    if not merge and not has_adapter(source):
        raise ValueError("this reward model has no adapter to write alone; omit --adapter")
    tokenizer = load_tokenizer(source, "")
    model = make_reward_model(source, len(tokenizer), 0, None)

    def fill(target: Path) -> None:
        save_reward_model(merged(model) if merge else model, target)
        tokenizer.save_pretrained(target)

    return fill


def _check_target(folder: Path, checkpoint: Path, overwrite: bool) -> None:
    """Refuse a folder with a run or a checkpoint, or without --overwrite, with anything but an earlier export."""
    from .run.folder import RunFolder, check_place

    check_place(folder)
    inside = any((part / "agent.json").is_file() for part in (folder, *folder.resolve().parents))
    if inside or RunFolder(folder).checkpoints() or checkpoint.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{str(folder)!r} holds a run or a checkpoint, or is in one; choose another folder")
    if _holds_others(folder) and not overwrite:
        advice = "choose another folder, or pass --overwrite to write into it"
        raise ValueError(f"{str(folder)!r} is not empty and not an earlier export; {advice}")


def _holds_others(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file()


def _upload(folder: Path, repo: str, private: bool) -> str:
    """Upload a folder to a repository of the hub, which is made if it does not exist; return its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    from rlenv.agents.checks import first_line

    faults: Any = (OSError, ValueError, *HfHubHTTPError.__bases__)  # its HTTP library raises other errors
    hub = HfApi()
    try:
        url = hub.create_repo(repo, private=private or None, exist_ok=True)
        hub.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload with rlenv export")
    except faults as error:
        later = f"log in with: hf auth login; to upload it later: hf upload {repo} {folder}"
        lost = f"{str(folder)!r} was exported but not uploaded to {repo!r}: {first_line(error)} ({later})"
        raise ValueError(lost) from error
    return str(url)
