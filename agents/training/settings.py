"""The settings of every agent: how it learns, from which episodes, and where it runs.

They do not import torch: the options of commands are made from them. Names of functions are the keys of the tables
in `estimators/` and `optimizer.py`; a test compares them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar

from rlenv._settings import Converted, OrDefault, WithSettings, check_names, setting

from ..checks import LARGEST_SEED, MOST_SLOTS, Scheduled
from ..settings import kept_of

if TYPE_CHECKING:
    import torch

TRAIN, BOTH, ALL = ("train",), ("train", "compare"), ("train", "compare", "sft")  # commands with the option
MISMATCHES = ("token-truncate", "token-mask", "sequence-truncate", "sequence-mask")


P = ParamSpec("P")
A = TypeVar("A")


@dataclass
class AgentConfig:
    """An agent that is made later: its class, and its settings, which are checked here.

    Raises:
        TypeError: for a setting that the agent does not have, with the closest match.
        ValueError: for a value that is not allowed.
    """

    agent: type[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.agent.__name__, self.settings, [*signature_of_config(self.agent).parameters])
        checked = object.__new__(self.agent)  # its class has the defaults
        vars(checked).update(self.settings)
        AgentSettings.__post_init__(checked)
        self.settings = {name: getattr(checked, name, value) for name, value in self.settings.items()}


def signature_of_config(cls: type[Any]) -> inspect.Signature:
    """Return the arguments of an agent's class but the policy and the environment."""
    parameters = inspect.signature(cls).parameters
    return inspect.Signature([parameters[name] for name in parameters if name not in ("policy", "env")])


class ConfigOf:
    """`GRPO.config`: a function of the class's settings, which returns them checked."""

    if sys.platform == "jedi":  # which knows no ParamSpec, but partials: it alone reads this branch, others skip it

        def __get__(self, agent, cls):
            return partial(cls, None, None)

    else:

        def __get__(self, agent: Any, cls: Callable[Concatenate[Any, Any, P], A]) -> Callable[P, AgentConfig]:
            """Return it for a class."""

            def config(*_: P.args, **settings: P.kwargs) -> AgentConfig:
                return AgentConfig(cls, settings)  # type: ignore[arg-type]

            name = getattr(cls, "__name__", cls)
            config.__doc__ = f"Return the settings of {name}, checked, for TrainConfig(agent=...)."
            config.__signature__ = signature_of_config(cls)  # type: ignore[attr-defined, arg-type]
            return config


