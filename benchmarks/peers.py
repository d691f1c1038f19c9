"""TRL as the peer: its own trainer, stopped after every few steps to let ours take its turn."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)


def require_trl() -> Any:
    """Return the module trl.

    Raises:
        ValueError: naming the extra, where it is not installed.
    """
    try:
        import trl
    except ImportError as error:
        raise ValueError("this benchmark needs TRL: pip install 'rlenv[peers]'") from error
    return trl


class Rewards(BaseCallback):
    """Keeps the mean reward of every rollout of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.kept.append(float(self.locals["rollout"].returns.mean()))


class Turns(TrainerCallback):
    """Times TRL's steps in blocks, and lets ours take a turn after every block.

    Args:
        ours: takes our turn; returns its seconds per update.
        steps: of a block.
        turns: how many there are; the training stops after them.
    """

    def __init__(self, ours: Callable[[], float], steps: int, turns: int) -> None:
        self.turn, self.steps, self.turns = ours, steps, turns
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.rewards: list[float] = []  # theirs, as they log them
        self._started = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **rest: Any) -> None:
        """Keep their reward."""
        if "reward" in logs:
            self.rewards.append(float(logs["reward"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Take our turn at the end of a block."""
        if state.global_step % self.steps:
            return
        self.theirs.append((time.perf_counter() - self._started) / self.steps)
        self.ours.append(self.turn())
        control.should_training_stop = len(self.ours) == self.turns
        self._started = time.perf_counter()


def train_beside(
    trainer: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[dict[str, str]],
    reward: Callable[..., list[float]],
    ours: Callable[[], float],
    steps: int,
    turns: int,
    **settings: Any,
) -> tuple[Turns, PreTrainedModel]:
    """Train a copy of the model with TRL while ours takes its turns; return the times and TRL's model.

    Args:
        trainer: "GRPO" or "RLOO".
        model: where both start.
        tokenizer: the environment's.
        rows: prompts and whatever the reward function reads, in the order they are trained on.
        reward: TRL's reward function.
        ours: see `Turns`.
        steps: updates of a block.
        turns: blocks.
        settings: for TRL's configuration, over what both sides share.
    """
    trl = require_trl()
    import datasets

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = "left"
    callback = Turns(ours, steps, turns)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # TRL makes a reference from where a model was read
        started = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype)
        config = getattr(trl, f"{trainer}Config")(
            output_dir=folder, **{
                "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
                "dataloader_pin_memory": False, "shuffle_dataset": False, "lr_scheduler_type": "constant",
                "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-5, "weight_decay": 0.0, "temperature": 1.0,
                "max_grad_norm": 1.0, "max_steps": steps * turns, "top_k": 0, **settings,
            },
        )  # fmt: skip
        peer = getattr(trl, f"{trainer}Trainer")(
            model=started, reward_funcs=reward, args=config, processing_class=tokenizer,
            train_dataset=datasets.Dataset.from_list(rows), callbacks=[callback],
        )  # fmt: skip
        peer.remove_callback(PrinterCallback)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TRL reads names that transformers is about to take away
            peer.train()
    return callback, peer.model
