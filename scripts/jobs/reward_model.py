"""The training of a reward model on preference pairs, from its config to its result."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import torch
from transformers.utils import logging as transformers_logging

from rlenv.agents.files import new_folder
from rlenv.agents.language.reward_head import make_reward_model, save_reward_model
from rlenv.agents.language.vocabulary import tokenizer_source
from rlenv.agents.policies import NAMES, check_name
from rlenv.agents.rollouts.envs import resolve_device
from rlenv.agents.training.reward_model import (
    Preferences,
    default_rate,
    preference_figures,
    train_reward_model,
)
from rlenv.encoder import Encoder
from rlenv.preference_pairs import encode_pairs, load_pairs, split_pairs
from rlenv.tokenizer import load_tokenizer, vocabulary_size
from rlenv.verifiers.builtin.reward_model import CHAT
from rlenv.verifiers.conversation import text_of

from ..config.options import ADAPTER
from ..config.other_configs import RewardModelConfig
from ..process.progress import Interrupt, progress_bar
from ..run.folder import RESULT, REWARD_MODEL, RunFolder, choose, model_of, reward_model_of

ROOM = 64  # tokens that a completion may be longer than the longest one of the pairs


def train_on_pairs(config: RewardModelConfig) -> tuple[Path, dict[str, Any], int]:
    """Return the folder of a trained reward model, the result and the signal that ended the training early, or 0.

    Raises:
        ValueError: for a config that is wrong, in one line.
    """
    model, tokenizer, train, held_out = _prepared(config)
    steps = config.steps if config.epochs is None else config.epochs * -(-len(train) // config.batch_size)
    rate = config.learning_rate or default_rate(model)
    with ExitStack() as held:
        run = RunFolder(choose(config.log_dir, config.overwrite, f"reward-model-{Path(config.pairs).stem}", held))
        run.create(config.but(learning_rate=rate).flat(), config.overwrite, held)
        before = preference_figures(model, held_out) if len(held_out) else None
        started = time.perf_counter()
        with Interrupt() as interrupt, progress_bar("reward model", steps) as show:

            def on_step(step: int, loss: float) -> bool:
                show(step + 1, f"loss {loss:.3f}")
                return not interrupt.signal

            generator = torch.Generator().manual_seed(config.seed)
            size, center = config.batch_size, config.center_coef
            losses = train_reward_model(model, train, steps, size, rate, generator, center, on_step=on_step)
        seconds = time.perf_counter() - started
        with new_folder(run.path / REWARD_MODEL) as folder:
            save_reward_model(model, folder)
            tokenizer.save_pretrained(folder)
        after = preference_figures(model, held_out) if len(held_out) else None
        result = {
            "run_dir": str(run.path), "seed": config.seed, "steps": len(losses), "learning_rate": rate,
            "pairs": len(train), "held_out_pairs": len(held_out), "loss": losses[-1] if losses else None,
            "seconds": round(seconds, 3), "initial_eval": before, "eval": after, "interrupted": bool(interrupt.signal),
        }  # fmt: skip
        run.write(RESULT, result)
    return run.path / REWARD_MODEL, result, interrupt.signal


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print a result, as JSON or in two lines."""
    figures = f"trained on {result['pairs']} pairs; none is held out"
    if result["eval"] is not None:
        before, after = (f"{result[when]['accuracy']:.3f}" for when in ("initial_eval", "eval"))
        figures = f"accuracy on {result['held_out_pairs']} held-out pairs: {before} before, {after} after"
    run = result["run_dir"]
    click.echo(
        json.dumps(result)
        if as_json
        else f"{figures}\nRun folder: {run}  (rlenv train --verifier reward_model:{run} ...)"
    )


def _prepared(config: RewardModelConfig) -> tuple[Any, Any, Any, Any]:
    """Return the model, its tokenizer, the training pairs and the held-out pairs; writes nothing.

    Raises:
        ValueError: for faults of the file, the model or the tokenizer.
    """
    transformers_logging.disable_progress_bar()
    device = resolve_device(config.device, "TextGen-v0")
    pairs = load_pairs(config.pairs, dict(config.columns))
    parts = split_pairs(pairs, config.test_fraction)
    spec = reward_model_of(config.model) or model_of(config.model)
    check_name(spec)
    alphabet = "".join(sorted({c for pair in pairs for c in text_of(pair.prompt) + pair.chosen + pair.rejected}))
    tokenizer = load_tokenizer(config.tokenizer or (None if spec in NAMES else tokenizer_source(spec)), alphabet)
    encoder, chat = Encoder(tokenizer), bool(tokenizer.chat_template)
    rows = [encode_pairs(encoder, part, chat) for part in parts]
    longest = max(len(row) for part in rows for side in part for row in side)
    pad = next(token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None)
    lora = {name: getattr(config, name) for name in ADAPTER}
    model = make_reward_model(spec, vocabulary_size(tokenizer), longest + ROOM, pad, config.seed, **lora).to(device)
    setattr(model.config, CHAT, chat)
    limit = getattr(model.config, "max_position_embeddings", None) or longest
    cut = [[[row[-limit:] for row in side] for side in part] for part in rows]  # as the verifier reads long texts
    train, held_out = (Preferences(chosen, rejected, pad) for chosen, rejected in cut)
    return model, tokenizer, train, held_out
