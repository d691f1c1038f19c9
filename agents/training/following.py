"""Settings that are set between two updates: checked, and handed to the parts of the agent that keep a copy."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from .. import processes
from ..rollouts.envs import step_limit
from ..settings import declared_by


def optimizer_settings(agent: Any) -> dict[str, Any]:
    """Return the arguments of an agent's `PolicyOptimizer` besides the policy."""
    return {
        "learning_rate": agent.learning_rate,
        "schedule": agent.lr_schedule,
        "max_grad_norm": agent.max_grad_norm,
        "warmup_updates": agent.warmup_updates,
        "weight_decay": agent.weight_decay,
        "betas": (agent.adam_beta1, agent.adam_beta2),
        "eps": agent.adam_eps,
    }


def anchor_settings(agent: Any) -> tuple[float, str, str, str]:
    """Return the arguments of an agent's `Anchor`."""
    return agent.kl_coef, agent.kl_estimator, agent.kl_in, agent.kl_ratio


def longest_of(agent: Any, env: VectorEnv) -> int:
    """Return the steps of the longest episode possible; 0 if the algorithm does not use it."""
    return step_limit(env, agent.max_steps, "max_steps") if agent.uses_longest else 0


def keep_checked(agent: Any, name: str) -> None:
    """Check a setting; keep its default for the kind of policy if it is None."""
    one = declared_by(type(agent))[name]
    value = one.check(getattr(agent, name))
    setattr(agent, name, one.check(agent.usual(name)) if value is None and one.by_kind else value)


def follow_settings(agent: Any, begun: bool = False) -> None:
    """Check the settings that were set since the last update, and hand them to the parts that keep a copy.

    Args:
        agent: acts by them from the next rollout on.
        begun: whether the policy that training starts from has been copied, if it is needed.

    Raises:
        ValueError: for a value that is not allowed, or a setting that is `fixed`.
    """
    declared = declared_by(type(agent))
    changed = [name for name in declared if getattr(agent, name) is not agent.settings_in_use.get(name, agent)]
    if not changed:
        return
    for name in changed:
        if declared[name].fixed:
            now, before = getattr(agent, name), agent.settings_in_use[name]
            raise ValueError(
                f"{name}={now!r} was set after the agent was made with {before!r}; pass it to the constructor or load"
            )
        keep_checked(agent, name)
    agent.policy_optimizer.use(**optimizer_settings(agent))
    if agent.teaching is None:
        agent.anchor.use(*anchor_settings(agent))
        if begun and agent.kl_coef and agent.anchor.reference is None:
            raise ValueError(
                f"kl_coef={agent.kl_coef:g} needs the policy that training started from, which was not kept; "
                "begin with a kl_coef above 0, such as 1e-9"
            )
    agent.reward_scale.gamma, agent.failure_watch.max_share = agent.gamma, agent.max_failed_share
    agent.longest = longest_of(agent, agent.env)
    agent.own_episodes = processes.check_episodes(agent.episodes_per_update, agent.group_size)
    agent.settings_in_use = {name: getattr(agent, name) for name in declared}
