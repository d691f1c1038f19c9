"""The keyword arguments of the agents: their types, their full signature, and what is said about an unknown one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypedDict, TypeVar

import torch

from . import sb3_names, trl_names

T = TypeVar("T")


class LearnerSettings(TypedDict, total=False):
    """Keyword arguments that say how every agent learns; see `AgentSettings`."""

    learning_rate: float | Callable[[float], float] | None
    lr_schedule: str
    warmup_updates: int
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_eps: float
    gamma: float | None
    normalize_rewards: bool
    max_grad_norm: float
    ent_coef: float
    vf_coef: float
    kl_coef: float
    kl_estimator: str
    kl_in: str
    micro_batch_size: int | None
    micro_batch_tokens: int | None
    skip_idle_rows: bool


class AgentSettings(LearnerSettings, total=False):
    """Keyword arguments of every agent; the constructors of `Agent` and `Learner` have the defaults.

    Attributes:
        env_kwargs: for the environment's constructor, if `env` is an id.
        policy_kwargs: for the policy's constructor.
        learning_rate: of Adam; a number or a function of the remaining progress (1 to 0).
        lr_schedule: "linear" or "cosine" (a number falls to 0 over `learn`), or "constant".
        warmup_updates: updates in which the learning rate rises linearly from 0 to its schedule.
        weight_decay: AdamW's; norms and biases are spared.
        adam_beta1: decay of Adam's mean of the gradient.
        adam_beta2: decay of Adam's mean of its square.
        adam_eps: added to the root of that mean.
        episodes_per_update: N, finished episodes per rollout; by default fewer if `learn` gets few steps.
        num_envs: B, slots of the environment; by default at most N.
        group_size: K, episodes that share a prompt, for environments with groups. None: the algorithm's default.
        gamma: discount γ, 0 to 1.
        normalize_rewards: divide rewards by the running standard deviation of the discounted return, in updates only;
            see `reward_scale.py`.
        max_grad_norm: the policy's and the critic's gradient are each clipped to this norm.
        ent_coef: c_H, weight of the entropy, at least 0.
        vf_coef: c_V, weight of the critic's loss, at least 0; no effect without a critic.
        kl_coef: β of the KL anchor, at least 0; see `kl_anchor.Anchor`.
        kl_estimator: "k1", "k2", "k3" or "exact".
        kl_in: "reward" or "loss".
        micro_batch_size: rows per pass of the policy, the critic or the reference: episodes, or steps in PPO's
            mini-batches for control. None for all. Does not change the gradient.
        micro_batch_tokens: the same in tokens, prompts included (in steps, for environments without text).
        max_failed_share: training stops with a `VerifierError` once the verifier failed (timeouts and errors) on more
            than this share of the last hundred episodes or more. Rewards that are not finite count as errors.
        skip_idle_rows: skip the training pass of episodes whose advantages are all zero, if no other term of the loss
            needs it. Does not change the gradient.
        seed: of the policy's initial weights, the environment and the sampling of actions.
        device: "auto", "cpu", "cuda", ...
        shard: of several processes, each holds a part of the weights, gradients and optimizer state of a language
            model (FSDP2); see `policies/language/sharded.py`. Does not change the gradient.
        sharded_checkpoints: with `shard`, each process writes its part of a checkpoint; otherwise, the main process
            puts weights and optimizer state together in its memory. Both load on any number of processes.
        tensorboard_log: folder for TensorBoard, None for no log.
        verbose: 1 prints a table every `log_interval` updates.

    None stands for a default that depends on the kind of policy (`defaults.py`), unless said otherwise.
    """

    env_kwargs: Mapping[str, Any] | None
    policy_kwargs: Mapping[str, Any] | None
    episodes_per_update: int | None
    num_envs: int | None
    group_size: int | None
    max_failed_share: float
    seed: int
    device: str | torch.device
    shard: bool
    sharded_checkpoints: bool
    tensorboard_log: str | None
    verbose: int


# Where and how an agent runs, not how it learns: checkpoints leave these to whoever loads them.
NOT_SAVED = ("env_kwargs", "policy_kwargs", "device", "shard", "sharded_checkpoints", "tensorboard_log", "verbose")


def full_signature(cls: type) -> inspect.Signature:
    """Return the signature of a class's constructor, with the keyword arguments that it passes on to its parents."""
    parameters: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        _, *own = inspect.signature(vars(base)["__init__"]).parameters.values()
        open_ended = [p for p in own if p.kind is p.VAR_KEYWORD]
        parameters = parameters | {p.name: p for p in own if p not in open_ended and p.name not in parameters}
        if not open_ended:
            break
    return inspect.Signature(sorted(parameters.values(), key=lambda p: p.kind))


def check_names(cls: type, given: Iterable[str]) -> None:
    """Check that a class takes keyword arguments of these names.

    Raises:
        TypeError: with the unknown name, the closest match and what is allowed, in one line.
    """
    allowed = list(inspect.signature(cls).parameters)
    for name in given:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            said = trl_names.hint(name) or sb3_names.hint(name) or (f"did you mean {close[0]!r}?" if close else "")
            hint = f"{said}{'' if said.endswith('?') else ';'} " if said else ""
            raise TypeError(f"{cls.__name__} has no setting {name!r}; {hint}allowed: {', '.join(allowed)}")


def saved_settings(agent: Any) -> dict[str, Any]:
    """Return the settings that a checkpoint keeps: the attributes named like an argument of one of the constructors.

    Functions, such as a learning rate, are left out; see `functions_of`.
    """
    return {name: _plain(value) for name, value in _kept(agent).items() if not callable(value)}


def functions_of(agent: Any) -> list[str]:
    """Return the settings that are functions, one of those that are the same."""
    functions = {id(value): name for name, value in reversed(_kept(agent).items()) if callable(value)}
    return sorted(functions.values())


def _kept(agent: Any) -> dict[str, Any]:
    names = {name: None for cls in type(agent).__mro__ for name in _arguments(cls) if name not in NOT_SAVED}
    return {name: getattr(agent, name) for name in names if hasattr(agent, name)}


def _arguments(cls: type) -> list[str]:
    """Return the arguments of a class's own constructor that have a default."""
    init = vars(cls).get("__init__")
    parameters = inspect.signature(init).parameters.values() if inspect.isfunction(init) else ()
    return [p.name for p in parameters if p.default is not p.empty]


def _plain(value: Any) -> Any:
    """Return a number of any library as Python's own, which JSON can hold; everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def class_named(name: str | None, *roots: type[T]) -> type[T] | None:
    """Return the class that defines this `name`, among classes and their subclasses, the newest first."""
    for root in roots:
        if name is not None and vars(root).get("name") == name:
            return root
        found = class_named(name, *reversed(root.__subclasses__()))
        if found is not None:
            return found
    return None
