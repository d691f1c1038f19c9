"""Extras of an update's episodes, from passes without gradient, made in one place for every algorithm.

An algorithm declares by name what its advantages need (`Agent.extras`) and finds it in `rollout.extras`. What the KL
anchor, the critic, `mismatch`, `reply_coef` and a teacher need is made by their settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from .. import processes
from ..fsdp import gather_weights, passes, release_weights
from ..policies.choosing import LOG_PROBS, Evaluated, Want
from ..rollout import Rollout, RolloutT

PER_STEP: dict[str, Callable[[Any, Rollout], torch.Tensor]] = {  # of an agent and some episodes, [N, T]
    "score_norms": lambda agent, part: evaluated(agent.policy, part, ("score_norms",))["score_norms"],
    "teacher_log_probs": lambda agent, part: evaluated(_teacher(agent), part.as_taught, LOG_PROBS)["log_probs"],
    "teacher_kl": lambda agent, part: evaluated(agent.policy, part, ("kl",), _teacher(agent))["kl"],
}


def evaluated(policy: Any, rollout: Rollout, want: Want, reference: Any = None) -> Evaluated:
    """Return the result of `Policy.evaluate`, checked to be whole.

    Raises:
        ValueError: for a policy that leaves out what is wanted.
    """
    found = policy.evaluate(rollout, want, reference)
    if missing := set(want).difference(found if isinstance(found, dict) else ()):
        name = f"{type(policy).__name__}.evaluate"
        raise ValueError(f"{name} returns no {', '.join(sorted(missing))}; return all that `want` names, in a dict")
    return found


def _teacher(agent: Any) -> Any:
    if agent.anchor.reference is None:
        name = f"{type(agent).__name__}.extras"
        raise ValueError(
            f"{name} names what a teacher makes: set kl_coef above 0, or derive the class from Distillation"
        )
    return agent.anchor.reference


def check_extras(agent: Any) -> None:
    """Check the extras that an agent declares.

    Raises:
        ValueError: for a name in its class's `extras` that nothing makes, or replies to a policy that reads none.
    """
    if agent.reply_coef and agent.policy.kind != "language-model":
        kind = type(agent.policy).__name__
        raise ValueError(f"reply_coef={agent.reply_coef:g}: a {kind} reads no replies; leave it at 0")
    for name in agent.extras:
        if name not in PER_STEP:
            allowed = ", ".join(PER_STEP)
            raise ValueError(f"{type(agent).__name__}.extras names {name!r}, which nothing makes; allowed: {allowed}")


def with_extras(agent: Any, rollout: Rollout) -> Rollout:
    """Return a rollout with everything that is known before an update; all processes call this together."""
    rollout = agent.anchor.hinted(rollout)
    policies = [each for each in (agent.policy, agent.anchor.reference) if each is not None]
    gather_weights(*policies)  # here, where no process is without rows
    own = rollout.select(processes.own_rows(agent.policy.costs(rollout)))
    made = _evaluated(agent, own) if len(own) else own
    rollout = made if processes.size() == 1 else processes.with_parts(rollout, own, made)
    release_weights(*policies)
    if agent.reply_coef and rollout.positions is not None:
        from ..language.replies import reply_weights  # of text alone

        rollout = rollout.with_extras(reply_weights=reply_weights(rollout))
    return rollout


def _evaluated(agent: Any, rollout: Rollout) -> Rollout:
    """Return episodes with log-probabilities of a training pass, the reference's KL, the declared extras and values."""
    policy = agent.policy
    if agent.mismatch_mode is not None:
        trained = in_passes(agent, lambda part: policy.evaluate(part)["log_probs"], rollout)
        rollout = replace(rollout, log_probs=trained).with_extras(acting_log_probs=rollout.log_probs)
    if agent.anchor.is_compared:
        rollout = _with_reference(agent, rollout)
    for name in agent.extras:
        made = in_passes(agent, lambda part: PER_STEP[name](agent, part), rollout)  # noqa: B023
        rollout = rollout.with_extras(**{name: made})
    return _with_values(agent, rollout) if agent.uses_critic else rollout


def _with_reference(agent: Any, rollout: Rollout) -> Rollout:
    """Return a rollout with the reference's log-probabilities, and with rewards less β·KL if it is paid there."""
    anchor = agent.anchor
    theirs = in_passes(agent, lambda part: anchor.reference.evaluate(part)["log_probs"], rollout)
    rollout = rollout.with_extras(ref_log_probs=theirs)
    if agent.kl_in == "reward":
        penalty = in_passes(agent, lambda part: anchor.penalty(agent.policy, part, part.log_probs), rollout)
        rollout = replace(rollout, rewards=rollout.rewards - agent.kl_coef * penalty)
    return rollout


def _with_values(agent: Any, rollout: Rollout) -> Rollout:
    """Return a rollout with the critic's values, also after the last step of truncated episodes."""
    values, first_only = in_passes(agent, agent.policy.values, rollout), agent.policy.obs_from_actions
    remembers = not first_only and agent.policy.initial_state(1) is not None
    following = rollout.through_truncation() if remembers else rollout.after_truncation(first_only)
    if following is not None:
        after = in_passes(agent, agent.policy.values, following).where(following.mask, 0)
        last = (following.lengths - 1).clamp(min=0)
        rollout = rollout.with_extras(final_values=after.gather(1, last[:, None])[:, 0])
    return replace(rollout, values=values)


@torch.no_grad()
def in_passes(agent: Any, evaluate: Callable[[Rollout], torch.Tensor], rollout: Rollout) -> torch.Tensor:
    """Return the figures of each episode [N, ...], in passes that fit the memory, without gradient."""
    return torch.cat([evaluate(part) for part in micro_batches(agent, rollout)])


def own_passes(agent: Any, rollout: RolloutT) -> Iterator[tuple[RolloutT, bool]]:
    """Yield the training passes of this process over its rows, each with whether it counts; see `fsdp.passes`."""
    own = rollout.select(processes.own_rows(agent.policy.costs(rollout)))
    return passes(agent.policy, micro_batches(agent, own), rollout.select(slice(1)))


def micro_batches(agent: Any, rollout: RolloutT) -> Iterator[RolloutT]:
    """Yield the parts of a rollout that are evaluated in one pass each; `agent` may be a warm start, too."""
    tokens = agent.micro_batch_tokens
    costs = None if tokens is None else agent.policy.costs(rollout)
    return rollout.split(agent.micro_batch_size, costs, tokens)
