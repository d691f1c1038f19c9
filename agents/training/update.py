"""From a rollout to new weights: prepare, split into passes and micro-batches, differentiate the loss, step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from .. import processes
from ..devices import to_floats
from ..estimators.mismatch import effective_share, episode_weights, importance_weights
from ..fsdp import gather_weights, passes, release_weights
from ..policies import ControlPolicy, Policy
from ..rollout import ENV_RETURN, Batch, Rollout, RolloutT
from .divergence import check_log_probs, fault_of
from .metrics import Reduce, critic_metrics, mismatch_metrics, sampled_metrics
from .optimizer import PolicyOptimizer
from .reward_scale import RewardScale

Figures = dict[str, torch.Tensor]
WEIGHTS = ("ess/weights", "ess/squares", "ess/episodes")  # sums over episodes, of which `train/ess` is made


class Update:
    """The update of an agent's policy, the same for every algorithm:

        L = - Σ_i Σ_t w_{i,t} (m_{i,t} surrogate_{i,t} + c_H H_{i,t}) + c_V Σ_i Σ_t w_{i,t} (V(s_{i,t}) - target_{i,t})²

    With `reply_coef`, that times the mean of -log π over the tokens of replies is added.

    m is 1, unless another policy acted and `mismatch` corrects for it, or an option masks steps; see
    `Agent.correction`.

    Args:
        agent: says what its advantages, surrogate and weights are, and has the settings.

    Raises:
        ValueError: for `reply_coef` with a policy that does not read text.

    Attributes:
        reward_scale: of `normalize_rewards`.
        watchers: functions called with every prepared rollout, before its first optimizer step.
    """

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.policy: Policy = agent.policy
        self.optimizer: PolicyOptimizer = agent.policy_optimizer
        self.reward_scale = RewardScale(agent.gamma)
        self.watchers: list[Callable[[Batch], None]] = []
        if agent.reply_coef and self.policy.kind != "language-model":
            kind = type(self.policy).__name__
            raise ValueError(f"reply_coef={agent.reply_coef:g}: a {kind} reads no replies; leave it at 0")

    def __call__(self, rollout: Rollout) -> tuple[dict[str, float], int]:
        """Take the optimizer steps of a rollout; return its metrics, averaged over them, and how many steps it had."""
        if self.watchers:
            rollout = replace(rollout, extras=rollout.extras | {ENV_RETURN: rollout.returns})
        prepared = self.agent.prepare(self.reward_scale(rollout) if self.agent.normalize_rewards else rollout)
        for watch in self.watchers:
            watch(prepared)
        steps: list[dict[str, float]] = []
        learned, most = False, getattr(self.agent, "target_kl", None)  # of an agent that takes several passes
        for batch in self.agent.batches(prepared):
            metrics = self.backward(batch)
            if most is not None and steps and metrics["train/approx_kl"] > most:
                break
            fault = fault_of(self.policy, metrics)
            # Later steps train another policy than the one that sampled, and so does the first one of a rollout written
            # ahead, whose engine the guard has checked.
            if not fault and not steps and not self.agent.staleness:
                check_log_probs(self.policy, metrics)
            share = metrics["train/ess"] ** 0.5 if self.agent.scale_by_ess else 1.0
            norm = self.optimizer.step(fault, new_update=not steps, share=share)
            steps.append(metrics | {"train/grad_norm": norm})
            learned |= self.optimizer.stepped
        if isinstance(self.policy, ControlPolicy):
            self.policy.observe(prepared)
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        skipped = float(self.optimizer.total_skipped)
        first = {"train/logp_gap_max": steps[0]["train/logp_gap_max"], "train/skipped_updates": skipped}
        if most is not None:
            means["train/optimizer_steps"] = float(len(steps))
        figures = sampled_metrics(prepared) | critic_metrics(prepared) | means | first | mismatch_metrics(prepared)
        return figures, int(prepared.learnable.sum()) if learned else 0

    # What is known before the first step.

    def prepare(self, rollout: Rollout) -> Batch:
        """Return a rollout with the KL penalty in its rewards, values, advantages and weights."""
        agent = self.agent
        policies = [each for each in (self.policy, agent.anchor.reference) if each is not None]
        gather_weights(*policies)  # here, where no process is without rows
        rollout = processes.with_parts(rollout, processes.own_rows(self.policy.costs(rollout)), agent.evaluated)
        release_weights(*policies)
        steps = rollout.learnable
        advantages = self._per_step("advantages", agent.advantages(rollout), steps)
        targets = agent.critic_targets(rollout, advantages).where(steps, 0) if agent.uses_critic else None
        advantages = advantages.where(steps, 0)
        importance = None
        if agent.mismatch_mode is not None and rollout.acting_log_probs is not None:
            bounds = agent.mismatch_min, agent.mismatch_max
            acting, mode = rollout.acting_log_probs, agent.mismatch_mode
            importance = importance_weights(rollout.log_probs, acting, steps, mode, *bounds)
        return Batch.of(
            rollout,
            log_probs=rollout.log_probs.where(steps, 0),
            value_targets=targets,
            advantages=advantages,
            weights=self._per_step("weights", agent.weights(steps), steps).to(advantages.dtype),
            importance=importance,
            reply_weights=self._reply_weights(rollout) if agent.reply_coef and rollout.positions is not None else None,
        )

    def _reply_weights(self, rollout: Rollout) -> torch.Tensor:
        """Return 1/M for the episodes with a verdict [N], with M the tokens of their replies."""
        whole, _ = rollout.with_replies()
        replies = (whole.lengths - rollout.lengths).where(rollout.ok, 0).sum()
        return rollout.ok / replies.clamp(min=1).to(rollout.log_probs.dtype)

    def evaluated(self, rollout: Rollout) -> Rollout:
        """Return a rollout with what passes without gradient say.

        Log-probabilities of a training pass, the reference's KL, the norms of the scores, the critic's values.
        """
        if self.agent.mismatch_mode is not None:
            trained = self.in_passes(lambda part: self.policy.evaluate(part)["log_probs"], rollout)
            rollout = replace(rollout, log_probs=trained, acting_log_probs=rollout.log_probs)
        rollout = self.agent.anchor.add_kl_penalty(self.policy, rollout, self.micro_batches)
        if self.agent.uses_score_norms:
            norms = self.in_passes(lambda part: self.policy.evaluate(part, ("score_norms",))["score_norms"], rollout)
            rollout = replace(rollout, score_norms=norms)
        return self._with_values(rollout) if self.agent.uses_critic else rollout

    def _with_values(self, rollout: Rollout) -> Rollout:
        """Return a rollout with the critic's values, those after the last step of truncated episodes included."""
        values = self.in_passes(self.policy.values, rollout)
        following = rollout.after_truncation(self.policy.obs_from_actions)
        if following is not None:
            after = self.in_passes(self.policy.values, following)
            rollout = replace(rollout, final_values=after.where(following.mask, 0)[:, 0])
        return replace(rollout, values=values)

    @torch.no_grad()
    def in_passes(self, evaluate: Callable[[Rollout], torch.Tensor], rollout: Rollout) -> torch.Tensor:
        """Return the figures of each episode [N, ...], in passes that fit the memory, without gradient."""
        return torch.cat([evaluate(part) for part in self.micro_batches(rollout)])

    def micro_batches(self, rollout: RolloutT) -> Iterator[RolloutT]:
        """Yield the parts that are evaluated in one pass each."""
        tokens = self.agent.micro_batch_tokens
        costs = None if tokens is None else self.policy.costs(rollout)
        return rollout.split(self.agent.micro_batch_size, costs, tokens)

    def _per_step(self, method: str, returned: Any, steps: torch.Tensor) -> torch.Tensor:
        """Return the result of a method of the agent; an error unless it has the shape of the steps [N, T]."""
        shape, wanted = tuple(getattr(returned, "shape", ())), tuple(steps.shape)
        if shape != wanted:
            name = f"{type(self.agent).__name__}.{method}"
            raise ValueError(f"{name} returns {shape}; return one number per step, [N, T] = {wanted}")
        return returned

    # The gradient of one optimizer step.

    def loss(self, batch: Batch) -> tuple[torch.Tensor, Figures]:
        """Return the loss of some rows of a prepared rollout, and their metrics; see `Agent.reductions`.

        Metrics are tensors of one number, read once per optimizer step.
        """
        agent, reply_loss = self.agent, None
        want = ("log_probs", *("entropy",) * bool(agent.ent_coef), *(agent.anchor.divergence,) * agent.anchor.wants_kl)
        if batch.reply_weights is None:
            found = self.policy.evaluate(batch, want, agent.anchor.reference)
        else:
            found, reply_loss = self._with_reply_loss(batch, want)
        log_probs = found["log_probs"].where(batch.learnable, 0)
        objective = self._per_step("surrogate", agent.surrogate(log_probs, batch), log_probs)
        correction = agent.correction(log_probs.detach(), batch)
        if correction is not None:
            objective = correction * objective
        if agent.ent_coef:
            objective = objective + agent.ent_coef * found["entropy"]
        if agent.anchor.is_in_loss:
            objective = objective - agent.anchor.loss_term(self.policy, batch, log_probs, found)
        loss = -batch.total(batch.weights * objective)
        if agent.actor_waits:
            loss = torch.zeros_like(loss)
        metrics = {"train/policy_loss": loss.detach()} | agent.diagnose(log_probs.detach(), batch)
        if reply_loss is not None and not agent.actor_waits:
            loss = loss + agent.reply_coef * reply_loss
            metrics["train/reply_loss"] = reply_loss.detach()
        if agent.uses_critic:
            value_loss = batch.total(batch.weights * agent.critic_loss(self.policy.values(batch), batch))
            loss = loss + agent.vf_coef * value_loss
            metrics["train/value_loss"] = value_loss.detach()
        return loss, metrics | {"train/loss": loss.detach()}

    def _with_reply_loss(self, batch: Batch, want: tuple[str, ...]) -> tuple[Figures, torch.Tensor]:
        """Return the evaluated quantities of each step [N, T], and the mean of -log π over the tokens of replies."""
        assert batch.reply_weights is not None
        whole, place = batch.with_replies()
        found = self.policy.evaluate(whole, want, self.agent.anchor.reference)
        replies = whole.mask & ~torch.zeros_like(whole.mask).scatter(1, place, True)
        surprise = -(batch.reply_weights[:, None] * found["log_probs"]).where(replies, 0).sum()
        return {name: values.gather(1, place).where(batch.mask, 0) for name, values in found.items()}, surprise

    @torch.no_grad()
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> Figures:
        """Return metrics of how far the log-probabilities are from those before the update, and sums of weights."""
        gap, known = log_probs - batch.log_probs, self.with_gradient(batch)  # the others are not if `skip_idle_rows`
        moved, rows = gap.where(known, 0), known.any(1)
        weights = episode_weights(log_probs, batch.sampling_log_probs, known).where(rows, 0)
        return {
            "train/approx_kl": batch.total(moved.expm1() - moved),
            "train/logp_gap_max": gap.abs().max() if gap.numel() else gap.sum(),
            **dict(zip(WEIGHTS, (weights.sum(), weights.square().sum(), rows.sum()), strict=True)),
        }

    def backward(self, batch: Batch) -> dict[str, float]:
        """Make the gradient of one optimizer step, in micro-batches; return its metrics."""
        self.optimizer.zero_grad()
        with_gradient = self.with_gradient(batch)
        trained = batch.select(self.rows_to_train(with_gradient))
        own = trained.select(processes.own_rows(self.policy.costs(trained)))
        micro_batches = self.micro_batches(own) if len(own) else ()
        figures: list[Figures] = []
        for rows, is_own in passes(self.policy, micro_batches, trained.select(slice(1))):
            loss, metrics = self.agent.loss(rows)
            loss = loss if is_own else 0 * loss  # a pass that only others need, who gather weights in it
            loss.backward()
            self.optimizer.weights.add_gradients()
            figures.append(metrics if is_own else {})
        processes.sum_gradients(self.optimizer.weights.masters)
        counts = {Reduce.MEAN.name: batch.learnable.sum(), Reduce.MEAN_OF_TRAINED.name: with_gradient.sum()}
        *parts, counted = to_floats([*figures, counts])
        totals: dict[str, float] = {}
        for part in (part for parts in processes.gather(parts) for part in parts):
            self._add_metrics(totals, part)
        totals["train/ess"] = effective_share(*(totals.pop(name, 0.0) for name in WEIGHTS))
        for name, reduction in self.agent.reductions.items():
            if name in totals and reduction.name in counted:
                totals[name] /= max(counted[reduction.name], 1)
        return totals

    def _add_metrics(self, totals: dict[str, float], more: Mapping[str, float]) -> None:
        for name, value in more.items():
            add = self.agent.reductions.get(name, Reduce.SUM).add
            totals[name] = add(totals[name], value) if name in totals else value

    # Rows without a gradient, which need no pass.

    @property
    def may_be_idle(self) -> bool:
        """Whether a row has no gradient if its advantages are all zero: no other term of the loss has one."""
        agent = self.agent
        other_terms = agent.ent_coef or agent.reply_coef or agent.uses_critic or agent.anchor.is_in_loss
        return agent.advantages_stay and not other_terms

    def with_gradient(self, batch: Batch) -> torch.Tensor:
        """Return the learnable steps of the rows that have a gradient, bool [N, T]."""
        return batch.learnable & (batch.advantages != 0).any(1, keepdim=True) if self.may_be_idle else batch.learnable

    def rows_to_train(self, with_gradient: torch.Tensor) -> slice | torch.Tensor:
        """Return the rows that have a pass, a slice or an index; at least one. The argument: see `with_gradient`."""
        if not (self.agent.skip_idle_rows and self.may_be_idle):
            return slice(None)
        rows = with_gradient.any(1).nonzero()[:, 0]
        if len(rows) == len(with_gradient):
            return slice(None)
        return rows if len(rows) else slice(0, 1)
