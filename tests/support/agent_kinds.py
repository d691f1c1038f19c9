"""Agents that take several passes over a rollout, and those that have a teacher."""

import torch

from rlenv.agents import AGENTS, Policy
from rlenv.agents.training.proximal import PassesAgent

PASSES = [name for name, cls in AGENTS.items() if issubclass(cls, PassesAgent)]


def fitting(name, settings):
    """Return the settings without those of the KL anchor, for an agent that has a teacher instead."""
    anchors = ("kl_coef", "kl_in", "kl_estimator", "kl_ratio")
    return {key: value for key, value in settings.items() if not (AGENTS[name].needs_teacher and key in anchors)}


def with_teacher(agent):
    """Return the agent, with a copy of its policy that was moved a little as its teacher, if it needs one."""
    if agent.needs_teacher and agent.anchor.reference is None:
        teacher = Policy.frozen_copy(agent.policy)  # whole, also on the base of an adapter, which would move with it
        with torch.no_grad():
            for weight in teacher.parameters():
                moved = 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
                weight.add_(moved.to(weight.device))
        if (adapter := getattr(teacher, "adapter", None)) is not None:
            settings = adapter.model.peft_config["default"]
            settings.base_model_name_or_path = None  # a base that was moved cannot be read again by its name
        agent.anchor.reference = teacher
    return agent
