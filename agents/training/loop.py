"""The loop that every agent shares: collect, update, log.

The interface of algorithms is in `algorithm.py`, an update in `update.py`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import torch
from gymnasium import Env
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import configure_logger
from stable_baselines3.common.vec_env import VecEnv

from rlenv._checks import check_count
from rlenv._settings import Converted, argument, declared_by

from .. import processes
from ..checks import check_goal
from ..fsdp import release_weights
from ..policies import ControlPolicy, Policy, SavedPolicy, kind_of, make_policy
from ..policies.base import critic_parameters, seeded_weights
from ..rollout import Batch, Rollout
from ..rollouts.collector import Collector
from ..rollouts.envs import (
    LOOP_SETTINGS,
    MissingEnv,
    check_groups,
    closed_on_error,
    env_maker,
    longest_episode,
    resolve_device,
    seed_of,
    takes_tokenizer,
)
from ..rollouts.slot_infos import SlotInfos
from ..settings import default_of
from . import log_entry
from .algorithm import Algorithm
from .callbacks import as_callback
from .extras import check_extras
from .health import FailureWatch, StartWatch
from .kl_anchor import Anchor
from .learned import learned_by, train_too
from .metrics import is_logged, rollout_metrics
from .optimizer import PolicyOptimizer, rate_at, warn_of_float16
from .player import Player, tell_verdicts
from .reward_scale import RewardScale
from .state import COUNTERS, moment_of
from .update import take_steps


class Loop(Algorithm):
    """The training of an algorithm, which `Agent` completes with the methods of stable-baselines3.

    Attributes:
        policy: trained in place.
        anchor: the KL anchor, with the frozen reference or the teacher.
        policy_optimizer: clips and applies gradients.
        reward_scale: of `normalize_rewards`.
        watchers: functions called with every prepared rollout, before its first optimizer step.
        player: of the episodes of an update: the policy, or an engine.
        collector: plays the episodes of `env`.
        make_envs: makes the environment, given `num_envs`.
        origin: the id it was made from, and its arguments.
        generator: for sampling actions, another one in each process.
        shuffle_generator: for the order of mini-batches, which another thread may draw; the same in all processes.
        remaining: the progress that remains, 1 at the start and 0 at the end.
        num_timesteps: steps of the environment so far, including those of surplus episodes, which environments whose
            slots cannot stay finished play until the last episode of a rollout is over.
        trained_timesteps: the steps of these that updates learned from.
        updating: whether an update has begun and not ended, also after an error or Ctrl-C in it; nothing is saved then.
        moment: the state for a checkpoint, from before the rollout that is being collected.
        evaluation_seconds: spent in `evaluate` so far; `time/fps` leaves them out.
        extra_state: a caller's state for checkpoints: plain values and tensors, by name.
    """

    policy: Converted[str | Path | Policy | SavedPolicy | torch.nn.Module, Policy] = argument(kw_only=False)
    env: Converted[str | Env | VectorEnv | VecEnv, VectorEnv] = argument(kw_only=False)
    _is_made = False  # whether the constructor has ended
    remaining = 1.0

    def __post_init__(self) -> None:
        policy: Any = self.policy  # as it was given
        env: Any = self.env
        super().__post_init__()
        self.device = resolve_device(self.device, env)
        self._sizes_itself, group_size = self.episodes_per_update is None, self.group_size
        size = self.default_group_size if group_size is None else group_size
        offers: dict[str, Any] = {"group_size": size, "device": str(self.device), **LOOP_SETTINGS}
        self.make_envs, self.origin = env_maker(env, self.env_kwargs, policy, skip_finished=True, **offers)
        usual = partial(self.usual, policy=policy, for_text=takes_tokenizer(env))
        episodes = self.episodes_per_update or usual("episodes_per_update")
        slots = episodes if self.engine is not None else min(usual("num_envs"), episodes)
        envs = self.make_envs(num_envs=self.num_envs or slots)
        if self.num_envs and not isinstance(env, str) and self.num_envs != envs.num_envs:
            what = f"{env!r} has {envs.num_envs}"
            raise ValueError(f"num_envs={self.num_envs} is for the id of an environment; {what}: leave num_envs out")
        with closed_on_error(envs, env):
            self._use_policy(policy, envs)
            self.use_env(envs, group_size)
            if not isinstance(policy, SavedPolicy):  # `load` finds out first whether the problems have changed
                self.policy.adopt_tokenizer(self.env.metadata)
        self.failure_watch = FailureWatch()
        other_signal = self.needs_teacher or self.reply_coef
        self.start_watch = StartWatch(warns=self.policy.kind == "language-model" and not other_signal)
        self.num_timesteps = self.trained_timesteps = self.num_episodes = self.num_updates = 0
        self.evaluation_seconds = 0.0
        self.seconds = defaultdict[str, float](float)  # spent in the parts of the loop
        self.max_updates: int | None = None  # known if training ends after a number of episodes
        self.last_metrics: dict[str, float] = {}
        self.updating = False
        player = Player if self.engine is None else import_module("rlenv.agents.engines.player").EnginePlayer
        self.player: Player = player(self)
        self.extra_state: dict[str, Any] = {}
        self.unwritten = log_entry.Pending()
        self._log_name: str | None = None  # of the logger that `learn` made
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a setting is checked here, and counts wherever it is read next.

        Raises:
            ValueError: for a value that is not allowed, or a setting that is `fixed`.
        """
        if self._is_made and (one := self._declared.get(name)):
            if one.fixed and value is not getattr(self, name):  # `setup` may set it again
                raise ValueError(
                    f"{name}={value!r} was set after the agent was made with {getattr(self, name)!r}; pass it to the "
                    "constructor or load"
                )
            value = self._kept(name, value)
        super().__setattr__(name, value)

    def _set_fixed(self, **values: Any) -> None:
        """Set settings that are fixed for everybody but the agent itself."""
        for name, value in values.items():
            super().__setattr__(name, self._kept(name, value))

    def _kept(self, name: str, value: Any) -> Any:
        """Return the value of a setting, checked; for None the default for the kind of policy, if there is one."""
        kept = (one := self._declared[name]).check(value)
        return one.check(self.usual(name)) if kept is None and one.by_kind else kept

    def _use_policy(self, spec: Any, envs: VectorEnv) -> None:
        """Make the policy that is trained, and the parts that update it; the settings have been set.

        Raises:
            ValueError: if a critic is needed and the policy has none, or a setting has no default for its kind.
        """
        spaces = envs.single_observation_space, envs.single_action_space
        make = partial(make_policy, spec, *spaces, self.uses_critic, **(self.policy_kwargs or {}))
        with seeded_weights(self.seed):
            if self.shard:
                from ..sharding import deal_out  # slow to import

                self.policy = deal_out(make, self.device)
            else:
                self.policy = make().to(self.device)
        if self.uses_critic and not critic_parameters(self.policy):
            raise ValueError(f"{type(self).__name__} needs a policy with a critic")
        for name, one in declared_by(type(self)).items():
            if one.by_kind:
                setattr(self, name, self._kept(name, getattr(self, name)))
        check_extras(self)
        self.policy_optimizer = PolicyOptimizer(self.policy)
        self.anchor = Anchor(self) if self.lesson is None else self.lesson.begun(self)
        self.reward_scale = RewardScale()
        self.watchers: list[Callable[[Batch], None]] = []
        processes.same_start(self.policy)
        self.generator, self.shuffle_generator = (torch.Generator(self.policy.device) for _ in range(2))
        processes.seed_generators(self.generator, self.shuffle_generator, self.seed)

    def use_env(self, env: VectorEnv, group_size: int | None = None) -> None:
        """Play in this environment from the next rollout on; `group_size` is the user's argument."""
        compares = type(self).__name__ if self.compares_groups else None
        size = check_groups(env, group_size, self.episodes_per_update, compares)
        processes.check_episodes(self.episodes_per_update, size)
        before = {name: vars(self)[name] for name in learned_by(self)}
        try:
            with seeded_weights(self.seed):  # of modules that it makes
                self.setup(env, size)
        except ValueError as error:
            if type(self).setup.__module__.startswith("rlenv."):
                raise
            raise ValueError(f"{type(self).__name__}.setup: {error}") from error  # one line for commands, too
        finally:
            vars(self).update(before)  # what has learned goes on
        train_too(self)
        self.env = env
        self._vec_env: VecEnv | None = None
        self.moment: dict[str, Any] | None = None
        self._set_fixed(group_size=size, num_envs=sum(processes.gather(env.num_envs)))
        self.collector = Collector(env, self.device)
        self.collector.seed(seed_of(env, self.seed))
        self.anchor.meet(env, self.collector)

    def usual(self, name: str, policy: Any = None, for_text: bool = False) -> Any:
        """Return the default of a setting: for the policy's size, else for its kind.

        Args:
            name: of the setting.
            policy: as for the constructor, if it has not been made yet.
            for_text: whether the environment is known to be one of text.
        """
        policy = self.policy if policy is None else policy
        own = policy.defaults.get(name) if isinstance(policy, Policy) else None
        return default_of(name, type(self), kind_of(policy, for_text), ControlPolicy.kind) if own is None else own

    def check_ready(self) -> None:
        """Check that nothing is missing that training needs; `learn` and `updates` do it before anything changes.

        Raises:
            ValueError: naming the missing part, gradients included, or a scheduler that has no effect.
            TypeError: for an agent whose constructor does not call the parent's.
        """
        if not self._is_made:
            raise TypeError(f"the __init__ or __post_init__ of {type(self).__name__} does not call that of super()")
        if isinstance(self.env, MissingEnv):
            self.env.reset()
        if not torch.is_grad_enabled():
            raise ValueError("training needs gradients: call learn or updates outside of no_grad and inference_mode")
        if hasattr(self.policy_optimizer.adam.step, "_wrapped_by_lr_sched"):  # by a scheduler of torch
            raise ValueError(
                "a torch scheduler of the agent's optimizer has no effect, since learning_rate and lr_schedule set the "
                "rate of every step; pass learning_rate=..., a function of the remaining progress (1 to 0)"
            )
        if self.needs_teacher and not self.teaches_itself and self.anchor.reference is None:
            raise ValueError(
                f"{type(self).__name__} has no teacher: pass teacher=... (--teacher), the run folder, checkpoint, "
                "folder or id of a model with the same tokens"
            )

    @property
    def progress(self) -> dict[str, int | None]:
        """How far the training is, for environments that take it: updates so far, and in all if that is known."""
        return {"num_updates": self.num_updates, "max_updates": self.max_updates}

    @property
    def own_episodes(self) -> int:
        """The episodes of an update that this process collects."""
        return processes.check_episodes(self.episodes_per_update, self.group_size)

    @property
    def rate(self) -> float:
        """The learning rate of the coming update."""
        schedule = self.learning_rate, self.lr_schedule, self.warmup_updates
        return rate_at(*schedule, self.remaining, self.num_updates)

    @property
    def actor_waits(self) -> bool:
        """Whether the next update trains the critic alone."""
        return self.num_updates < (self.value_warmup or 0)

    # The log.

    @property
    def logger(self) -> Logger:
        """The logger; an error before `learn` or `set_logger`."""
        if self.unwritten.logger is None:
            raise RuntimeError("no logger yet: call learn() or set_logger() first")
        return self.unwritten.logger

    def set_logger(self, logger: Logger) -> None:
        """Use this logger instead of one configured by `learn`, also for unwritten figures from a checkpoint."""
        self.unwritten.use(logger)
        self._log_name = None

    def _configure_logger(self, name: str | None, anew: bool) -> None:
        """Make the logger, unless one was set; a curve that begins anew, or by another name, gets a new folder."""
        if known := self.unwritten.logger:
            other = anew or name not in (None, self._log_name)
            if self._log_name is None or self.tensorboard_log is None or not other:
                return
            known.close()
        name = name or self._log_name or type(self).__name__
        self.set_logger(configure_logger(self.verbose, self.tensorboard_log, name, anew))
        self._log_name = name

    def dump_logs(self, iteration: int = 0) -> None:
        """Write out the recorded figures: for metrics, the mean over the updates since the last time."""
        log_entry.drop_empty(self.logger, self.failure_watch.totals, self.policy_optimizer.total_skipped)
        shown = ("total_timesteps", "trained_timesteps", "episodes", "iterations")
        for name, counter in zip(shown, COUNTERS, strict=True):
            self.logger.record(f"time/{name}", getattr(self, counter))
        self.logger.dump(self.num_timesteps)

    # The loop.

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        total_episodes: int | None = None,
    ) -> Self:
        """Train for this many steps or episodes; the last rollout is played to its end.

        So a budget of steps is exceeded by less than a rollout: `episodes_per_update` episodes, unless DAPO needs
        several rounds. If that number is left open and the environment says how long an episode may be, the first
        `learn` makes it so small that the longest possible rollout is at most half of `total_timesteps`, or one group:
        one episode for agents with a critic, else two. It then stays as it is.

        Args:
            total_timesteps: steps of the environment (tokens, for text), surplus ones included; see `num_timesteps`.
            callback: of stable-baselines3, a list of them, or a function of (locals, globals); called after every step.
            log_interval: updates between two entries of the log, the first of which is of update 1; see
                `metrics.thinned` for very long runs.
            tb_log_name: name of the TensorBoard run; None for the name of the class, as in "RLOO_1".
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
        off_clock, before = self.evaluation_seconds, self.seconds.copy()
        for _ in run:
            if is_logged(log_interval, self.num_updates):
                seconds = time.perf_counter() - started - (self.evaluation_seconds - off_clock)
                self.logger.record("time/fps", int((self.num_timesteps - steps_before) / max(seconds, 1e-9)))
                for part, spent in self.seconds.items():
                    self.logger.record(f"time/{part}_frac", (spent - before[part]) / max(seconds, 1e-9))
                self.dump_logs()
        return self

    def updates(
        self,
        total_timesteps: int | None = None,
        total_episodes: int | None = None,
        callback: Any = None,
        tb_log_name: str | None = None,
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
        self._sizes_itself = False
        if reset_num_timesteps:
            self.num_timesteps = self.trained_timesteps = self.num_episodes = self.num_updates = 0
        self._configure_logger(tb_log_name, reset_num_timesteps)
        train_too(self)
        self.anchor.freeze_reference(self.policy)
        self.anchor.warn_if_ignored()
        return self._train(counter, goal + getattr(self, counter), as_callback(callback, self, progress_bar))

    def _train(self, counter: str, goal: int, callback: BaseCallback) -> Iterator[tuple[Rollout, dict[str, float]]]:
        """Collect and update until an attribute that counts reaches its goal."""
        left = goal - self.num_episodes if counter == "num_episodes" else None
        self.max_updates = None if left is None else self.num_updates + max(-(-left // self.episodes_per_update), 0)
        self.collector.budget = goal - self.num_timesteps if left is None else 0
        callback.on_training_start({"total_timesteps": goal}, globals())
        try:
            while getattr(self, counter) < goal:
                self.remaining = 1.0 - getattr(self, counter) / goal
                self._check_together()
                self.anchor.check_kept()
                self.moment, self.updating = moment_of(self), False
                counted = getattr(self, counter)
                rollout = self.collect_rollout(callback)
                if rollout is None:
                    break
                if getattr(self, counter) == counted:  # the loop would have no end
                    name = f"{type(self).__name__}.collect_rollout"
                    raise ValueError(f"{name}: {counter} stays {counted}; call super(), or count what it played")
                if getattr(self, counter) < goal:
                    self.player.look_ahead()
                hidden = self.env.metadata.get("hidden_token_ids", ())
                rate = {"train/learning_rate": self.rate}
                self.last_metrics = rollout_metrics(rollout, hidden) | self.player.figures | self.update(rollout) | rate
                self.start_watch.add(self.last_metrics, len(rollout))
                log_entry.record_metrics(self.logger, self.last_metrics)
                yield rollout, self.last_metrics
        except GeneratorExit:  # a loop over `updates` was left early: progress bars end, too
            callback.on_training_end()
            raise
        finally:
            self.player.drop_ahead()
        callback.on_training_end()
        self.failure_watch.conclude()
        self.policy_optimizer.conclude()

    def collect_rollout(self, callback: BaseCallback) -> Rollout | None:
        """Return the episodes of the next update; None if the callback ends the training."""

        def on_step(taken: int, local: dict[str, Any]) -> bool:
            self.num_timesteps += taken
            callback.update_locals({**local, "infos": SlotInfos(local["infos"], local["dones"])})
            return callback.on_step()

        callback.on_rollout_start()
        before = self.num_timesteps
        rollout, taken = self.player.collect(on_step)
        self.num_timesteps = before + taken
        if rollout is None:
            release_weights(self.policy)
            return None
        self.num_episodes += len(rollout)
        tell_verdicts(self.env, rollout)
        ends = processes.gather((self.collector.statuses, self.collector.failure))
        callback.update_locals({"rollout": rollout})
        callback.on_rollout_end()
        counts = [sum(column) for column in zip(*(statuses for statuses, _ in ends), strict=True)]
        reason = next((reason for _, reason in ends if reason), "")
        self.failure_watch.add(counts, reason, self.max_failed_share)
        return rollout

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Take the optimizer steps of a rollout; return its metrics, averaged over the steps."""
        self.updating, began = True, time.perf_counter()
        self.anchor.follow()
        metrics, trained = take_steps(self, rollout)
        self.seconds["training"] += time.perf_counter() - began
        self.num_updates += 1
        self.trained_timesteps += trained
        self.moment, self.updating = None, False
        return {**metrics, **self.figures}

    def _fit_to_budget(self, total_timesteps: int) -> None:
        """Shrink `episodes_per_update` so that the longest rollout is half of a budget, if the user did not set it.

        Groups stay whole, slots that cannot stay finished each get an episode, and a rollout has two episodes to
        compare unless there is a critic.
        """
        longest = longest_episode(self.env)
        if not self._sizes_itself or self.num_episodes or longest is None:
            return
        unit = (self.group_size or 1) * processes.size()
        least = max(1 if self.collector.slots.slots_finish else self.num_envs, 1 if self.uses_critic else 2)
        fitting = max(total_timesteps // 2 // longest // unit, -(-least // unit)) * unit
        if fitting < self.episodes_per_update:
            before, self.episodes_per_update = self.episodes_per_update, fitting
            try:
                self.use_env(self.env)
            except ValueError:
                self.episodes_per_update = before
                self.use_env(self.env)
                raise
