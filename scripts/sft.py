"""rlenv sft: supervised training on demonstrations, those of a verifier or the answers in a file."""

from __future__ import annotations

from typing import Any

import click

from .config.command import Command
from .config.options import (  # fmt: skip
    COUNT,
    FROM_ZERO,
    adapter,
    common,
    declared,
    environment,
    processes,
    run_folder,
    text,
    warm_start,
)
from .config.parameters import group, option


@click.command(
    cls=Command,
    examples={
        "rlenv sft --log-dir runs/warm": "A preset imitates solved sums",
        "rlenv sft --problems FILE --epochs 3 --model FOLDER_OR_ID": "A model of your own, on the answers in a file",
        "rlenv train --model runs/warm --sft-steps 0": "Reinforcement learning from there",
    },
    often={
        "What is imitated": ("verifier", "problems", "column_args", "chat"),
        "Who learns": ("model", "lora_rank", "sft_learning_rate"),
        "How much": ("epochs", "sft_steps", "sft_batch_size"),
        "The run": ("config", "log_dir", "seed", "device"),
    },
)
@environment
@text
@group(
    "Imitation",
    option("--model", str, "Preset (tiny, small, base, smollm2), folder, id, GGUF file or run.", "auto", "tiny"),
    option("--epochs", COUNT, "Passes over all training problems of the file, instead of --sft-steps."),
    option("--eval-episodes", FROM_ZERO, "Episodes of the evaluation; 0 for none.", shown="2000"),
)
@adapter
@warm_start
@declared("sft")
@run_folder
@processes
@common
def sft(**given: Any) -> None:
    """Train a language model on demonstrations; `rlenv train --model RUN --sft-steps 0` continues.

    With --problems, the answers in the file are the demonstrations, all of the training split. The loss is that of the
    answers' tokens, never of the prompts'. eval_loss is that of held-out problems, in nats per token. With --verifier,
    the verifier judges greedy answers as well.
    """
    from .jobs.imitation import run_imitation

    run_imitation(given)
