"""From a rollout to new weights: prepare -> loss -> gradient. The gradient is made in `Learner.loss`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from .. import processes
from ..checks import check_number
from ..devices import to_floats
from ..estimators import losses
from ..estimators.mismatch import importance_weights
from ..estimators.returns import return_to_go
from ..fsdp import gather_weights, passes, release_weights
from ..policies import ControlPolicy, Policy
from ..policies.base import critic_parameters
from ..rollout import EARNED, Batch, Rollout, RolloutT
from ..settings import declared_by, default_of
from ..stateful import Stateful, load_states, states_of
from .divergence import check_log_probs, fault_of
from .kl_anchor import Anchor
from .metrics import Reduce, critic_metrics, mismatch_metrics, sampled_metrics
from .optimizer import PolicyOptimizer
from .reward_scale import RewardScale
from .settings import AgentSettings

Figures = dict[str, torch.Tensor]


class Learner(AgentSettings):
    """What an update is. An algorithm says what its advantages, surrogate and weights are; the rest follows:

        L = - Σ_i Σ_t w_{i,t} (m_{i,t} surrogate_{i,t} + c_H H_{i,t}) + c_V Σ_i Σ_t w_{i,t} (V(s_{i,t}) - target_{i,t})²

    m is 1, unless another policy acted and `mismatch` corrects for it, or an option masks steps; see `correction`.

    Attributes:
        name: under which checkpoints and commands know this class; empty for a class of your own.
        policy: trained in place.
        settings: those that a checkpoint keeps.
        reductions: how each metric of `loss` is put together from micro-batches; those not named are added up.
        uses_critic: whether the policy needs a critic.
        uses_score_norms: whether `advantages` reads `Rollout.score_norms`; one more pass without gradient, if so.
        anchor: the KL anchor, with the frozen reference.
        policy_optimizer: applies gradients.
        generator: for sampling actions.
        order_generator: for the order of mini-batches.
        arrays: a dictionary to have the steps of the next update put there, for histograms: "train/advantages" and
            "train/ratio" (of each pass, to the policy before the update), each a list of [n]. None costs nothing.
        watchers: functions called with every prepared rollout, before its first optimizer step; see `prepare`.
    """

    name: ClassVar[str] = ""
    uses_critic = False
    uses_score_norms = False
    needs_teacher = False  # a policy to learn from, besides the environment
    reductions: ClassVar[Mapping[str, Reduce]] = {
        "train/approx_kl": Reduce.MEAN_OF_TRAINED,
        "train/logp_gap_max": Reduce.MAX,
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_and_inherited = (vars(base).get("reductions", {}) for base in reversed(cls.__mro__))
        cls.reductions = {name: reduce for named in own_and_inherited for name, reduce in named.items()}

    def _use_policy(self, make: Callable[[], Policy]) -> None:
        """Make the policy that is trained, and what updates it; the settings have been set.

        Raises:
            ValueError: if a critic is needed and the policy has none, or a setting has no default for its kind.
        """
        with torch.random.fork_rng(devices=[]):  # initial weights come from the seed; the global state is left alone
            torch.default_generator.manual_seed(self.seed)
            self.policy = make()
        if self.uses_critic and not critic_parameters(self.policy):
            raise ValueError(f"{type(self).__name__} needs a policy with a critic")
        for name, one in declared_by(type(self)).items():
            if one.by_kind and getattr(self, name) is None:  # others were checked before
                setattr(self, name, one.check(self.or_default(name, None)))
        self.anchor = Anchor(self.kl_coef, self.kl_estimator, self.kl_in, self.kl_ratio)
        self.reward_scale = RewardScale(self.gamma)
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
        processes.same_start(self.policy)
        self.seed_generators()
        self.num_updates = self.trained_timesteps = 0
        self.watchers: list[Callable[[Batch], None]] = []
        self.arrays: dict[str, list[torch.Tensor]] | None = None

    def or_default(self, name: str, given: Any) -> Any:
        """Return what was given for a setting; for None, what suits the policy's size, else the default of its kind."""
        if given is not None:
            return given
        own = self.policy.defaults.get(name)
        return default_of(name, type(self), self.policy.kind, ControlPolicy.kind) if own is None else own

    def seed_generators(self) -> None:
        """Make the generators of the sampling of actions and of the order of mini-batches anew, from `seed`."""
        self.generator = torch.Generator(self.policy.device).manual_seed(processes.own_seed(self.seed))
        self.order_generator = self.generator  # of several processes, the same in each
        if processes.size() > 1:
            self.order_generator = torch.Generator(self.policy.device).manual_seed(self.seed)

    def present(self, name: str) -> Any:
        """Return the present value of a setting that may be a function of the remaining progress (1 to 0)."""
        value = getattr(self, name)
        if callable(value):
            return check_number(name, value(self.policy_optimizer.remaining), low=0.0, above=True)
        return value

    @property
    def actor_waits(self) -> bool:
        """Whether an update made now trains the critic alone: by default never."""
        return False

    # What an algorithm says.

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the credit of each step [N, T]; masked cells may hold anything.

        An actor-critic's targets are made of these; transform them in `prepare`, as PPO does, to leave those alone.
        """
        raise NotImplementedError

    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what is differentiated at each step [N, T], by default A log π; masked cells may hold anything."""
        return losses.policy_gradient(log_probs, batch.advantages)

    def correction(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        """Return what the surrogate is multiplied by at each step, a constant [N, T]; None for 1.

        Args:
            log_probs: of the policy as it is, without gradient [N, T].
            batch: has the importance weights of `mismatch`, if any.
        """
        return batch.importance

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the weight of each step in the loss [N, T], given which steps count (bool [N, T]); 0 elsewhere."""
        raise NotImplementedError

    def critic_targets(self, rollout: Rollout, advantages: torch.Tensor) -> torch.Tensor:
        """Return what the critic is fitted to [N, T]: by default, the return from each step on."""
        return return_to_go(rollout.rewards, rollout.learnable, self.gamma)

    def critic_loss(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the critic's loss at each step [N, T]: by default, its squared error."""
        return losses.squared_error(values, batch.required("value_targets"))

    def state_dict(self) -> dict[str, Any]:
        """Return what the algorithm, besides the policy, carries from update to update: by default nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    # An update.

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Take the optimizer steps of a rollout; return its metrics, averaged over the steps."""
        if self.watchers:
            rollout = replace(rollout, extras=rollout.extras | {EARNED: rollout.returns})
        prepared = self.prepare(self.reward_scale(rollout) if self.normalize_rewards else rollout)
        self._show("train/advantages", prepared.advantages, prepared)
        for watch in self.watchers:
            watch(prepared)
        steps: list[dict[str, float]] = []
        learned = False
        for batch in self.batches(prepared):
            metrics = self._backward(batch)
            fault = fault_of(self.policy, metrics)
            if not fault and not steps:  # later steps train another policy than the one that sampled
                check_log_probs(self.policy, metrics)
            steps.append(metrics | {"train/grad_norm": self.policy_optimizer.step(fault, new_update=not steps)})
            learned |= self.policy_optimizer.stepped
        if isinstance(self.policy, ControlPolicy):
            self.policy.observe(prepared)
        self.num_updates += 1
        self.trained_timesteps += int(prepared.learnable.sum()) if learned else 0
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        skipped = float(self.policy_optimizer.total_skipped)
        first = {"train/logp_gap_max": steps[0]["train/logp_gap_max"], "train/skipped_updates": skipped}
        return sampled_metrics(prepared) | critic_metrics(prepared) | means | first | mismatch_metrics(prepared)

    def prepare(self, rollout: Rollout) -> Batch:
        """Return everything that an update needs: rewards with the KL penalty, values, advantages and weights."""
        policies = [each for each in (self.policy, self.anchor.reference) if each is not None]
        gather_weights(*policies)  # here, where no process is without rows
        rollout = processes.with_parts(rollout, self._own_rows(rollout), self._evaluated)
        release_weights(*policies)
        steps, advantages = rollout.learnable, self.advantages(rollout)
        targets = self.critic_targets(rollout, advantages).where(steps, 0) if self.uses_critic else None
        advantages = advantages.where(steps, 0)
        return Batch.of(
            rollout,
            log_probs=rollout.log_probs.where(steps, 0),
            value_targets=targets,
            advantages=advantages,
            weights=self.weights(steps).to(advantages.dtype),
            importance=self._importance(rollout),
        )

    def _evaluated(self, rollout: Rollout) -> Rollout:
        """Return the rollout with what passes over it say.

        Log-probabilities of a training pass, the reference's KL, the norms of the scores, the critic's values.
        """
        if self.mismatch is not None:
            trained = self._in_passes(lambda part: self.policy.evaluate(part)["log_probs"], rollout)
            rollout = replace(rollout, log_probs=trained, acting_log_probs=rollout.log_probs)
        rollout = self.anchor.add_kl_penalty(self.policy, rollout, self.micro_batches)
        if self.uses_score_norms:
            norms = self._in_passes(lambda part: self.policy.evaluate(part, ("score_norms",))["score_norms"], rollout)
            rollout = replace(rollout, score_norms=norms)
        return self._add_values(rollout) if self.uses_critic else rollout

    @torch.no_grad()
    def _in_passes(self, evaluate: Callable[[Rollout], torch.Tensor], rollout: Rollout) -> torch.Tensor:
        """Return what is said of each episode [N, ...], in passes that fit the memory, without gradient."""
        return torch.cat([evaluate(part) for part in self.micro_batches(rollout)])

    def _importance(self, rollout: Rollout) -> torch.Tensor | None:
        """Return the weights of steps that another policy sampled [N, T], if `mismatch` asks for them."""
        acting = rollout.acting_log_probs
        if self.mismatch is None or acting is None:
            return None
        bounds = self.mismatch_min, self.mismatch_max
        return importance_weights(rollout.log_probs, acting, rollout.learnable, self.mismatch, *bounds)

    def _own_rows(self, rollout: Rollout) -> slice:
        """Return the rows that this process evaluates and trains on: all of them if it is the only one."""
        return processes.own_rows(self.policy.costs(rollout))

    def _add_values(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the critic's values, including those after the last step of truncated episodes."""
        values = self._in_passes(self.policy.values, rollout)
        following = rollout.after_truncation(self.policy.obs_from_actions)
        if following is not None:
            after = self._in_passes(self.policy.values, following)
            rollout = replace(rollout, final_values=after.where(following.mask, 0)[:, 0])
        return replace(rollout, values=values)

    def batches(self, batch: Batch) -> Iterator[Batch]:
        """Yield what each optimizer step of an update trains on: by default one step, on everything."""
        yield batch

    def micro_batches(self, rollout: RolloutT) -> Iterator[RolloutT]:
        """Yield the parts that are evaluated in one pass each."""
        costs = None if self.micro_batch_tokens is None else self.policy.costs(rollout)
        return rollout.split(self.micro_batch_size, costs, self.micro_batch_tokens)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, Figures]:
        """Return the loss of some rows of a prepared rollout, and their metrics; see `reductions`.

        Metrics are tensors of one number, read once per optimizer step.
        """
        want = ("log_probs", *("entropy",) * bool(self.ent_coef), *("kl",) * self.anchor.wants_kl)
        found = self.policy.evaluate(batch, want, self.anchor.reference)
        log_probs = found["log_probs"].where(batch.learnable, 0)
        objective = self.surrogate(log_probs, batch)
        correction = self.correction(log_probs.detach(), batch)
        if correction is not None:
            objective = correction * objective
        if self.ent_coef:
            objective = objective + self.ent_coef * found["entropy"]
        if self.anchor.is_in_loss:
            objective = objective - self.anchor.loss_term(self.policy, batch, log_probs, found)
        loss = -batch.total(batch.weights * objective)
        if self.actor_waits:
            loss = torch.zeros_like(loss)
        metrics = {"train/policy_loss": loss.detach()} | self.diagnose(log_probs.detach(), batch)
        if self.uses_critic:
            value_loss = batch.total(batch.weights * self.critic_loss(self.policy.values(batch), batch))
            loss = loss + self.vf_coef * value_loss
            metrics["train/value_loss"] = value_loss.detach()
        return loss, metrics | {"train/loss": loss.detach()}

    @torch.no_grad()
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> Figures:
        """Return metrics of how far the log-probabilities are from those before the update; see `reductions`."""
        gap = log_probs - batch.log_probs
        if self.arrays is not None:  # this is in every micro-batch
            self._show("train/ratio", gap.exp(), batch)
        moved = gap.where(self._with_gradient(batch), 0)  # the others are not known if `skip_idle_rows`
        return {
            "train/approx_kl": batch.total(moved.expm1() - moved),
            "train/logp_gap_max": gap.abs().max() if gap.numel() else gap.sum(),
        }

    def _show(self, name: str, values: torch.Tensor, batch: Batch) -> None:
        """Hand over the steps of [N, T] that count to whoever asked for `arrays`."""
        if self.arrays is not None:
            self.arrays.setdefault(name, []).append(values[batch.learnable].detach())

    def _backward(self, batch: Batch) -> dict[str, float]:
        """Make the gradient of one optimizer step, in micro-batches; return its metrics."""
        self.policy_optimizer.zero_grad()
        with_gradient = self._with_gradient(batch)
        trained = batch.select(self._rows_to_train(with_gradient))
        own = trained.select(self._own_rows(trained))
        micro_batches = self.micro_batches(own) if len(own) else ()
        figures: list[Figures] = []
        for rows, is_own in passes(self.policy, micro_batches, trained.select(slice(1))):
            loss, metrics = self.loss(rows) if is_own else self._unseen(rows)
            loss.backward()
            self.policy_optimizer.weights.add_gradients()
            figures.append(metrics)
        processes.sum_gradients(self.policy_optimizer.weights.masters)
        counts = {Reduce.MEAN.name: batch.learnable.sum(), Reduce.MEAN_OF_TRAINED.name: with_gradient.sum()}
        *parts, counted = to_floats([*figures, counts])
        totals: dict[str, float] = {}
        for part in (part for parts in processes.gather(parts) for part in parts):
            self._add_metrics(totals, part)
        for name, reduction in self.reductions.items():
            if name in totals and reduction.name in counted:
                totals[name] /= max(counted[reduction.name], 1)
        return totals

    def _unseen(self, rows: Batch) -> tuple[torch.Tensor, Figures]:
        """Return a loss of 0 that takes the same passes as `loss`, and no metrics."""
        arrays, self.arrays = self.arrays, None
        loss, _ = self.loss(rows)
        self.arrays = arrays
        return 0 * loss, {}

    def _add_metrics(self, totals: dict[str, float], more: Mapping[str, float]) -> None:
        for name, value in more.items():
            add = self.reductions.get(name, Reduce.SUM).add
            totals[name] = add(totals[name], value) if name in totals else value

    @property
    def may_be_idle(self) -> bool:
        """Whether a row has no gradient if its advantages are all zero: no other term of the loss has one."""
        return not (self.ent_coef or self.uses_critic or self.anchor.is_in_loss)

    def _with_gradient(self, batch: Batch) -> torch.Tensor:
        """Return the learnable steps of the rows that have a gradient, bool [N, T]."""
        return batch.learnable & (batch.advantages != 0).any(1, keepdim=True) if self.may_be_idle else batch.learnable

    def _rows_to_train(self, with_gradient: torch.Tensor) -> slice | torch.Tensor:
        """Return which rows have a pass, a slice or an index; at least one. The argument: see `_with_gradient`."""
        if not (self.skip_idle_rows and self.may_be_idle):
            return slice(None)
        rows = with_gradient.any(1).nonzero()[:, 0]
        if len(rows) == len(with_gradient):
            return slice(None)
        return rows if len(rows) else slice(0, 1)

    # What a checkpoint keeps besides the policy.

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam over the policy's parameters."""
        return self.policy_optimizer.adam

    def parts(self) -> dict[str, Stateful]:
        """Return what is saved as it is now, by its name in a checkpoint; the same in all processes."""
        return {"optimizer": self.policy_optimizer, "algorithm": self, "reward_scale": self.reward_scale}

    def training_state(self) -> dict[str, Any]:
        """Return the states of `parts`."""
        return states_of(self.parts())

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `training_state` returned."""
        load_states(self.parts(), state)

    def _random_state(self) -> dict[str, Any]:
        """Return where the generators of this process are."""
        return {
            "generator": self.generator.get_state(),
            "order": self.order_generator.get_state(),
            "device": self.generator.device.type,
        }

    def _load_random_state(self, state: Mapping[str, Any], seed: int | None = None) -> None:
        """Restore what `_random_state` returned, if it is of the same kind of device.

        Args:
            state: what it returned.
            seed: for the generators instead; given if another process returned it.
        """
        if state["device"] != self.generator.device.type:
            return
        if seed is None:
            self.generator.set_state(state["generator"])
            self.order_generator.set_state(state["order"])
        else:
            self.generator.manual_seed(processes.own_seed(seed))
            self.order_generator.manual_seed(seed)
