"""TRL as the peer: its trainer on the problems that ours would be given, stopped after every few steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from gymnasium.utils import seeding
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback

from rlenv._checks import require

from .measure import now

# TRL's settings for the loss and the work of ours: nothing is recomputed, no reference model is run.
SAME_LOSS: dict[str, Any] = {
    "activation_checkpointing": False, "beta": 0.0, "loss_type": "grpo", "scale_rewards": "group",
    "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "dataloader_pin_memory": False,
    "shuffle_dataset": False, "lr_scheduler_type": "constant", "adam_beta1": 0.9, "adam_beta2": 0.95,
    "adam_epsilon": 1e-5, "weight_decay": 0.0, "temperature": 1.0, "top_k": 0, "max_grad_norm": 1.0, "logging_steps": 1,
}  # fmt: skip


def require_trl() -> Any:
    """Return the module trl.

    Raises:
        ValueError: if it is not installed.
    """
    return require("trl", "peers", "this benchmark")


class Turns(TrainerCallback):
    """Waits for a turn before every few of TRL's steps, and answers with their seconds.

    Args:
        turns: of `wait_for_turns`.
        steps: updates per turn.
    """

    def __init__(self, turns: Iterator[Callable[[dict[str, Any]], None]], steps: int) -> None:
        self.turns, self.steps = turns, steps
        self.rewards: list[float] = []  # as TRL logs them
        self.lengths: list[float] = []
        self._wait()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **rest: Any) -> None:
        """Keep TRL's mean reward and length."""
        if "reward" in logs:
            self.rewards.append(float(logs["reward"]))
            self.lengths.append(float(logs.get("completions/mean_length", "nan")))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """End the turn after its last step."""
        if state.global_step % self.steps == 0:
            self.answer({"seconds": (now() - self._started) / self.steps})
            self._wait()

    def _wait(self) -> None:
        self.answer = next(self.turns)
        self._started = now()


def problems(task: Any, seed: int, count: int) -> list[Any]:
    """Return the first problems that an environment of this task will present to an agent with this seed."""
    task = copy.copy(task)
    task.stream = copy.copy(task.stream)
    generator, _ = seeding.np_random(seed)
    task.reseed(generator)
    return [task.stream[i] for i in range(count)]


def peer_trainer(
    model: PreTrainedModel,
    task: Any,
    batch: int,
    reward: Callable[..., list[float]],
    updates: int,
    callback: TrainerCallback,
    **settings: Any,
) -> Any:
    """Return TRL's GRPO trainer for the problems that ours would be given.

    Args:
        model: trained in place.
        task: of our environment; TRL gets its problems, tokenizer, group size and longest answer.
        batch: episodes per update.
        reward: TRL's reward function; it gets `answer` beside prompts and completions.
        updates: to make.
        callback: of the trainer.
        settings: for TRL's configuration, beside `SAME_LOSS`: seed, learning rate, output folder.
    """
    trl = require_trl()
    import datasets

    posed = problems(task, settings["seed"], batch // task.group_size * updates)
    tokenizer = copy.deepcopy(task.encoding.tokenizer)
    tokenizer.padding_side = "left"
    own = {"per_device_train_batch_size": batch, "num_generations": task.group_size, "max_steps": updates}
    config = trl.GRPOConfig(**{**SAME_LOSS, **own, "max_completion_length": task.encoding.max_new_tokens, **settings})
    peer = trl.GRPOTrainer(
        model=model, reward_funcs=reward, args=config, processing_class=tokenizer, callbacks=[callback],
        train_dataset=datasets.Dataset.from_list([{"prompt": p.prompt, "answer": p.answer} for p in posed]),
    )  # fmt: skip
    peer.remove_callback(PrinterCallback)
    return peer
