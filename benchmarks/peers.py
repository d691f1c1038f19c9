"""TRL as the peer: its trainer, interrupted after every few steps to let ours train for as many."""

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

# TRL's settings for the loss and the work of ours: nothing is recomputed, no reference model is run.
SAME_WORK: dict[str, Any] = {"activation_checkpointing": False, "beta": 0.0}
SAME_LOSS = SAME_WORK | {"loss_type": "grpo", "scale_rewards": "group"}


def require_trl() -> Any:
    """Return the module trl.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        import trl
    except ImportError as error:
        raise ValueError("this benchmark needs TRL: pip install 'rlenv[peers]'") from error
    return trl


class Rewards(BaseCallback):
    """Keeps the mean reward and length of each of our rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []
        self.lengths: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.kept.append(float(self.locals["rollout"].returns.mean()))
        self.lengths.append(float(self.locals["rollout"].lengths.float().mean()))


class Turns(TrainerCallback):
    """Times TRL's steps in blocks and calls ours after every block.

    Args:
        ours: trains ours for as many updates; returns its seconds per update.
        steps: updates per block.
        turns: number of blocks.
    """

    def __init__(self, ours: Callable[[], float], steps: int, turns: int) -> None:
        self.turn, self.steps, self.turns = ours, steps, turns
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.rewards: list[float] = []  # as TRL logs them
        self.lengths: list[float] = []
        self._started = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **rest: Any) -> None:
        """Keep TRL's mean reward and length."""
        if "reward" in logs:
            self.rewards.append(float(logs["reward"]))
            self.lengths.append(float(logs.get("completions/mean_length", "nan")))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Call ours at the end of a block."""
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
    """Train a copy of the model with TRL and ours in turn; return the times and TRL's model.

    Args:
        trainer: "GRPO" or "RLOO".
        model: the weights that TRL starts from.
        tokenizer: the environment's.
        rows: prompts and other columns of the reward function, in the order of training.
        reward: TRL's reward function.
        ours: see `Turns`.
        steps: updates per block.
        turns: number of blocks.
        settings: for TRL's configuration; they replace the defaults below.
    """
    trl = require_trl()
    import datasets

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = "left"
    callback = Turns(ours, steps, turns)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # TRL loads a reference from the folder of the model
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
            warnings.simplefilter("ignore", FutureWarning)  # TRL uses names that transformers has deprecated
            peer.train()
    return callback, peer.model
