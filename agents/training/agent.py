"""The loop that every agent shares: collect, update, log. What an update is stands in `update.py`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import configure_logger

from .. import processes
from ..checks import check_count, check_goal
from ..estimators import losses
from ..estimators.returns import return_to_go
from ..fsdp import deal_out, release_weights
from ..policies import SavedPolicy, make_policy
from ..policies.base import critic_parameters
from ..rollout import Batch, Rollout
from ..rollouts.envs import LOOP_SETTINGS, closed_on_error, env_maker, longest_episode, resolve_device, takes_tokenizer
from ..settings import declared_by
from ..stateful import DictState, Stateful
from . import evaluation, log_entry, saving
from .generators import Generators, GeneratorState
from .health import FailureWatch, StabilityWatch
from .kl_anchor import Anchor
from .metrics import Reduce, is_logged, rollout_metrics
from .optimizer import PolicyOptimizer, warn_of_float16
from .player import Player
from .sb3_face import Sb3Face, as_callback
from .start import StartWatch
from .update import Figures, Update

SHARE = 1 / 2  # of a budget of steps: what the longest episodes of a rollout may take


def _advantages_stay(cls: type) -> bool:
    """Return the claim of the class body with the surrogate; False if one of its children denies it."""
    for base in cls.__mro__:
        body = vars(base)
        if "surrogate" in body or "loss" in body:
            return bool(body.get("advantages_stay", False))
        if not body.get("advantages_stay", True):
            return False
    return False


class Agent(Sb3Face):
    """A policy-gradient agent. An algorithm says what its advantages, surrogate and weights are; see `Update`.

    Args:
        policy: "auto", "MlpPolicy", "tiny", a model folder or id, or a `Policy`; see `policies.make_policy`. A model
            that comes with a tokenizer brings it to an environment that is given by its id.
        env: an id, a gymnasium.Env, a gymnasium VectorEnv or a `VecEnv` of stable-baselines3.

    Attributes:
        name: under which checkpoints and commands know this class; empty for a class of your own.
        default_group_size: episodes that share a prompt, unless the user says.
        compares_groups: whether an episode is compared with the others of its prompt.
        uses_critic: whether the policy needs a critic.
        uses_score_norms: whether `advantages` reads `Rollout.score_norms`; one more pass without gradient, if so.
        needs_teacher: whether there is a policy to learn from, besides the environment.
        teaches_itself: whether it is the trained policy or a copy of it, unless another one is given.
        advantages_stay: whether the surrogate has no gradient, in any pass, where all advantages of `prepare` are 0, so
            that such rows need no pass (`skip_idle_rows`). It counts in the class body that defines `surrogate` or
            `loss`, and is False for one that defines them and does not say it.
        reductions: how each metric of `loss` is combined over micro-batches; by default added up. A share needs MEAN.
        policy: trained in place.
        anchor: the KL anchor, with the frozen reference.
        policy_optimizer: clips and applies gradients.
        updater: what an update does.
        player: of the episodes of an update: the policy, or an engine.
        collector: plays the episodes of `env`, of which this process collects `own_episodes` per update.
        make_envs: makes the environment, given `num_envs`.
        origin: the id it was made from, and its arguments.
        generator: for sampling actions.
        num_timesteps: steps of the environment so far, including those of surplus episodes, which environments whose
            slots cannot wait play until the last episode of a rollout is over.
        trained_timesteps: those of them that updates were made from.
        updating: whether an update has begun and not ended, also after an error or Ctrl-C in it; nothing is saved then.
        before_rollout: what a checkpoint needs of the moment before the rollout that is being collected.
        evaluation_seconds: spent in `evaluate` so far; `time/fps` leaves them out.
        extra_state: what a caller wants to have kept in checkpoints: plain values and tensors, by name.

    Raises:
        ValueError: for a hyper-parameter out of range, an unknown policy, environment or device, or groups that do
            not fit the environment, the episodes of an update or the algorithm (see `envs.check_groups`).
        TypeError: for an unknown keyword argument, with the closest match and what is allowed.
    """

    name: ClassVar[str] = ""
    default_group_size: ClassVar[int] = 1
    compares_groups = False
    uses_critic = False
    uses_score_norms = False
    needs_teacher = False
    teaches_itself = False
    advantages_stay = True
    reductions: ClassVar[Mapping[str, Reduce]] = {
        "train/approx_kl": Reduce.MEAN_OF_TRAINED,
        "train/logp_gap_max": Reduce.MAX,
    }
    anchor: Anchor
    updater: Update
    _is_root: ClassVar[bool] = True  # in this class alone: checkpoints are those of algorithms

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.advantages_stay = _advantages_stay(cls)
        own_and_inherited = (vars(base).get("reductions", {}) for base in reversed(cls.__mro__))
        cls.reductions = {name: reduce for named in own_and_inherited for name, reduce in named.items()}

    def __init__(self, policy: Any, env: str | Any, **settings: Any) -> None:
        self._set_settings(settings)
        self.device = resolve_device(self.device, env)
        self._sizes_itself, group_size = self.episodes_per_update is None, self.group_size
        size = self.default_group_size if group_size is None else group_size
        offers: dict[str, Any] = {"group_size": size, "device": str(self.device), **LOOP_SETTINGS}
        self.make_envs, self.origin = env_maker(env, self.env_kwargs, policy, skip_finished=True, **offers)
        usual = partial(self.usual, policy=policy, for_text=takes_tokenizer(env))
        episodes = self.episodes_per_update or usual("episodes_per_update")
        with closed_on_error(env) as noted:
            slots = episodes if self.engine is not None else min(usual("num_envs"), episodes)
            envs = noted(self.make_envs(num_envs=self.num_envs or slots))
            self._use_policy(policy, envs)
            self.use_env(envs, group_size)
            if not isinstance(policy, SavedPolicy):  # `load` finds out first whether the problems have changed
                self.policy.adopt_tokenizer(self.env.metadata)
        self.failure_watch = FailureWatch(self.max_failed_share)
        self.stability_watch = StabilityWatch(discrete=not isinstance(self.env.single_action_space, Box))
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

    def _use_policy(self, spec: Any, envs: VectorEnv) -> None:
        """Make the policy that is trained, and what updates it; the settings have been set.

        Raises:
            ValueError: if a critic is needed and the policy has none, or a setting has no default for its kind.
        """
        spaces = envs.single_observation_space, envs.single_action_space
        make = partial(make_policy, spec, *spaces, self.uses_critic, **(self.policy_kwargs or {}))
        with torch.random.fork_rng(devices=[]):  # initial weights come from the seed; the global state is left alone
            torch.default_generator.manual_seed(self.seed)
            self.policy = deal_out(make, self.device) if self.shard else make().to(self.device)
        if self.uses_critic and not critic_parameters(self.policy):
            raise ValueError(f"{type(self).__name__} needs a policy with a critic")
        for name, one in declared_by(type(self)).items():
            if one.by_kind and getattr(self, name) is None:  # others were checked before
                setattr(self, name, one.check(self.usual(name)))
        self.anchor = Anchor(self.kl_coef, self.kl_estimator, self.kl_in, self.kl_ratio)
        self.policy_optimizer = PolicyOptimizer(
            self.policy,
            self.learning_rate,
            self.lr_schedule,
            self.max_grad_norm,
            warmup_updates=self.warmup_updates,
            weight_decay=self.weight_decay,
            betas=(self.adam_beta1, self.adam_beta2),
            eps=self.adam_eps,
        )
        self.updater = Update(self)
        processes.same_start(self.policy)
        self.generators = Generators(self.policy.device, self.seed)
        self.generator = self.generators.actions

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
            tb_log_name: name of the TensorBoard run; None for that of the class, as in "RLOO_1".
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
        if self.unwritten.logger is None:
            name = tb_log_name or type(self).__name__
            self.set_logger(configure_logger(self.verbose, self.tensorboard_log, name, reset_num_timesteps))
        self.anchor.freeze_reference(self.policy)
        return self._train(counter, goal + getattr(self, counter), as_callback(callback, self, progress_bar))

    def _train(self, counter: str, goal: int, callback: BaseCallback) -> Iterator[tuple[Rollout, dict[str, float]]]:
        """Collect and update until an attribute that counts reaches its goal."""
        left = goal - self.num_episodes if counter == "num_episodes" else None
        self.max_updates = None if left is None else self.num_updates + max(-(-left // self.episodes_per_update), 0)
        self.collector.budget = goal - self.num_timesteps if left is None else 0
        callback.on_training_start({"total_timesteps": goal}, globals())
        try:
            while getattr(self, counter) < goal:
                self.policy_optimizer.set_progress(1.0 - getattr(self, counter) / goal, self.num_updates)
                self.before_rollout, self.updating = saving.moment_of(self), False
                rollout = self.collect_rollout(callback)
                if rollout is None:
                    break
                if getattr(self, counter) < goal:
                    self.player.look_ahead()
                hidden = self.env.metadata.get("hidden_token_ids", ())
                self.last_metrics = rollout_metrics(rollout, hidden) | self.player.figures | self.update(rollout)
                self.stability_watch.add(self.last_metrics, self.policy_optimizer.rate)
                self.start_watch.add(self.last_metrics, len(rollout))
                rate = {"train/learning_rate": self.policy_optimizer.rate}
                log_entry.record_metrics(self.logger, self.last_metrics | rate)
                yield rollout, self.last_metrics
        except GeneratorExit:  # a loop over `updates` was left early: progress bars end, too
            callback.on_training_end()
            raise
        finally:
            self.player.drop_ahead()
        callback.on_training_end()
        self.failure_watch.conclude()

    def collect_rollout(self, callback: BaseCallback) -> Rollout | None:
        """Return the episodes of the next update; None if the callback ends the training."""

        def on_step(taken: int, local: dict[str, Any]) -> bool:
            self.num_timesteps += taken
            callback.update_locals(local)
            return callback.on_step()

        callback.on_rollout_start()
        before = self.num_timesteps
        parts = self.player.collect(on_step)
        self.num_timesteps = before + sum(taken for _, taken in parts)
        rollout = evaluation.whole_of(self.env, [part for part, _ in parts], self.policy, self.device)
        if rollout is None:
            release_weights(self.policy)
            return None
        self.num_episodes += len(rollout)
        evaluation.record_verdicts(self.env, rollout)
        ends = processes.gather((self.collector.statuses, self.collector.failure))
        callback.update_locals({"rollout": rollout})
        callback.on_rollout_end()
        counts = [sum(column) for column in zip(*(statuses for statuses, _ in ends), strict=True)]
        self.failure_watch.add(counts, next((reason for _, reason in ends if reason), ""))
        return rollout

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Take the optimizer steps of a rollout; return its metrics, averaged over the steps."""
        self.updating, began = True, time.perf_counter()
        metrics, trained = self.updater(rollout)
        self.seconds["training"] += time.perf_counter() - began
        self.num_updates += 1
        self.trained_timesteps += trained
        self.before_rollout, self.updating = None, False
        return metrics

    def _fit_to_budget(self, total_timesteps: int) -> None:
        """Shrink `episodes_per_update` to what a budget has room for, if the user left it open.

        Groups stay whole, slots that cannot wait each get an episode, and a rollout has two episodes to compare unless
        there is a critic.
        """
        longest = longest_episode(self.env)
        if not self._sizes_itself or self.num_episodes or longest is None:
            return
        unit = (self.group_size or 1) * processes.size()
        least = max(1 if self.collector.slots.slots_wait else self.num_envs, 1 if self.uses_critic else 2)
        fitting = max(int(SHARE * total_timesteps) // longest // unit, -(-least // unit)) * unit
        if fitting < self.episodes_per_update:
            before, self.episodes_per_update = self.episodes_per_update, fitting
            try:
                self.use_env(self.env)
            except ValueError:
                self.episodes_per_update = before
                self.use_env(self.env)
                raise

    # What an algorithm says.

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the credit of each step [N, T], made of episodes that are `ok` alone; masked cells may hold anything.

        An actor-critic's targets are made of these; transform them in `prepare`, as PPO does, to leave those alone.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks advantages(rollout), the credit of each step")

    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the surrogate, to be differentiated, [N, T]: by default A log π; masked cells may hold anything."""
        return losses.policy_gradient(log_probs, batch.advantages)

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the weight of each step in the loss [N, T], given which steps count (bool [N, T]); 0 elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} lacks weights, such as staticmethod(aggregation.token_mean)")

    def correction(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        """Return the factor of the surrogate at each step, a constant [N, T]; None for 1.

        Args:
            log_probs: of the policy as it is, without gradient [N, T].
            batch: has the importance weights of `mismatch`, if any.
        """
        return batch.importance

    def critic_targets(self, rollout: Rollout, advantages: torch.Tensor) -> torch.Tensor:
        """Return the targets of the critic [N, T]: by default, the return from each step on."""
        return return_to_go(rollout.rewards, rollout.learnable, self.gamma)

    def critic_loss(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the critic's loss at each step [N, T]: by default, its squared error."""
        return losses.squared_error(values, batch.required("value_targets"))

    @property
    def actor_waits(self) -> bool:
        """Whether an update made now trains the critic alone: by default never."""
        return False

    def evaluated(self, rollout: Rollout) -> Rollout:
        """Return the rollout with what passes without gradient say; see `Update.evaluated`."""
        return self.updater.evaluated(rollout)

    def prepare(self, rollout: Rollout) -> Batch:
        """Return everything that an update needs: rewards with the KL penalty, values, advantages and weights."""
        return self.updater.prepare(rollout)

    def batches(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch of each optimizer step of an update: by default one step, on everything."""
        yield batch

    def loss(self, batch: Batch) -> tuple[torch.Tensor, Figures]:
        """Return the loss of some rows of a prepared rollout, and their metrics; see `Update.loss`."""
        return self.updater.loss(batch)

    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> Figures:
        """Return metrics of the log-probabilities of a loss: those of `Update.diagnose`, and your own beside them."""
        return self.updater.diagnose(log_probs, batch)

    # What is saved; `saving.py` walks it.

    def parts(self) -> dict[str, Stateful]:
        """Return the parts that are saved as they are now, by their name in a checkpoint; the same in all processes."""
        return {
            "optimizer": self.policy_optimizer,
            "algorithm": self,
            "order": GeneratorState(self.generators.order),
            "reward_scale": self.updater.reward_scale,
            "unwritten": self.unwritten,
            "extra": DictState(self, "extra_state"),
        }

    def own_parts(self) -> dict[str, Stateful]:
        """Return the parts that change while a rollout is collected, by their name in a checkpoint; one per process."""
        return {
            "actions": GeneratorState(self.generators.actions),
            "envs": self.collector,
            "failures": self.failure_watch,
            "stability": self.stability_watch,
            "start": self.start_watch,
            "metrics": DictState(self, "last_metrics"),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the algorithm, besides the policy, carries from update to update: by default none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
