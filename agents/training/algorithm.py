"""The interface of algorithms: declarations, and methods with their defaults. `loop.py` has the loop that calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gymnasium.vector import VectorEnv

from ..estimators import kl, losses
from ..estimators.returns import return_to_go
from ..rollout import CLIPPED, Batch, Rollout
from ..settings import absent
from .extras import evaluated, with_extras
from .metrics import Reduce
from .settings import AgentSettings
from .state import Stateful
from .update import Figures, check_per_step, correction, diagnosed

if TYPE_CHECKING:
    from .teacher import Lesson


def _advantages_stay(cls: type) -> bool:
    """Return the claim of the class body with the surrogate; False if one of its children denies it."""
    for base in cls.__mro__:
        body = vars(base)
        if "surrogate" in body or "loss" in body:
            return bool(body.get("advantages_stay", False))
        if not body.get("advantages_stay", True):
            return False
    return False


class Algorithm(AgentSettings):
    """The declarations and methods that distinguish one agent from another.

    A declaration that depends on settings is `by_settings(lambda self: ...)`.

    Attributes:
        name: under which checkpoints and commands know this class; empty for a class of your own.
        default_group_size: episodes that share a prompt, unless the user says.
        compares_groups: whether an episode is compared with the others of its prompt.
        uses_critic: whether the policy needs a critic.
        bootstraps: whether the critic is fitted to advantages plus values; if not, to the return from each step on.
        extras: names of what `advantages` reads in `rollout.extras`, made by passes without gradient; see `extras.py`.
        lesson: the settings of learning from a teacher; None for an agent without one.
        needs_teacher: whether there is a policy to learn from, besides the environment.
        teaches_itself: whether it is the trained policy or a copy of it, unless another one is given.
        advantages_stay: whether the surrogate has no gradient, in any pass, where all advantages of `prepare` are 0, so
            that such rows need no pass (`skip_idle_rows`). It counts in the class body that defines `surrogate` or
            `loss`, and is False for one that defines them and does not say it.
        importance_in_surrogate: whether the surrogate has the importance weights of `mismatch` itself.
        carried: the algorithm's state between updates, by its name in a checkpoint.
        figures: of the algorithm, for the log of every update.
        reductions: how each metric of `loss` is combined over micro-batches; by default added up. A share needs MEAN.
    """

    name: ClassVar[str] = ""
    default_group_size: ClassVar[int] = 1
    compares_groups: ClassVar[bool] = False
    uses_critic: ClassVar[bool] = False
    bootstraps: ClassVar[bool] = False
    extras: ClassVar[tuple[str, ...]] = ()
    lesson: ClassVar[Lesson | None] = None
    needs_teacher: ClassVar[bool] = False
    teaches_itself: ClassVar[bool] = False
    advantages_stay: ClassVar[bool] = True
    importance_in_surrogate: ClassVar[bool] = False
    carried: ClassVar[Mapping[str, Stateful]] = MappingProxyType({})
    figures: ClassVar[Mapping[str, float]] = MappingProxyType({})
    reductions: ClassVar[Mapping[str, Reduce]] = {
        "train/approx_kl": Reduce.MEAN_OF_TRAINED,
        "train/logp_gap_max": Reduce.MAX,
        "train/clip_fraction": Reduce.MEAN,
        "train/taught_frac": Reduce.MEAN,
    }

    # Settings that only some algorithms have.

    target_kl = off_policy_mask = value_warmup = teacher = teacher_temperature = absent()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.advantages_stay = _advantages_stay(cls)
        own_and_inherited = (vars(base).get("reductions", {}) for base in reversed(cls.__mro__))
        cls.reductions = {name: reduce for named in own_and_inherited for name, reduce in named.items()}
        for name, reduce in cls.reductions.items():
            if not isinstance(reduce, Reduce):
                raise TypeError(f"{cls.__name__}.reductions[{name!r}] is {reduce!r}; use Reduce.MEAN, SUM or MAX")

    def _check_together(self) -> None:
        """Check the settings together, also before each update; `setup` checks those that are for the environment."""
        super()._check_together()
        if self.kl_ratio != "none" and (self.kl_in != "loss" or self.kl_estimator == kl.EXACT):
            raise ValueError(
                f"kl_ratio={self.kl_ratio!r} needs kl_in='loss' and an estimate from the sampled actions, got "
                f"kl_in={self.kl_in!r} and kl_estimator={self.kl_estimator!r}; use kl_ratio='none', or k2 in the loss"
            )

    # In the order in which an update asks; `advantages` and `weights` have no default.

    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        """Check the settings with the policy and an environment, and make the algorithm's further state.

        Called before an environment is played in: at the end of the constructor, and by `set_env`. Modules and
        parameters that it sets as attributes are trained and saved with the policy; see `learned.py`.

        Args:
            env: that is played in next.
            group_size: its episodes per prompt; None without groups.
        """

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the credit of each step [N, T], made of episodes that are `ok` alone; masked cells may hold anything.

        An actor-critic's targets are made of these; transform them in `prepare`, as PPO does, to leave those alone.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks advantages(rollout), the credit of each step")

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the weight of each step in the loss [N, T], given which steps count (bool [N, T]); 0 elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} lacks weights, such as staticmethod(aggregation.token_mean)")

    def prepare(self: Any, rollout: Rollout) -> Batch:
        """Return everything that an update needs: rewards with the KL penalty, values, advantages and weights."""
        if not len(rollout):
            raise ValueError(f"{type(self).__name__}.prepare got no episode; keep one or more for super().prepare")
        rollout = with_extras(self, rollout)
        steps, more = rollout.learnable, {}
        if self.uses_critic:
            check_per_step(self.policy, "values", rollout.values, steps)
        advantages, weights = self.advantages(rollout), self.weights(steps)
        for name, returned in (("advantages", advantages), ("weights", weights)):
            check_per_step(self, name, returned, steps)
        if advantages.requires_grad:
            raise ValueError(
                f"{type(self).__name__}.advantages returns numbers with a gradient, which is dropped; detach them, "
                "and put what learns into surrogate or loss"
            )
        if self.uses_critic:
            returns = return_to_go(rollout.rewards, steps, self.gamma)
            targets = advantages + rollout.required("values") if self.bootstraps else returns
            more["value_targets"] = targets.where(steps, 0)
        if "acting_log_probs" in rollout.extras and self.mismatch_mode is not None:
            from ..estimators.mismatch import importance_weights  # where another policy acted

            acting, bounds = rollout.sampling_log_probs, (self.mismatch_min, self.mismatch_max)
            more["importance"] = importance_weights(rollout.log_probs, acting, steps, self.mismatch_mode, *bounds)
        precision = torch.promote_types(advantages.dtype, weights.dtype)  # for whole numbers, such as ranks
        return Batch.of(
            rollout.with_extras(**more),
            log_probs=rollout.log_probs.where(steps, 0),
            advantages=advantages.where(steps, 0).to(precision),
            weights=weights.to(precision),
        )

    def batches(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch of each optimizer step of an update: by default one step, on everything."""
        yield batch

    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the surrogate, to be differentiated, [N, T]: by default A log π; masked cells may hold anything.

        One that clips says where by `batch.note_clipped`.
        """
        return losses.policy_gradient(log_probs, batch.advantages)

    def critic_loss(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the critic's loss at each step [N, T]: by default, its squared error."""
        return losses.squared_error(values, batch.required("value_targets"))

    def loss(self: Any, batch: Batch) -> tuple[torch.Tensor, Figures]:
        """Return the loss of some rows of a prepared rollout, and their metrics, tensors of one number.

            L = - Σ_i Σ_t w_{i,t} (m_{i,t} surrogate_{i,t} + c_H H_{i,t}) + c_V Σ_i Σ_t w_{i,t} (V - target)_{i,t}²

        With `reply_coef`, that times the mean of -log π over the tokens of replies is added. m is 1, unless another
        policy acted and `mismatch` corrects for it, or `off_policy_mask` leaves steps out.
        """
        anchor, reply_loss = self.anchor, None
        want = ["log_probs"] + ["entropy"] * bool(self.ent_coef) + [anchor.divergence] * anchor.wants_kl
        if "reply_weights" in batch.extras:
            from ..language.replies import with_reply_loss  # of text alone

            found, reply_loss = with_reply_loss(self, batch, tuple(want))
        else:
            found = evaluated(self.policy, batch, tuple(want), anchor.reference)
        log_probs = found["log_probs"].where(batch.learnable, 0)
        batch.noted()  # forgets what an earlier pass noted
        surrogate = self.surrogate(log_probs, batch)
        check_per_step(self, "surrogate", surrogate, log_probs)
        noted = batch.noted()
        clipped = noted.pop(CLIPPED, None)
        factor, kept = correction(self, log_probs.detach(), batch)
        terms = surrogate if factor is None else factor * surrogate
        if self.ent_coef:
            terms = terms + self.ent_coef * found["entropy"]
        if anchor.is_in_loss:
            terms = terms - anchor.loss_term(self.policy, batch, log_probs, found)
        loss = -batch.total(batch.weights * terms)
        if self.actor_waits:
            loss = torch.zeros_like(loss)
        metrics = {"train/policy_loss": loss.detach()} | diagnosed(self, log_probs.detach(), batch)
        metrics |= {name: batch.total(values) for name, values in noted.items()}
        if clipped is not None or kept is not None:
            stopped = ~(batch.mask if kept is None else kept) | (~batch.mask if clipped is None else clipped)
            has_advantage = batch.learnable & (batch.advantages != 0)  # others have no gradient that a clip could stop
            metrics[CLIPPED] = (stopped & has_advantage).sum()
        if reply_loss is not None and not self.actor_waits:
            loss = loss + self.reply_coef * reply_loss
            metrics["train/reply_loss"] = reply_loss.detach()
        if self.uses_critic:
            wrong = self.critic_loss(self.policy.values(batch), batch)
            check_per_step(self, "critic_loss", wrong, log_probs)
            value_loss = batch.total(batch.weights * wrong)
            loss = loss + self.vf_coef * value_loss
            metrics["train/value_loss"] = value_loss.detach()
        return loss, metrics | {"train/loss": loss.detach()}
