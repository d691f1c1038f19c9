"""TRL as the peer: its trainer, interrupted after every few steps to let ours train for as many."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from gymnasium.utils import seeding
from stable_baselines3.common.callbacks import BaseCallback
from transformers import AutoModelForCausalLM, PreTrainedModel, PrinterCallback, TrainerCallback

from agents import Agent

from .measure import clock, mean_and_range

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
        raise ValueError("this benchmark needs TRL: pip install 'rlenv-lm[peers]'") from error
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


def learned(what: str, updates: int, before: list[float], ours: list[float], theirs: list[float]) -> str:
    """Return what both sides learned.

    Args:
        what: the figures are.
        updates: between `before` and the others.
        before: the figure at the start, one for all seeds or one per seed.
        ours: of each seed.
        theirs: of each seed.
    """
    return (
        f"{what} {mean_and_range(before)} -> ours {mean_and_range(ours)}, TRL {mean_and_range(theirs)} after "
        f"{updates} updates; mean and range over {len(ours)} seeds"
    )


def problems(task: Any, seed: int, count: int) -> list[Any]:
    """Return the first problems that an environment of this task will present to an agent with this seed."""
    task = copy.copy(task)
    task.stream = copy.copy(task.stream)
    generator, _ = seeding.np_random(seed)
    task.reseed(generator)
    return [task.stream[i] for i in range(count)]


def train_beside(
    trainer: str,
    agent: Agent,
    model: PreTrainedModel,
    reward: Callable[..., list[float]],
    steps: int,
    turns: int,
    **settings: Any,
) -> tuple[Turns, Rewards, PreTrainedModel]:
    """Train a copy of the model with TRL and our agent in turn; return the times, our rewards and TRL's model.

    Args:
        trainer: "GRPO" or "RLOO".
        agent: TRL gets its problems, batch and group size, longest answer, learning rate and seed.
        model: the weights that TRL starts from.
        reward: TRL's reward function; it gets `answer` beside prompts and completions.
        steps: updates per block.
        turns: number of blocks.
        settings: for TRL's configuration; they replace those of `peer_trainer`.
    """
    batch, kept = agent.episodes_per_update, Rewards()

    def ours() -> float:
        with clock() as seconds:
            agent.learn(total_episodes=batch * steps, callback=kept, reset_num_timesteps=False)
        return seconds() / steps

    callback = Turns(ours, steps, turns)
    settings = {"learning_rate": agent.learning_rate, "seed": agent.seed, **settings}
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # TRL loads a reference from the folder of the model
        started = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype)
        peer = peer_trainer(trainer, started, agent.env.task, batch, reward, callback, folder, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TRL uses names that transformers has deprecated
            peer.train()
    return callback, kept, peer.model


def peer_trainer(
    trainer: str,
    model: PreTrainedModel,
    task: Any,
    batch: int,
    reward: Callable[..., list[float]],
    callback: Turns,
    folder: str,
    *,
    seed: int,
    **settings: Any,
) -> Any:
    """Return TRL's trainer for the problems that ours would be given.

    Args:
        trainer: "GRPO" or "RLOO".
        model: trained in place.
        task: of our environment; TRL gets its problems, tokenizer, group size and longest answer.
        batch: episodes per update.
        reward: TRL's reward function; it gets `answer` beside prompts and completions.
        callback: says how many updates there are.
        folder: for what TRL writes.
        seed: of both sides.
        settings: for TRL's configuration; they replace the defaults below.
    """
    trl = require_trl()
    import datasets

    posed = problems(task, seed, batch // task.group_size * callback.steps * callback.turns)
    tokenizer = copy.deepcopy(task.tokenizer)
    tokenizer.padding_side = "left"
    config = getattr(trl, f"{trainer}Config")(
        output_dir=folder, **{
            "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
            "dataloader_pin_memory": False, "shuffle_dataset": False, "lr_scheduler_type": "constant",
            "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-5, "weight_decay": 0.0, "temperature": 1.0,
            "max_grad_norm": 1.0, "max_steps": callback.steps * callback.turns, "logging_steps": callback.steps,
            "top_k": 0, "per_device_train_batch_size": batch, "num_generations": task.group_size, "seed": seed,
            "max_completion_length": task.max_new_tokens, **settings,
        },
    )  # fmt: skip
    peer = getattr(trl, f"{trainer}Trainer")(
        model=model, reward_funcs=reward, args=config, processing_class=tokenizer, callbacks=[callback],
        train_dataset=datasets.Dataset.from_list([{"prompt": p.prompt, "answer": p.answer} for p in posed]),
    )  # fmt: skip
    peer.remove_callback(PrinterCallback)
    return peer
