"""The settings of every agent: how it learns, from which episodes, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from typing_extensions import override

from ..checks import LARGEST_SEED, MOST_SLOTS, Scheduled
from ..declaration import Given
from ..estimators import kl, mismatch
from ..fsdp import check_shard
from ..settings import Configured, setting
from .kl_anchor import PLACES
from .optimizer import BETAS, EPS, SCHEDULES

BOTH, ALL = ("train", "compare"), ("train", "compare", "sft")
TRAIN = ("train",)


class AgentSettings(Configured):
    """The settings of every agent."""

    seed: int = setting(
        default=0, range=f"[0, {LARGEST_SEED}]", help="Seed of initial weights, environment and sampling."
    )
    learning_rate: Given[float | Callable[[float], float] | None, Scheduled] = setting(
        default=None,
        by_kind={"control": 5e-3, "language-model": 3e-4},
        range="(0, inf)",
        starts=False,
        commands=BOTH,
        shown="text: 3e-4 for tiny, others by size, at least 10 times as much for adapters; control: 5e-3, most agents",
        help="Learning rate of Adam.",
        more="A number, or a function of the remaining progress (1 to 0).",
    )
    lr_schedule: str = setting(
        default="linear",
        choices=SCHEDULES,
        commands=TRAIN,
        help="How the learning rate changes; linear and cosine end at zero.",
    )
    warmup_updates: Given[int | None, int] = setting(
        default=None,
        by_kind={"control": 0, "language-model": 10},
        range="[0, inf)",
        commands=BOTH,
        shown="text: 10, 0 above 100 million parameters; control: 0",
        help="Updates in which the learning rate rises from zero.",
        more="Adam's first steps have the full length, whatever the noise, and would undo a part of a warm start.",
    )
    weight_decay: float = setting(
        default=0.0, range="[0, inf)", commands=TRAIN, help="Weight decay of AdamW, not for norms and biases."
    )
    adam_beta1: float = setting(
        default=BETAS[0], range="[0, 1)", commands=TRAIN, help="Decay of Adam's mean of the gradient."
    )
    adam_beta2: float = setting(
        default=BETAS[1], range="[0, 1)", commands=TRAIN, help="Decay of Adam's mean of the squared gradient."
    )
    adam_eps: float = setting(
        default=EPS, range="(0, inf)", commands=TRAIN, help="Added to the root of Adam's mean of the squared gradient."
    )
    gamma: Given[float | None, float] = setting(
        default=None,
        by_kind={"control": 0.99, "language-model": 1.0},
        range="[0, 1]",
        commands=TRAIN,
        help="Discount per step.",
    )
    normalize_rewards: bool = setting(
        default=False,
        commands=TRAIN,
        help="Train on rewards divided by the running standard deviation of the return.",
        more="See `reward_scale.py`.",
    )
    max_grad_norm: float = setting(
        default=1.0,
        range="(0, inf)",
        commands=TRAIN,
        help="Gradients are clipped to this norm.",
        more="That of the policy and that of the critic separately.",
    )
    ent_coef: float = setting(
        default=0.0, range="[0, inf)", commands=TRAIN, help="Weight of the entropy bonus.", more="In the loss: c_H."
    )
    vf_coef: float = setting(
        default=0.5,
        range="[0, inf)",
        commands=TRAIN,
        help="Weight of the critic's loss, for agents with a critic.",
        more="In the loss: c_V.",
    )
    kl_coef: float = setting(
        default=0.0,
        range="[0, inf)",
        commands=BOTH,
        help="KL anchor to the policy that training starts from.",
        more="In the formulas: β; see `kl_anchor.Anchor`.",
    )
    kl_estimator: str = setting(
        default="k1", choices=(*kl.ESTIMATORS, kl.EXACT), commands=TRAIN, help="How the KL is estimated."
    )
    kl_in: str = setting(default="reward", choices=PLACES, commands=TRAIN, help="What the KL penalty is added to.")
    kl_ratio: str = setting(
        default="none",
        choices=kl.RATIOS,
        commands=TRAIN,
        help="What multiplies a KL penalty in the loss, whose actions are the sampling policy's in later passes.",
        more="The ratio π/π_old of the step, as a constant (1 in a first pass) or differentiated; the tables in "
        "`estimators/kl.py` say what each does to the gradient.",
    )
    mismatch: str | None = setting(
        default=None,
        choices=mismatch.MODES,
        commands=TRAIN,
        shown="no weights",
        help="Weights for steps to which acting and training give unequal probabilities, as with 16 bits.",
        more="The ratio of the training pass's probability to the acting policy's, by step or by episode, truncated "
        "or masked; see `estimators/mismatch.py`. It costs a pass without gradient per update, and the limit on the "
        "gap between both no longer ends the run.",
    )
    mismatch_min: float = setting(
        default=0.0,
        range="[0, 1]",
        help="The smallest weight of `mismatch`: smaller ones are raised to it, or masked.",
    )
    mismatch_max: float | None = setting(
        default=3.0,
        range="[1, inf)",
        help="The largest weight of `mismatch`: larger ones are lowered to it, or masked.",
        more="None for no bound.",
    )
    micro_batch_size: int | None = setting(
        default=None,
        shown="all",
        commands=ALL,
        help="Episodes per pass (PPO for control: steps).",
        more="Does not change the gradient.",
    )
    micro_batch_tokens: int | None = setting(
        default=None,
        shown="all",
        commands=ALL,
        help="Tokens per pass, in the warm start too.",
        more="Prompts are included; for environments without text, steps. Does not change the gradient.",
    )
    skip_idle_rows: bool = setting(
        default=True, help="Skip the training pass of episodes whose advantages are all zero, if no other term of the "
        "loss needs it.", more="Does not change the gradient.",
    )  # fmt: skip

    env_kwargs: Mapping[str, Any] | None = setting(
        default=None, saved=False, help="Keyword arguments of the environment, if `env` is an id."
    )
    policy_kwargs: Mapping[str, Any] | None = setting(
        default=None, saved=False, help="Keyword arguments of the policy."
    )
    episodes_per_update: Given[int | None, int] = setting(
        default=None,
        by_kind={"control": 16, "language-model": 256},
        commands=("train", "compare"),
        help="Episodes per rollout.",
        more="In the formulas: N. By default fewer if `learn` gets few steps.",
    )
    num_envs: Given[int | None, int] = setting(
        default=None,
        by_kind={"control": 16, "language-model": 256},
        range=f"[1, {MOST_SLOTS}]",
        commands=("train", "compare"),
        help="Episodes that run at once (slots of the environment).",
        more="By default at most `episodes_per_update`.",
    )
    group_size: int | None = setting(
        default=None,
        shown="the agent's",
        commands=("train", "compare"),
        help="Episodes that share a prompt.",
        more="Needs an environment with groups.",
    )
    max_failed_share: float = setting(
        default=0.1,
        range="[0, 1]",
        commands=("train",),
        help="Stop when the verifier fails on more than this share of the last hundred episodes.",
        more="With a `VerifierError`; timeouts, errors and rewards that are not finite count.",
    )
    device: Given[str | torch.device, torch.device] = setting(
        default="auto", saved=False, help='"auto", "cpu", "cuda", "cuda:1", ...'
    )
    shard: bool = setting(
        default=False,
        saved=False,
        commands=("train",),
        heading="Every run",
        help="Under torchrun: each process holds a part of the weights, gradients and optimizer state (FSDP2).",
        more="Does not change the gradient; see `fsdp.py`.",
    )
    tensorboard_log: str | None = setting(default=None, saved=False, help="Folder for TensorBoard.")
    verbose: int = setting(default=0, checked=False, saved=False, help="1 prints a table every `log_interval` updates.")

    @override
    def use_settings(self) -> None:
        super().use_settings()
        check_shard(self.shard)
        if self.mismatch is None:
            self.refuse_idle(f"without mismatch ({', '.join(mismatch.MODES)})", "mismatch_min", "mismatch_max")
