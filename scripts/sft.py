"""rlenv sft: supervised training on demonstrations, from a verifier or the answers in a file."""

from __future__ import annotations

import click

from .config.command import Command
from .config.configs import SftConfig


@click.command(
    cls=Command,
    config=SftConfig,
    examples={
        "rlenv sft --log-dir runs/warm": "A preset imitates solved sums",
        "rlenv sft --problems FILE --epochs 3 --model FOLDER_OR_ID": "A model of your own, on the answers in a file",
        "rlenv train --model runs/warm --sft-steps 0": "Reinforcement learning from there",
        "rlenv sft --resume runs/warm": "Go on after Ctrl-C, SIGTERM or a kill",
    },
    often={
        "What is imitated": ("verifier", "problems", "columns", "chat"),
        "Who learns": ("model", "lora_rank", "sft_learning_rate"),
        "How much": ("epochs", "sft_steps", "sft_batch_size"),
        "The run": ("config_file", "log_dir", "seed", "device", "resume"),
    },
)
def sft(config: SftConfig) -> None:
    """Train a language model on demonstrations; `rlenv train --model RUN --sft-steps 0` continues.

    With --problems, the answers in the file are the demonstrations, all of the training split. The loss is that of the
    answers' tokens, never of the prompts'. eval_loss is that of held-out problems, in nats per token. With --verifier,
    the verifier judges greedy answers as well.
    """
    from .jobs import imitation, resume

    run = imitation.sft(config)
    imitation.show(run, config.as_json)
    if run.signal:
        resume.end_interrupted(run.folder, run.signal)
