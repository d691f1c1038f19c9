"""The loop that every agent shares (collect, update, log), and stable-baselines3's methods around it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium.spaces import Box
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import configure_logger
from typing_extensions import override

from .. import processes
from ..checkpoints.checkpoint import COUNTERS
from ..checks import check_count, check_goal
from ..fsdp import gather_weights, release_weights
from ..policies import SavedPolicy, make_policy
from ..rollout import Rollout
from ..rollouts.collector import OnStep
from ..rollouts.envs import LOOP_OFFERS, MissingEnv, closed_on_error, env_maker, resolve_device, takes_tokenizer
from ..rollouts.registered import full_id
from ..stateful import Stateful, Table
from . import budget, evaluation, log_entry
from .callbacks import as_callback
from .health import FailureWatch
from .metrics import is_logged, rollout_metrics
from .optimizer import warn_of_float16
from .saving import Resumable
from .stability import StabilityWatch


class Agent(Resumable):
    """A policy-gradient agent with stable-baselines3's methods; `Learner` says what its loss is.

    Args:
        policy: "auto", "MlpPolicy", "tiny", a model folder or id, or a `Policy`; see `policies.make_policy`. A model
            that comes with a tokenizer brings it to an environment that is given by its id.
        env: an id, a gymnasium.Env, a gymnasium VectorEnv or a `VecEnv` of stable-baselines3.

    Attributes:
        num_timesteps: steps of the environment so far, including those of surplus episodes, which environments whose
            slots cannot wait play until the last episode of a rollout is over.
        trained_timesteps: those of them that updates were made from.
        evaluation_seconds: spent in `evaluate` so far; `time/fps` leaves them out.
        extra_state: what a caller wants to have kept in checkpoints: plain values and tensors, by name.

    Raises:
        ValueError: for a hyper-parameter out of range, an unknown policy, environment or device, or groups that do
            not fit the environment, the episodes of an update or the algorithm (see `make_envs.check_groups`).
        TypeError: for an unknown keyword argument, with the closest match and what is allowed.
    """

    default_group_size: ClassVar[int] = 1
    _is_root: ClassVar[bool] = True  # in this class alone: checkpoints are those of algorithms

    def __init__(self, policy: Any, env: str | Any, **settings: Any) -> None:
        self._set_settings(settings)
        asked, group_size = (self.episodes_per_update, self.num_envs), self.group_size
        self.device = resolve_device(self.device, env)
        size = self.default_group_size if group_size is None else group_size
        offers: dict[str, Any] = {"group_size": size, "device": str(self.device), **LOOP_OFFERS}
        self.make_envs, self.origin = env_maker(env, self.env_kwargs, policy, skip_finished=True, **offers)
        sizes = partial(budget.sizes, type(self), for_text=takes_tokenizer(env), asked=asked)
        _, slots = sizes(policy)
        with closed_on_error(env) as noted:
            envs = noted(self.make_envs(num_envs=slots))
            spaces = envs.single_observation_space, envs.single_action_space
            make = partial(make_policy, policy, *spaces, self.uses_critic, **(self.policy_kwargs or {}))
            self._use_policy(lambda: self._placed(make))
            self.episodes_per_update, needed = sizes(self.policy)
            if isinstance(env, str) and needed != slots:  # a text environment without traits turned "auto" into "tiny"
                envs.close()
                envs = noted(self.make_envs(num_envs=needed))
            self.use_env(envs, group_size)
            if not isinstance(policy, SavedPolicy):  # `load` finds out first whether the problems have changed
                self.policy.adopt_tokenizer(self.env.metadata)
        given = {"episodes_per_update": asked[0], "num_envs": asked[1] if isinstance(env, str) else slots}
        self.left_open = {name for name, value in given.items() if value is None}  # until the first `learn`
        self.failure_watch = FailureWatch(self.max_failed_share)
        self.stability_watch = StabilityWatch(discrete=not isinstance(self.env.single_action_space, Box))
        self.num_timesteps = self.num_episodes = 0
        self.evaluation_seconds = 0.0
        self.max_updates: int | None = None  # known if training ends after a number of episodes
        self.last_metrics: dict[str, float] = {}
        self.updating = False
        self.extra_state: dict[str, Any] = {}
        self.unwritten = log_entry.Pending()

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
        """Train for this many steps or episodes; the last rollout is played to its end.

        So a budget of steps is exceeded by less than a rollout: `episodes_per_update` episodes, unless DAPO needs
        several rounds. If that number is left open and the environment says how long an episode may be, the first
        `learn` makes it, and `num_envs` with it, so small that the longest possible rollout is at most half of
        `total_timesteps`, or one group: one episode for agents with a critic, else two. Both then stay as they are.

        Args:
            total_timesteps: steps of the environment (tokens, for text), surplus ones included; see `num_timesteps`.
            callback: of stable-baselines3, a list of them, or a function of (locals, globals); called after every step.
            log_interval: updates between two entries of the log, the first of which is of update 1; see
                `metrics.thinned` for very long runs.
            tb_log_name: name of the TensorBoard run.
            reset_num_timesteps: False continues the count of an earlier call.
            progress_bar: whether to show one (with tqdm and rich).
            total_episodes: episodes to collect, instead of `total_timesteps`.

        Raises:
            ValueError: unless either `total_timesteps` or `total_episodes` is given, a positive whole number.
            DivergedError: if losses or gradients stay non-finite, or acting and training disagree on log-probabilities.
            VerifierError: if the verifier fails on too many episodes, or does not apply to any.
        """
        check_count("log_interval", log_interval)
        run = self.updates(total_timesteps, total_episodes, callback, tb_log_name, reset_num_timesteps, progress_bar)
        started, steps_before = time.perf_counter(), self.num_timesteps
        off_clock = self.evaluation_seconds
        for _ in run:
            if is_logged(log_interval, self.num_updates):
                seconds = time.perf_counter() - started - (self.evaluation_seconds - off_clock)
                self.logger.record("time/fps", int((self.num_timesteps - steps_before) / max(seconds, 1e-9)))
                self.dump_logs()
        return self

    def updates(
        self,
        total_timesteps: int | None = None,
        total_episodes: int | None = None,
        callback: Any = None,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Iterator[tuple[Rollout, dict[str, float]]]:
        """Train, and yield after each update the episodes it was made from and its metrics; `learn` runs through this.

        Metrics are recorded with the logger, whose means `dump_logs` writes out. For arguments and errors, see `learn`.
        """
        self.check_ready()
        counter, goal = check_goal(total_timesteps, total_episodes, progress_bar)
        warn_of_float16(self.policy)
        if total_timesteps is not None:
            self._fit_to_budget(goal)
        self.left_open = set()
        if reset_num_timesteps:
            self.num_timesteps = self.trained_timesteps = self.num_episodes = self.num_updates = 0
        if self.unwritten.logger is None:
            self.set_logger(configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps))
        self.anchor.freeze_reference(self.policy)
        return self._train(counter, goal + getattr(self, counter), as_callback(callback, self, progress_bar))

    def check_ready(self) -> None:
        """Check that nothing is missing that training needs; `learn` and `updates` do it before anything changes.

        Raises:
            ValueError: naming what is missing.
        """
        if isinstance(self.env, MissingEnv):
            self.env.reset()

    def _train(self, counter: str, goal: int, callback: BaseCallback) -> Iterator[tuple[Rollout, dict[str, float]]]:
        """Collect and update until an attribute that counts reaches its goal."""
        left = goal - self.num_episodes if counter == "num_episodes" else None
        self.max_updates = None if left is None else self.num_updates + max(-(-left // self.episodes_per_update), 0)
        self.collector.budget = goal - self.num_timesteps if left is None else 0
        callback.on_training_start({"total_timesteps": goal}, globals())
        while getattr(self, counter) < goal:
            self.policy_optimizer.set_progress(1.0 - getattr(self, counter) / goal, self.num_updates)
            self.before_rollout, self.updating = self._moment(), False
            rollout = self.collect_rollout(callback)
            if rollout is None:
                break
            hidden = self.env.metadata.get("hidden_token_ids", ())
            self.last_metrics = rollout_metrics(rollout, hidden) | self.update(rollout)
            self.stability_watch.add(self.last_metrics, self.policy_optimizer.rate)
            log_entry.record_metrics(
                self.logger, self.last_metrics | {"train/learning_rate": self.policy_optimizer.rate}
            )
            try:
                yield rollout, self.last_metrics
            except GeneratorExit:  # a loop over `updates` was left early: progress bars end, too
                callback.on_training_end()
                raise
        callback.on_training_end()
        self.failure_watch.conclude()

    @property
    def progress(self) -> dict[str, int | None]:
        """How far the training is, for environments that take it: updates so far, and in all if that is known."""
        return {"num_updates": self.num_updates, "max_updates": self.max_updates}

    def collect_rollout(self, callback: BaseCallback) -> Rollout | None:
        """Return the episodes of the next update; None if the callback ends the training."""

        def on_step(taken: int, local: dict[str, Any]) -> bool:
            self.num_timesteps += taken
            callback.update_locals(local)
            return callback.on_step()

        callback.on_rollout_start()
        before = self.num_timesteps
        gather_weights(self.policy)
        collect = partial(
            self.collector.collect,
            self.policy,
            self.own_episodes,
            self.generator,
            on_step=on_step,
            progress=self.progress,
        )
        parts = processes.together(lambda: (processes.on_host(collect()), self.num_timesteps - before))
        self.num_timesteps = before + sum(taken for _, taken in parts)
        rollout = evaluation.whole_of(self.env, [part for part, _ in parts], self.policy, self.device)
        if rollout is not None:
            self.num_episodes += len(rollout)
            evaluation.tell_verdicts(self.env, rollout)
            callback.update_locals({"rollout": rollout})
            callback.on_rollout_end()
            ends = processes.gather((self.collector.statuses, self.collector.failure))
            counts = [sum(column) for column in zip(*(statuses for statuses, _ in ends), strict=True)]
            self.failure_watch.add(counts, next((reason for _, reason in ends if reason), ""))
        else:
            release_weights(self.policy)
        return rollout

    @override
    def update(self, rollout: Rollout) -> dict[str, float]:
        self.updating = True
        metrics = super().update(rollout)
        self.before_rollout, self.updating = None, False
        return metrics

    def dump_logs(self, iteration: int = 0) -> None:
        """Write out what was recorded: of metrics, the mean over the updates since the last time."""
        log_entry.drop_empty(self.logger, self.failure_watch.totals, self.policy_optimizer.total_skipped)
        shown = dict(zip(("total_timesteps", "trained_timesteps", "episodes", "iterations"), COUNTERS, strict=True))
        for name, counter in shown.items():
            self.logger.record(f"time/{name}", getattr(self, counter))
        self.logger.dump(self.num_timesteps)

    def predict(
        self, observation: Any, state: Any = None, episode_start: np.ndarray | None = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Return an action (or a batch of them) and the next state, as stable-baselines3 does: numpy in, numpy out.

        Args:
            observation: one observation or a batch of them.
            state: what the last call returned, None at first.
            episode_start: where a new episode begins [B]; None: everywhere without a state, else nowhere.
            deterministic: whether to take the likeliest action instead of sampling one.
        """
        return evaluation.predict(
            self.policy, self.env, observation, state, episode_start, deterministic, self.generator
        )

    def evaluate(
        self,
        env: Any,
        num_episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        on_step: OnStep | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], Rollout]:
        """Play fresh episodes to their end.

        Args:
            env: as for the constructor. An id makes an environment with at most `num_envs` slots and closes it again.
            num_episodes: how many, fixed before the first step.
            deterministic: whether to take the likeliest action (greedy) instead of sampling.
            seed: of the environment and of the sampling; None continues the environment's own stream.
            on_step: called after every step, as in `Collector.collect`; to end the evaluation, let it raise.
            env_kwargs: for the environment's constructor, if `env` is an id, such as {"split": "test"}. If it is the
                id of the training, the others are those of the training.

        Returns:
            Metrics and the episodes: `episodes`, `mean_reward`, `reward_std` (over episodes), `success_rate` (None if
            the environment does not say), `mean_ep_length`, `deterministic`; if any, `failed` (episodes without a
            verdict), `success_by_level` and `success_known` (the share of episodes that `success_rate` is of, below 1).

        Raises:
            VerifierError: if the verifier failed on all of them.
        """
        started = time.perf_counter()
        same = isinstance(env, str) and full_id(env) == self.origin["env"]
        own = self.origin["env_kwargs"] if same else None
        with evaluation.opened(env, min(num_episodes, self.num_envs), own, env_kwargs, self.device) as envs:
            try:
                return evaluation.evaluate(
                    self.policy, envs, num_episodes, deterministic, seed, self.generator, on_step, self.progress
                )
            finally:
                self.evaluation_seconds += time.perf_counter() - started

    @override
    def parts(self) -> dict[str, Stateful]:
        return super().parts() | {"unwritten": self.unwritten, "extra": Table(self, "extra_state")}

    @override
    def own_parts(self) -> dict[str, Stateful]:
        watches: dict[str, Stateful] = {"failures": self.failure_watch, "stability": self.stability_watch}
        return super().own_parts() | watches | {"metrics": Table(self, "last_metrics")}