class AgentSettings(WithSettings):
    """The settings of every agent.

    Attributes:
        config: a function of these settings that returns an `AgentConfig`, as in TrainConfig(agent=GRPO.config(...)).
    """

    config = ConfigOf()

    _places: ClassVar[dict[str, str]] = {}  # of the agents, by name, as module:Class; `load` imports the one it needs

    seed: int = setting(
        fixed=True, default=0, help="Seed of initial weights, environment and sampling.", low=0, high=LARGEST_SEED
    )
    learning_rate: OrDefault[Scheduled] = setting(
        default=None,
        help="Learning rate of Adam.",
        by_kind={"control": 5e-3, "language-model": 3e-4},
        above=0,
        starts=False,
        commands=BOTH,
        shown="text: 3e-4 for tiny, others by size, at least 10 times as much for adapters; control: 5e-3, most agents",
        more="A number, or a function of the remaining progress (1 to 0).",
    )
    lr_schedule: Literal["linear", "cosine", "constant"] = setting(
        default="linear", help="How the learning rate changes; linear and cosine end at zero.", commands=TRAIN
    )
    warmup_updates: OrDefault[int] = setting(
        default=None,
        help="Updates in which the learning rate rises from zero.",
        by_kind={"control": 0, "language-model": 10},
        low=0,
        commands=BOTH,
        shown="text: 10, 0 above 100 million parameters; control: 0",
        more="Adam's first steps have the full length, whatever the noise, and would undo a part of a warm start.",
    )
    weight_decay: float = setting(
        default=0.0, help="Weight decay of AdamW, not for norms and biases.", low=0, commands=TRAIN
    )
    # Policy gradients are noisy and change fast, so Adam remembers their scale for 20 steps.
    adam_beta1: float = setting(
        default=0.9, help="Decay of Adam's mean of the gradient.", low=0, below=1, commands=TRAIN
    )
    adam_beta2: float = setting(
        default=0.95, help="Decay of Adam's mean of the squared gradient.", low=0, below=1, commands=TRAIN
    )
    adam_eps: float = setting(
        default=1e-5, help="Added to the root of Adam's mean of the squared gradient.", above=0, commands=TRAIN
    )
    gamma: OrDefault[float] = setting(
        default=None,
        help="Discount per step.",
        by_kind={"control": 0.99, "language-model": 1.0},
        low=0,
        high=1,
        commands=TRAIN,
    )
    normalize_rewards: bool = setting(
        default=False,
        help="Train on rewards divided by the running standard deviation of the return.",
        commands=TRAIN,
        more="See `reward_scale.py`.",
    )
    max_grad_norm: float = setting(
        default=1.0,
        help="Gradients are clipped to this norm.",
        above=0,
        commands=TRAIN,
        more="That of the policy and that of the critic separately.",
    )
    ent_coef: float = setting(
        default=0.0, help="Weight of the entropy bonus.", low=0, commands=TRAIN, more="In the loss: c_H."
    )
    vf_coef: float = setting(
        default=0.5,
        help="Weight of the critic's loss, for agents with a critic.",
        low=0,
        commands=TRAIN,
        more="In the loss: c_V. The critic has the learning rate of the policy.",
    )
    kl_coef: float = setting(
        default=0.0,
        help="KL anchor to the policy that training starts from.",
        low=0,
        commands=BOTH,
        more="In the formulas: β; see `kl_anchor.Anchor`.",
    )
    kl_estimator: Literal["k1", "k2", "k3", "exact"] = setting(
        default="k1",
        help="How the KL is estimated.",
        commands=TRAIN,
        more="k1 has no expected gradient in the loss.",
    )
    kl_in: Literal["reward", "loss"] = setting(
        default="reward", help="What the KL penalty is added to.", commands=TRAIN
    )
    kl_ratio: Literal["none", "constant", "differentiated"] = setting(
        default="none",
        help="What multiplies a KL penalty in the loss, whose actions are the sampling policy's in later passes.",
        commands=TRAIN,
        more="The ratio π/π_old of the step, as a constant (1 in a first pass) or differentiated; the tables in "
        "`estimators/kl.py` say what each does to the gradient.",
    )
    reply_coef: float = setting(
        default=0.0,
        help="Weight of the cross-entropy of replies, which the policy learns to predict (text with dialogues, tools).",
        low=0,
        commands=TRAIN,
        more="ECHO (arXiv:2605.24517): λ times the mean over the tokens that the environment appends, which are never "
        "actions. It is not a policy gradient: rewards do not count.",
    )
    mismatch: Literal["token-truncate", "token-mask", "sequence-truncate", "sequence-mask", "none"] | None = setting(
        default=None,
        help="Weights for steps to which acting and training give unequal probabilities, as with 16 bits.",
        commands=TRAIN,
        shown="no weights; with an engine token-truncate",
        more="The ratio of the training pass's probability to the acting policy's, by step or by episode, truncated "
        "or masked; see `estimators/mismatch.py`. It costs a pass without gradient per update, and the limit on the "
        "gap between both no longer ends the run.",
    )
    mismatch_min: float = setting(
        default=0.0, help="The smallest weight of `mismatch`: smaller ones are raised to it, or masked.", low=0, high=1
    )
    mismatch_max: float | None = setting(
        default=3.0,
        help="The largest weight of `mismatch`: larger ones are lowered to it, or masked.",
        low=1,
        more="None for no bound.",
    )
    scale_by_ess: bool = setting(
        default=False,
        help="Shorten a step if few episodes outweigh the others: multiply its rate by the root of `train/ess`.",
        commands=TRAIN,
        more="The effective sample size of the importance weights of whole episodes, without bounds, by their number "
        "(VCPO, arXiv:2602.17616). It is 1 while the policy is the one that acted.",
    )
    micro_batch_size: int | None = setting(
        default=None,
        help="Episodes per pass (PPO for control: steps).",
        commands=ALL,
        shown="all",
        more="Does not change the gradient.",
    )
    micro_batch_tokens: int | None = setting(
        default=None,
        help="Tokens per pass, in the warm start too.",
        commands=ALL,
        shown="all; large models: what fits, rlenv sft on a CPU at most 2048",
        more="Prompts are included; for environments without text, steps. Does not change the gradient.",
    )
    skip_idle_rows: bool = setting(
        default=True,
        help="Skip the training pass of episodes whose advantages are all zero, if no other term of the loss needs it.",
        more="Does not change the gradient: a surrogate of your own is skipped only if its class says that it may be "
        "(`advantages_stay`).",
    )
    env_kwargs: Mapping[str, Any] | None = setting(
        fixed=True, default=None, help="Keyword arguments of the environment, if `env` is an id.", saved=False
    )
    policy_kwargs: Mapping[str, Any] | None = setting(
        fixed=True, default=None, help="Keyword arguments of the policy.", saved=False
    )
    episodes_per_update: OrDefault[int] = setting(
        default=None,
        help="Episodes per rollout.",
        by_kind={"control": 16, "language-model": 256},
        commands=BOTH,
        more="In the formulas: N. By default fewer if `learn` gets few steps.",
    )
    num_envs: OrDefault[int] = setting(
        fixed=True,
        default=None,
        help="Episodes that run at once (slots of the environment).",
        by_kind={"control": 16, "language-model": 256},
        low=1,
        high=MOST_SLOTS,
        commands=BOTH,
        more="By default at most `episodes_per_update`.",
    )
    group_size: int | None = setting(
        fixed=True,
        default=None,
        help="Episodes that share a prompt.",
        commands=BOTH,
        shown="the agent's",
        more="Needs an environment with groups.",
    )
    max_failed_share: float = setting(
        default=0.1,
        help="Stop when the verifier fails on more than this share of the last hundred episodes.",
        low=0,
        high=1,
        commands=TRAIN,
        more="With a `VerifierError`; timeouts, errors and rewards that are not finite count.",
    )
    device: Converted[str | torch.device, torch.device] = setting(
        fixed=True, default="auto", help='"auto", "cpu", "cuda", "cuda:1", ...', saved=False
    )
    shard: bool = setting(
        fixed=True,
        default=False,
        help="Under torchrun: each process holds a part of the weights, gradients and optimizer state (FSDP2).",
        saved=False,
        commands=TRAIN,
        heading="Every run",
        more="Does not change the gradient; see `sharding.py`.",
    )
    engine: Any = setting(
        fixed=True,
        default=None,
        help="What writes the episodes: vllm.",
        saved=False,
        commands=TRAIN,
        heading="Engine (text)",
        shown="our own decoder",
        more="Or an `rlenv.agents.engines.base.Engine`; see docs/scaling.md.",
    )
    engine_url: str | None = setting(
        fixed=True,
        default=None,
        help="Address of an engine that runs already, as http://localhost:8000.",
        saved=False,
        commands=TRAIN,
        heading="Engine (text)",
        shown="starts one in this process",
    )
    engine_kwargs: Mapping[str, Any] | None = setting(
        fixed=True, default=None, help="Keyword arguments of the engine.", saved=False
    )
    staleness: int = setting(
        fixed=True,
        default=0,
        help="Updates that a rollout may be behind: with 1, an engine writes the next while this one is trained on.",
        low=0,
        high=1,
        saved=False,
        commands=TRAIN,
        heading="Engine (text)",
    )
    tensorboard_log: str | None = setting(default=None, help="Folder for TensorBoard.", saved=False)
    verbose: int = setting(default=0, help="1 prints a table every `log_interval` updates.", low=0, saved=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a checkpoint keeps, without functions such as a learning rate, whose names it has."""
        return {name: value for name, value in kept_of(self).items() if not callable(value)}

    @property
    def mismatch_mode(self) -> str | None:
        """The mode of `mismatch`; by default "token-truncate" with an engine, whose kernels differ, else None."""
        usual = None if self.engine is None else "token-truncate"
        return usual if self.mismatch is None else None if self.mismatch == "none" else self.mismatch

    def _check_together(self) -> None:
        """Check an engine, a mismatch and a shard, and refuse settings that have no effect."""
        if self.shard:
            import_module("rlenv.agents.sharding").check_processes()  # it imports torch
        if self.engine is None:
            self.refuse_idle("without engine", "engine_url", "engine_kwargs", "staleness")
        else:
            import_module("rlenv.agents.engines.player").check_engine(self)
        if self.mismatch_mode is None:
            self.refuse_idle(f"without mismatch ({', '.join(MISMATCHES)})", "mismatch_min", "mismatch_max")
        for where, names in self.idle_settings.items():
            self.refuse_idle(where, *names)
