"""The loop every agent shares: collect, update, log.

An algorithm is three answers (`advantages`, `surrogate`, `weights`); `learner.py` makes the gradient from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import configure_logger

from .anchor import Anchor
from .callbacks import as_callback
from .checks import check_count, check_flag, check_number, check_optional_count
from .collector import Collector
from .descent import Descent, warn_of_half_precision
from .envs import LOOP_OFFERS, make_envs, resolve_device, shown_id, single_spaces
from .failures import FailureWatch
from .learner import Learner
from .metrics import rollout_metrics
from .policies import Policy, make_policy
from .rollout import Rollout
from .stability import StabilityWatch
from .surface import Surface

SAVED = (  # settings that a checkpoint keeps as they are
    "lr_schedule", "episodes_per_update", "group_size", "gamma", "max_grad_norm", "ent_coef", "vf_coef",
    "micro_batch_size", "micro_batch_tokens", "skip_idle_rows", "max_failed_share", "seed",
)  # fmt: skip


class Agent(Learner, Surface):
    """A policy-gradient agent with stable-baselines3's surface; `learner.Learner` says what its loss is.

    Args:
        policy: "auto", "MlpPolicy", "tiny", a model folder or id, or a `Policy`; see `policies.make_policy`.
        env: an id, a gymnasium.Env, a gymnasium VectorEnv or a `VecEnv` of stable-baselines3.
        env_kwargs: for the environment's constructor, where an id is given.
        policy_kwargs: for the policy's constructor.
        learning_rate: of Adam; a number or a function of the remaining progress (1 to 0). None: the policy's default.
        lr_schedule: what becomes of a number: "linear" (falls to 0 over `learn`) or "constant".
        episodes_per_update: N, finished episodes a rollout. None: the policy's default.
        num_envs: B, slots of the environment. None: the policy's default, at most N.
        group_size: K, episodes that share a prompt, for environments that know groups. None: the algorithm's default.
        gamma: discount γ, 0 to 1. None: the policy's default.
        max_grad_norm: the policy's and the critic's gradient are each clipped to this norm.
        ent_coef: c_H, at least 0.
        vf_coef: c_V, at least 0; without effect where there is no critic.
        kl_coef: β of the KL anchor, at least 0; see `anchor.Anchor`.
        kl_estimator: "k1", "k2", "k3" or "exact".
        kl_in: "reward" or "loss".
        micro_batch_size: rows a pass of the policy, the critic or the reference; None for all. Does not change the
            gradient.
        micro_batch_tokens: the same in tokens, prompts included (steps, where there is no text).
        max_failed_share: training stops with a `VerifierError` once the verifier failed (timeouts and errors) on more
            than this share of the last hundred episodes or more. Rewards that are not finite count as errors.
        skip_idle_rows: leave out the training pass of episodes whose advantages are all zero, where nothing else in the
            loss would need it. Does not change the gradient.
        seed: of the policy's initial weights, the environment and the sampling of actions.
        device: "auto", "cpu", "cuda", ...
        tensorboard_log: folder for TensorBoard, None for no log.
        verbose: 1 prints a table every `log_interval` updates.

    Raises:
        ValueError: for a hyper-parameter out of range, an unknown policy, environment or device, a group size that
            does not divide the episodes of an update, groups above 1 that do not span the slots of the environment
            (as in gymnasium's SyncVectorEnv; metadata `groups_span_slots`), or groups of one where the algorithm
            compares within groups.
    """

    default_group_size: ClassVar[int] = 1
    compares_groups: bool = False  # whether an episode is compared with the others of its prompt
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by policy kind, over the policy's own

    def __init__(
        self,
        policy: Any,
        env: str | Any,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        learning_rate: float | Callable[[float], float] | None = None,
        lr_schedule: str = "linear",
        episodes_per_update: int | None = None,
        num_envs: int | None = None,
        group_size: int | None = None,
        gamma: float | None = None,
        max_grad_norm: float = 1.0,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        kl_coef: float = 0.0,
        kl_estimator: str = "k1",
        kl_in: str = "reward",
        micro_batch_size: int | None = None,
        micro_batch_tokens: int | None = None,
        max_failed_share: float = 0.1,
        skip_idle_rows: bool = True,
        seed: int = 0,
        device: str | torch.device = "auto",
        tensorboard_log: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_grad_norm = max_grad_norm
        self.ent_coef = check_number("ent_coef", ent_coef, low=0.0)
        self.vf_coef = check_number("vf_coef", vf_coef, low=0.0)
        self.anchor = Anchor(kl_coef, kl_estimator, kl_in)
        self.micro_batch_size = check_optional_count("micro_batch_size", micro_batch_size)
        self.micro_batch_tokens = check_optional_count("micro_batch_tokens", micro_batch_tokens)
        self.skip_idle_rows = check_flag("skip_idle_rows", skip_idle_rows)
        self.max_failed_share = check_number("max_failed_share", max_failed_share, low=0.0, high=1.0)
        self.seed = check_count("seed", seed, low=0)
        self.tensorboard_log, self.verbose = tensorboard_log, verbose
        spaces = single_spaces(env, env_kwargs)
        self.device = resolve_device(device, env)
        self.policy = self._make_policy(policy, spaces, policy_kwargs)

        self.gamma = check_number("gamma", self.chosen("gamma", gamma), low=0.0, high=1.0)
        self.learning_rate = self.chosen("learning_rate", learning_rate)
        self.lr_schedule = lr_schedule
        self.descent = Descent(self.policy, self.learning_rate, lr_schedule, max_grad_norm)
        self.episodes_per_update = check_count(
            "episodes_per_update", self.chosen("episodes_per_update", episodes_per_update)
        )
        if num_envs is None:
            num_envs = min(self.chosen("num_envs", None), self.episodes_per_update)
        slots = check_count("num_envs", num_envs)
        offered = check_count("group_size", self.default_group_size if group_size is None else group_size)
        self.env: VectorEnv = make_envs(
            env, slots, env_kwargs, skip_finished=True, device=str(self.device), group_size=offered, **LOOP_OFFERS
        )
        self.group_size: int | None = self.env.metadata.get("group_size")  # None: the environment knows no groups
        self._check_groups(group_size)

        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.collector = Collector(self.env, self.device)
        self.collector.seed(self.seed)
        self.watch = FailureWatch(self.max_failed_share)
        self.stability = StabilityWatch(discrete=not isinstance(self.env.single_action_space, Box))
        self.num_timesteps = self.trained_timesteps = self.num_episodes = self.num_updates = 0
        self.last_metrics: dict[str, float] = {}
        self.settings: dict[str, Any] = {name: getattr(self, name) for name in SAVED} | {
            "learning_rate": None if callable(self.learning_rate) else self.learning_rate,
            "num_envs": self.env.num_envs,
            **self.anchor.settings,
        }
        self.origin: dict[str, Any] = {
            "env": env if isinstance(env, str) else None,
            "env_kwargs": dict(env_kwargs or {}) if isinstance(env, str) else None,
        }

    # Learning.

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        total_episodes: int | None = None,
    ) -> Self:
        """Train for this many steps or episodes; the last rollout may go beyond.

        Args:
            total_timesteps: steps of the environment (tokens, for text), surplus ones included; see `num_timesteps`.
            callback: a callback of stable-baselines3, a list of them, or a function of (locals, globals); called
                after every step of the environment.
            log_interval: updates between two entries of the log.
            tb_log_name: name of the TensorBoard run.
            reset_num_timesteps: False continues the count of an earlier call.
            progress_bar: whether to show one (with tqdm and rich).
            total_episodes: episodes to collect, instead of `total_timesteps`.

        Raises:
            ValueError: if `log_interval` or the one of `total_timesteps` and `total_episodes` that has to be given is
                no positive whole number.
            RuntimeError: if gradients stay non-finite, or acting and training disagree on log-probabilities.
            VerifierError: if the verifier fails on too many episodes, or does not apply to any.
        """
        check_count("log_interval", log_interval)
        if (total_timesteps is None) == (total_episodes is None):
            raise ValueError("learn() takes either total_timesteps or total_episodes")
        counter = "num_timesteps" if total_episodes is None else "num_episodes"
        if total_episodes is None:
            goal = check_count("total_timesteps", total_timesteps)
        else:
            goal = check_count("total_episodes", total_episodes)
            if progress_bar:
                raise ValueError("the progress bar counts steps: pass total_timesteps")
        warn_of_half_precision(self.policy)
        if reset_num_timesteps:
            self.num_timesteps = self.trained_timesteps = self.num_episodes = self.num_updates = 0
        goal += getattr(self, counter)
        if self._logger is None:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        self.anchor.hold(self.policy)
        listener = as_callback(callback, self, progress_bar)
        listener.on_training_start({"total_timesteps": goal}, globals())
        started, steps_before = time.perf_counter(), self.num_timesteps
        while getattr(self, counter) < goal:
            self.descent.set_progress(1.0 - getattr(self, counter) / goal)
            rollout = self.gather(listener)
            if rollout is None:
                break
            self.last_metrics = rollout_metrics(rollout) | self.update(rollout)
            self.stability.add(self.last_metrics, self.descent.rate)
            for name, figure in self.last_metrics.items():
                self.logger.record(name, figure)
            self.logger.record("train/learning_rate", self.descent.rate)
            if self.num_updates % log_interval == 0:
                speed = (self.num_timesteps - steps_before) / max(time.perf_counter() - started, 1e-9)
                self._dump_logs(speed)
        listener.on_training_end()
        self.watch.conclude()
        return self

    def gather(self, listener: BaseCallback) -> Rollout | None:
        """Return the episodes of the next update; None where the callback ends the training."""

        def on_step(taken: int, local: dict[str, Any]) -> bool:
            self.num_timesteps += taken
            listener.update_locals(local)
            return listener.on_step()

        listener.on_rollout_start()
        rollout = self.collector.collect(self.policy, self.episodes_per_update, self.generator, on_step=on_step)
        if rollout is not None:
            self.num_episodes += len(rollout)
            listener.update_locals({"rollout": rollout})
            listener.on_rollout_end()
            self.watch.add(rollout, self.collector.failure)
        return rollout

    def state_dict(self) -> dict[str, Any]:
        """Return what an algorithm remembers between updates besides the policy; none here."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    # Small parts.

    def _dump_logs(self, speed: float) -> None:
        self.logger.record("time/fps", int(speed))
        self.logger.record("time/iterations", self.num_updates)
        self.logger.record("time/episodes", self.num_episodes)
        self.logger.record("time/total_timesteps", self.num_timesteps)
        self.logger.record("time/trained_timesteps", self.trained_timesteps)
        self.logger.dump(self.num_timesteps)

    def _make_policy(self, spec: Any, spaces: tuple[Any, Any], kwargs: Mapping[str, Any] | None) -> Policy:
        # Initial weights come from the seed, and the global state is left alone.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            policy = make_policy(spec, *spaces, self.uses_critic, **(kwargs or {})).to(self.device)
        if self.uses_critic and not policy.critic_parameters():
            raise ValueError(f"{type(self).__name__} needs a policy with a critic")
        return policy

    def chosen(self, name: str, given: Any) -> Any:
        """Return a setting: what was given, else the algorithm's default for this kind of policy, else the policy's."""
        if given is not None:
            return given
        return {**self.policy.defaults, **self.defaults.get(self.policy.kind, {})}.get(name)

    def _check_groups(self, asked: int | None) -> None:
        if asked is not None and self.group_size != asked:
            has = "knows no groups" if self.group_size is None else f"has group_size {self.group_size}"
            raise ValueError(f"group_size {asked} is not to be had: the environment {has}")
        if (self.group_size or 1) > 1 and not self.env.metadata.get("groups_span_slots"):
            raise ValueError(
                f"group_size={self.group_size} needs slots that share their groups, but here each slot has its own; "
                f"use gym.make_vec({shown_id(self.env)}, num_envs=..., group_size={self.group_size}), or the id as env"
            )
        if self.episodes_per_update % (self.group_size or 1):
            raise ValueError(
                f"group_size {self.group_size} does not divide the {self.episodes_per_update} episodes of an update"
            )
        if self.compares_groups and (self.group_size or self.episodes_per_update) == 1:
            name = "episodes_per_update" if self.group_size is None else "group_size"
            raise ValueError(f"{type(self).__name__} compares episodes of a group, so {name} must be at least 2, got 1")

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam over the policy's parameters."""
        return self.descent.optimizer
