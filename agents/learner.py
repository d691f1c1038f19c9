"""From a rollout to new weights. The gradient is made here, in `Learner.loss`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from .anchor import Anchor
from .descent import Descent, half_precision
from .estimators import losses
from .estimators.returns import return_to_go
from .metrics import larger, sampled_figures
from .policies import Policy
from .rollout import Rollout

LOG_PROB_TOLERANCE = 0.05  # nats; rounding is a thousand times smaller, the mildest known bug several times larger
HALF_LOG_PROB_TOLERANCE = 0.5  # nats, for weights in bfloat16 or float16; rounding reaches 0.1 in tiny models


class Learner:
    """The part of an agent that learns: three answers, which an algorithm gives, and what follows from them.

        L = - Σ_i Σ_t w_{i,t} (surrogate_{i,t} + c_H H_{i,t}) + c_V Σ_i Σ_t w_{i,t} (V(s_{i,t}) - target_{i,t})²

    Attributes: those of `Agent` of the same names.
    """

    policy: Policy
    anchor: Anchor
    descent: Descent
    gamma: float
    ent_coef: float
    vf_coef: float
    micro_batch_size: int | None
    micro_batch_tokens: int | None
    skip_idle_rows: bool
    num_updates: int
    trained_timesteps: int
    uses_critic: bool = False

    # The three answers.

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return how the steps that count (bool [N, T]) are added up [N, T]; 0 elsewhere."""
        raise NotImplementedError

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the credit of each step [N, T]; what stands in masked cells has no effect."""
        raise NotImplementedError

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return what is differentiated at each step [N, T]; what stands in masked cells has no effect."""
        raise NotImplementedError

    def critic_targets(self, rollout: Rollout) -> torch.Tensor:
        """Return what the critic is fitted to [N, T], where there is one: the return from each step on."""
        return return_to_go(rollout.rewards, rollout.learnable, self.gamma)

    def critic_loss(self, values: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return the critic's loss at each step [N, T]: its squared error."""
        assert batch.value_targets is not None
        return losses.squared_error(values, batch.value_targets)

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Take the optimizer steps of a rollout; return what is logged of it, averaged over them."""
        rollout = self.prepare(rollout)
        steps: list[dict[str, float]] = []
        for batch in self.batches(rollout):
            figures = self._backward(batch)
            if not steps:  # later steps train another policy than the one that sampled
                self._check_log_probs(figures)
            steps.append(figures | {"train/grad_norm": self.descent.step(new_update=not steps)})
        self.num_updates += 1
        self.trained_timesteps += int(rollout.learnable.sum())
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return sampled_figures(rollout) | means | {"train/logp_gap_max": steps[0]["train/logp_gap_max"]}

    def batches(self, rollout: Rollout) -> Iterator[Rollout]:
        """Yield what each optimizer step of an update trains on: once, everything."""
        yield rollout

    def micro_batches(self, rollout: Rollout) -> Iterator[Rollout]:
        """Yield what is evaluated at a time."""
        costs = None if self.micro_batch_tokens is None else self.policy.costs(rollout)
        return rollout.split(self.micro_batch_size, costs, self.micro_batch_tokens)

    def _backward(self, batch: Rollout) -> dict[str, float]:
        """Make the gradient of one optimizer step, in micro-batches; return its figures."""
        self.descent.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        trained = batch.select(self._rows_to_train(batch))
        for rows in self.micro_batches(trained):
            loss, figures = self.loss(rows)
            loss.backward()
            for name, figure in figures.items():
                gather = larger if name.endswith("_max") else float.__add__
                totals[name] = gather(totals[name], figure) if name in totals else figure
        counts = {"_fraction": batch.learnable, "_kl": trained.learnable}  # idle rows have no KL of their own
        for name in totals:
            for ending, steps in counts.items():
                if name.endswith(ending):
                    totals[name] /= max(int(steps.sum()), 1)
        return totals

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
        rollout = self.anchor.charge(self.policy, rollout, self.micro_batches)
        if self.uses_critic:
            rollout = self._appraise(rollout)
            rollout = replace(rollout, value_targets=self.critic_targets(rollout).where(rollout.learnable, 0))
        credit = self.advantages(rollout).where(rollout.learnable, 0)
        return replace(
            rollout,
            log_probs=rollout.log_probs.where(rollout.learnable, 0),
            advantages=credit,
            weights=self.weights(rollout.learnable).to(credit.dtype),
        )

    @torch.no_grad()
    def _appraise(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the critic's values, those after the last step of episodes cut off included."""

        def values_of(episodes: Rollout) -> torch.Tensor:
            return torch.cat([self.policy.predict_values(part) for part in self.micro_batches(episodes)])

        values = values_of(rollout)
        following = rollout.cut_off(self.policy.obs_from_actions)
        if following is not None:
            rollout = replace(rollout, final_values=values_of(following).where(following.mask, 0)[:, 0])
        return replace(rollout, values=values)

    def loss(self, batch: Rollout) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of some rows of a prepared rollout, and figures that add up over rows.

        Some figures differ: of a `_max` the largest counts; of a `_fraction` and a `_kl` the mean over steps is made.
        """
        assert batch.weights is not None
        log_probs, entropy = self.policy.evaluate_actions(batch, entropy=bool(self.ent_coef))
        log_probs = log_probs.where(batch.learnable, 0)
        objective = self.surrogate(log_probs, batch)
        if entropy is not None:
            objective = objective + self.ent_coef * entropy
        if self.anchor.reference is not None and self.anchor.place == "loss":
            objective = objective - self.anchor.coef * self.anchor.penalty(self.policy, batch, log_probs)
        loss = -batch.total(batch.weights * objective)
        figures = {"train/policy_loss": loss.item()} | self.diagnose(log_probs.detach(), batch)
        if self.uses_critic:
            value_loss = batch.total(batch.weights * self.critic_loss(self.policy.predict_values(batch), batch))
            loss = loss + self.vf_coef * value_loss
            figures["train/value_loss"] = value_loss.item()
        return loss, figures | {"train/loss": loss.item()}

    @torch.no_grad()
    def diagnose(self, log_probs: torch.Tensor, batch: Rollout) -> dict[str, float]:
        """Return figures of how far the log-probabilities are from acting's; see `loss`."""
        gap = log_probs - batch.log_probs
        return {
            "train/approx_kl": batch.total(gap.expm1() - gap).item(),
            "train/logp_gap_max": gap.abs().max().item() if gap.numel() else 0.0,
        }

    def _not_finite(self) -> str:
        """Say why log-probabilities are not finite."""
        weights = sum(int((~parameter.isfinite()).sum()) for parameter in self.policy.parameters())
        if weights:
            return f"the policy has {weights} weights that are NaN or infinite: load others, or lower learning_rate"
        return "log-probabilities are not finite, though all weights are: check observations, or lower learning_rate"

    def _check_log_probs(self, metrics: dict[str, float]) -> None:
        gap = metrics["train/logp_gap_max"]
        if not math.isfinite(gap):
            raise RuntimeError(self._not_finite())
        limit = HALF_LOG_PROB_TOLERANCE if half_precision(self.policy) else LOG_PROB_TOLERANCE
        if not gap <= limit:
            raise RuntimeError(
                f"log-probabilities while acting and training differ by {gap:.3g} nats "
                f"(at most {limit} is rounding): the policy that sampled is not the one being trained, or "
                "its actions have become so unlikely that rounding counts; then lower learning_rate"
            )
