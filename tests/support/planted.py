"""Agents with a mistake, each of which the exact check has to find."""

from dataclasses import replace

import torch

from rlenv.agents import GRPO, RLOO, Reinforce, ReinforceBaseline
from rlenv.agents.estimators import returns, scaling
from rlenv.agents.training.proximal import PassesAgent


class ClipsTheWrongWay(GRPO):
    """Takes the larger of the two surrogates, so that a step may go further out, and not come back."""

    def surrogate(self, log_probs, batch):
        ratio, a = (log_probs - batch.log_probs).exp(), batch.advantages
        return torch.maximum(ratio * a, ratio.clamp(1 - self.clip_range, 1 + self.clip_range) * a)


class NeverClips(GRPO):
    def surrogate(self, log_probs, batch):
        return (log_probs - batch.log_probs).exp() * batch.advantages


class OneEpisode(GRPO):
    """Trains on the first row in every step."""

    def batches(self, batch):
        for _ in range(self.num_epochs * self.num_minibatches):
            yield batch.select(slice(0, 1))


class ForgottenWeights(GRPO):
    """Splits the rollout, and leaves each part the weights that it had in the whole."""

    def batches(self, batch):
        yield from batch.split(2)


class ForgetsTheOldPolicy(GRPO):
    """Compares every step with the policy just before it, so that the ratio stays 1."""

    def batches(self, batch):
        for part in super().batches(batch):
            yield replace(part, log_probs=self.policy.evaluate(part)["log_probs"].detach())


class CountsTwice(RLOO):
    """Gives the first prompt of a rollout twice the weight."""

    def prepare(self, rollout):
        batch = super().prepare(rollout)
        first = batch.groups == batch.groups[0]
        return replace(batch, weights=batch.weights * (1 + first.double())[:, None])


class OwnReward(ReinforceBaseline):
    """Subtracts the mean of the group, which contains the episode itself."""

    def advantages(self, rollout):
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        same = (rollout.groups[:, None] == rollout.groups).to(gains)
        return gains - same @ gains / same.sum(1, keepdim=True)


class DiscountsFromTheEnd(Reinforce):
    """Multiplies the last reward by 1, and the first by the highest power."""

    def advantages(self, rollout):
        left = rollout.mask.sum(1, keepdim=True) - 1 - torch.arange(rollout.mask.shape[1])
        powers = self.gamma ** left.clamp(min=0).double()
        return (rollout.rewards * powers).where(rollout.mask, 0).sum(1, keepdim=True).expand_as(rollout.rewards)


class ForgetsTheDiscount(RLOO):
    """Adds up the rewards as they are."""

    def advantages(self, rollout):
        gains = rollout.returns[:, None].expand_as(rollout.rewards)
        same = (rollout.groups[:, None] == rollout.groups).double().fill_diagonal_(0)
        return gains - same @ gains / same.sum(1, keepdim=True)


class Whitens(RLOO):
    """Divides by the standard deviation of the group."""

    def advantages(self, rollout):
        return scaling.standardize_groups(super().advantages(rollout), rollout)


class IdleTerm(RLOO):
    """Has an auxiliary loss that does not vanish where A = 0, and says that there is none."""

    advantages_stay = True

    def surrogate(self, log_probs, batch):
        return super().surrogate(log_probs, batch) - 0.1 * (log_probs + 1).square()


class AnotherPass(RLOO):
    """Adds a term that no log-probability of an action shows, from a pass of its own."""

    def loss(self, batch):
        loss, figures = super().loss(batch)
        return loss - 0.1 * batch.total(self.policy.evaluate(batch, ("entropy",))["entropy"]), figures


class PenaltyInAnotherPass(GRPO):
    """Holds the ratio near 1, where the penalty has no gradient."""

    def loss(self, batch):
        loss, figures = super().loss(batch)
        ratio = (self.policy.evaluate(batch)["log_probs"] - batch.log_probs).exp()
        return loss + batch.total((ratio - 1).square()), figures


class IdlePenalty(PassesAgent, RLOO):
    """Has a term that is seen in later steps only, and says that there is none."""

    advantages_stay = True

    def surrogate(self, log_probs, batch):
        ratio = (log_probs - batch.log_probs).exp()
        return ratio * batch.advantages - 5.0 * (ratio - 1).square()


PLANTED = {  # what the verdict has to say
    ClipsTheWrongWay: "clips the wrong way",
    NeverClips: "does not clip",
    OneEpisode: "trains on 1 of 4 episodes",
    ForgottenWeights: "weigh episodes 0.5 times",
    ForgetsTheOldPolicy: "later steps forget the policy before the update",
    CountsTwice: "prompts count 2 : 1",
    OwnReward: "own reward in the baseline, or a factor: dA/dR = 0.5",
    DiscountsFromTheEnd: "wrong discount",
    ForgetsTheDiscount: "gamma has no effect",
    Whitens: "normalized in each group",
    AnotherPass: "a term that stays where A = 0",
    PenaltyInAnotherPass: "a penalty on the ratio",
    IdleTerm: "wrong claim: advantages_stay",
    IdlePenalty: "wrong claim: advantages_stay",
}
