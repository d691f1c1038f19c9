"""The loop every agent shares: collect, advantages, update, log.

An algorithm is three answers (`advantages`, `surrogate`, `weights`); the gradient is made in `Agent.loss`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import configure_logger

from .anchor import Anchor
from .callbacks import as_callback
from .checks import check_choice, check_count, check_number
from .collector import Collector
from .envs import make_envs, resolve_device, single_spaces
from .estimators.returns import return_to_go
from .metrics import larger, rollout_metrics, sampled_figures
from .policies import Policy, make_policy
from .rollout import Rollout
from .surface import Surface

MAX_SKIPPED = 5
BETAS = (0.9, 0.95)  # of Adam; policy gradients are noisy and change fast, so their scale is remembered for ~20 steps
SAVED = (  # settings that a checkpoint keeps as they are
    "lr_schedule", "episodes_per_update", "group_size", "gamma", "max_grad_norm", "ent_coef", "vf_coef",
    "micro_batch_size", "skip_idle_rows", "seed",
)  # fmt: skip
LOG_PROB_TOLERANCE = (
    0.05  # nats; float32 rounding is a thousand times smaller, the mildest known bug several times larger
)


class Agent(Surface):
    """A policy-gradient agent with stable-baselines3's surface.

        L = - Σ_i Σ_t w_{i,t} (surrogate_{i,t} + c_H H_{i,t}) + c_V Σ_i Σ_t w_{i,t} (V(s_{i,t}) - G_{i,t})²

    Args:
        policy: "auto", "MlpPolicy", "tiny", a model folder or id, or a `Policy`; see `policies.make_policy`.
        env: an id, a gymnasium.Env or a gymnasium VectorEnv.
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
        micro_batch_size: rows a backward pass; None for all. Does not change the gradient.
        skip_idle_rows: leave out the training pass of episodes whose advantages are all zero, where nothing else in the
            loss would need it. Does not change the gradient.
        seed: of the policy's initial weights, the environment and the sampling of actions.
        device: "auto", "cpu", "cuda", ...
        tensorboard_log: folder for TensorBoard, None for no log.
        verbose: 1 prints a table every `log_interval` updates.

    Raises:
        ValueError: for a hyper-parameter out of range, an unknown policy, environment or device, or a group size that
            does not divide the episodes of an update.
    """

    default_group_size: ClassVar[int] = 1
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by policy kind, over the policy's own
    uses_critic: bool = False

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
        skip_idle_rows: bool = True,
        seed: int = 0,
        device: str | torch.device = "auto",
        tensorboard_log: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_grad_norm = check_number("max_grad_norm", max_grad_norm, low=0.0, above=True)
        self.ent_coef = check_number("ent_coef", ent_coef, low=0.0)
        self.vf_coef = check_number("vf_coef", vf_coef, low=0.0)
        self.anchor = Anchor(kl_coef, kl_estimator, kl_in)
        self.micro_batch_size = None if micro_batch_size is None else check_count("micro_batch_size", micro_batch_size)
        self.skip_idle_rows = skip_idle_rows
        self.seed = check_count("seed", seed, low=0)
        self.tensorboard_log, self.verbose = tensorboard_log, verbose
        spaces = single_spaces(env, env_kwargs)
        self.device = resolve_device(device, env)
        self.policy = self._make_policy(policy, spaces, policy_kwargs)

        defaults = {**self.policy.defaults, **self.defaults.get(self.policy.kind, {})}
        self.gamma = check_number("gamma", _first(gamma, defaults["gamma"]), low=0.0, high=1.0)
        self.learning_rate = _first(learning_rate, defaults["learning_rate"])
        self.lr_schedule = check_choice("lr_schedule", lr_schedule, ("linear", "constant"))
        if not callable(self.learning_rate):
            check_number("learning_rate", self.learning_rate, low=0.0, above=True)
        self.episodes_per_update = check_count(
            "episodes_per_update", _first(episodes_per_update, defaults["episodes_per_update"])
        )
        slots = check_count("num_envs", _first(num_envs, min(defaults["num_envs"], self.episodes_per_update)))
        offered = check_count("group_size", _first(group_size, self.default_group_size))
        self.env: VectorEnv = make_envs(env, slots, env_kwargs, device=str(self.device), group_size=offered)
        self.group_size: int | None = self.env.metadata.get("group_size")  # None: the environment knows no groups
        if group_size is not None and self.group_size != offered:
            has = "knows no groups" if self.group_size is None else f"has group_size {self.group_size}"
            raise ValueError(f"group_size {group_size} is not to be had: the environment {has}")
        if self.episodes_per_update % (self.group_size or 1):
            raise ValueError(
                f"group_size {self.group_size} does not divide the {self.episodes_per_update} episodes of an update"
            )

        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.optimizer = torch.optim.Adam(
            self.policy.parameters(), lr=self._current_learning_rate(1.0), betas=BETAS, eps=1e-5
        )
        self.collector = Collector(self.env, self.device)
        self.collector.seed(self.seed)
        self.num_timesteps = self.num_episodes = self.num_updates = self.skipped = 0
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

    # The three answers.

    @staticmethod
    def weights(mask: torch.Tensor) -> torch.Tensor:
        """Return how the steps that count (bool [N, T]) are added up [N, T]; 0 elsewhere."""
        raise NotImplementedError

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the credit of each step [N, T]; what stands in masked cells has no effect."""
        raise NotImplementedError

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return what is differentiated at each step [N, T]; what stands in masked cells has no effect."""
        raise NotImplementedError

    # Learning.

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train until this many steps of episodes were trained on; the last rollout may go beyond.

        Args:
            total_timesteps: steps (tokens, for text).
            callback: a callback of stable-baselines3, a list of them, or a function of (locals, globals); called
                after every step of the environment.
            log_interval: updates between two entries of the log.
            tb_log_name: name of the TensorBoard run.
            reset_num_timesteps: False continues the count of an earlier call.
            progress_bar: whether to show one (with tqdm and rich).

        Raises:
            ValueError: if `total_timesteps` or `log_interval` is no positive whole number.
            RuntimeError: if gradients stay non-finite, or acting and training disagree on log-probabilities.
        """
        check_count("total_timesteps", total_timesteps)
        check_count("log_interval", log_interval)
        if reset_num_timesteps:
            self.num_timesteps = self.num_episodes = self.num_updates = 0
        else:
            total_timesteps += self.num_timesteps
        if self._logger is None:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        self.anchor.hold(self.policy)
        listener = as_callback(callback, self, progress_bar)
        listener.on_training_start({"total_timesteps": total_timesteps}, globals())
        started, steps_before = time.perf_counter(), self.num_timesteps
        while self.num_timesteps < total_timesteps:
            self._set_learning_rate(1.0 - self.num_timesteps / total_timesteps)
            rollout = self._collect(listener)
            if rollout is None:
                break
            self.last_metrics = rollout_metrics(rollout) | self.update(rollout)
            for name, figure in self.last_metrics.items():
                self.logger.record(name, figure)
            if self.num_updates % log_interval == 0:
                speed = (self.num_timesteps - steps_before) / max(time.perf_counter() - started, 1e-9)
                self._dump_logs(speed)
        listener.on_training_end()
        return self

    def _collect(self, listener: BaseCallback) -> Rollout | None:
        def on_step(counted: int, local: dict[str, Any]) -> bool:
            self.num_timesteps += counted
            listener.update_locals(local)
            return listener.on_step()

        listener.on_rollout_start()
        rollout = self.collector.collect(self.policy, self.episodes_per_update, self.generator, on_step=on_step)
        if rollout is not None:
            self.num_episodes += len(rollout)
            listener.on_rollout_end()
        return rollout

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Take one optimizer step on a rollout; return what is logged of it."""
        rollout = self.prepare(rollout)
        self.optimizer.zero_grad(set_to_none=True)
        metrics: dict[str, float] = {}
        for batch in rollout.select(self._rows_to_train(rollout)).split(self.micro_batch_size):
            loss, figures = self.loss(batch)
            loss.backward()
            for name, figure in figures.items():
                gather = larger if name.endswith("_max") else float.__add__
                metrics[name] = gather(metrics[name], figure) if name in metrics else figure
        self._check_log_probs(metrics)
        metrics |= sampled_figures(rollout)
        metrics["train/grad_norm"] = self._step()
        self.num_updates += 1
        return metrics

    def _rows_to_train(self, rollout: Rollout) -> torch.Tensor:
        """Return which rows of a prepared rollout have a gradient, bool [N]; at least one, so that there is a pass."""
        assert rollout.advantages is not None
        anchored = self.anchor.reference is not None and self.anchor.place == "loss"
        if not self.skip_idle_rows or self.ent_coef or self.uses_critic or anchored:
            return torch.ones_like(rollout.valid)
        rows = (rollout.advantages != 0).any(1)
        rows[0] |= ~rows.any()
        return rows

    def prepare(self, rollout: Rollout) -> Rollout:
        """Return the rollout with everything an update needs: KL charged, values, advantages and weights."""
        rollout = self.anchor.charge(self.policy, rollout)
        if self.uses_critic:
            with torch.no_grad():
                rollout = replace(rollout, values=self.policy.predict_values(rollout))
        credit = self.advantages(rollout).where(rollout.learnable, 0)
        return replace(rollout, advantages=credit, weights=self.weights(rollout.learnable).to(credit.dtype))

    def loss(self, batch: Rollout) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of some rows of a prepared rollout, and figures that add up over rows (or are a `_max`)."""
        assert batch.weights is not None
        log_probs, entropy = self.policy.evaluate_actions(batch)
        objective = self.surrogate(log_probs, batch)
        if self.ent_coef:
            objective = objective + self.ent_coef * entropy
        if self.anchor.reference is not None and self.anchor.place == "loss":
            objective = objective - self.anchor.coef * self.anchor.penalty(self.policy, batch, log_probs)
        loss = -batch.total(batch.weights * objective)
        figures = {"train/policy_loss": loss.item()} | self._diagnose(log_probs.detach(), batch)
        if self.uses_critic:
            targets = return_to_go(batch.rewards, batch.learnable, self.gamma)
            value_loss = batch.total(batch.weights * (self.policy.predict_values(batch) - targets).square())
            loss = loss + self.vf_coef * value_loss
            figures["train/value_loss"] = value_loss.item()
        return loss, figures | {"train/loss": loss.item()}

    @torch.no_grad()
    def _diagnose(self, log_probs: torch.Tensor, batch: Rollout) -> dict[str, float]:
        """Return how far training's log-probabilities are from acting's; added up as in the loss."""
        assert batch.weights is not None
        gap = (log_probs - batch.log_probs).where(batch.learnable, 0)
        return {
            "train/approx_kl": batch.total(batch.weights * (gap.expm1() - gap)).item(),
            "train/logp_gap_max": gap.abs().max().item() if gap.numel() else 0.0,
        }

    def _step(self) -> float:
        """Clip and apply the gradient, or skip it if it is not finite; return the policy's norm before clipping."""
        actor = torch.nn.utils.clip_grad_norm_(self.policy.actor_parameters(), self.max_grad_norm)
        critic = torch.nn.utils.clip_grad_norm_(self.policy.critic_parameters(), self.max_grad_norm)
        if bool(torch.isfinite(actor) & torch.isfinite(critic)):
            self.optimizer.step()
            self.skipped = 0
            return float(actor)
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped += 1
        if self.skipped >= MAX_SKIPPED:
            raise RuntimeError(
                f"{self.skipped} updates in a row had non-finite gradients; the weights are the last good ones"
            )
        return float(actor)

    def _check_log_probs(self, metrics: dict[str, float]) -> None:
        gap = metrics["train/logp_gap_max"]
        exact = all(p.dtype in (torch.float32, torch.float64) for p in self.policy.parameters())
        if exact and not gap <= LOG_PROB_TOLERANCE:
            raise RuntimeError(
                f"log-probabilities while acting and training differ by {gap:.3g} nats "
                f"(at most {LOG_PROB_TOLERANCE} is rounding): the policy that sampled is not the one being trained"
            )

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
        self.logger.dump(self.num_timesteps)

    def _make_policy(self, spec: Any, spaces: tuple[Any, Any], kwargs: Mapping[str, Any] | None) -> Policy:
        # Initial weights come from the seed, and the global state is left alone.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return make_policy(spec, *spaces, critic=self.uses_critic, **(kwargs or {})).to(self.device)

    def _current_learning_rate(self, progress_remaining: float) -> float:
        if callable(self.learning_rate):
            return self.learning_rate(progress_remaining)
        return self.learning_rate * (progress_remaining if self.lr_schedule == "linear" else 1.0)

    def _set_learning_rate(self, progress_remaining: float) -> None:
        rate = self._current_learning_rate(progress_remaining)
        self.logger.record("train/learning_rate", rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value
