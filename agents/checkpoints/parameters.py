"""Weights and optimizer state by name, as stable-baselines3's `get_parameters` and `set_parameters` have them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..core.checks import first_line
from .checkpoint import read_checkpoint

POLICY, OPTIMIZER = "policy", "policy.optimizer"


def get(agent: Any) -> dict[str, dict[str, Any]]:
    """Return copies; see `Agent.get_parameters`."""
    _check_whole(agent, "get_parameters")
    return copy.deepcopy({POLICY: dict(agent.policy.state_dict()), OPTIMIZER: agent.policy_optimizer.state_dict()})


def put(agent: Any, given: Mapping[str, Any] | str | Path, exact_match: bool) -> None:
    """Replace them; see `Agent.set_parameters`."""
    _check_whole(agent, "set_parameters")
    if not isinstance(given, Mapping):
        given = _of_checkpoint(agent, Path(given))
    known = {POLICY, OPTIMIZER}
    if given.keys() - known or (exact_match and given.keys() != known):
        raise ValueError(
            f"set_parameters takes {POLICY!r} and {OPTIMIZER!r}, as get_parameters returns them, or one of them with "
            f"exact_match=False; got {', '.join(map(repr, given)) or 'nothing'}"
        )
    if POLICY in given:
        weights = _checked(agent.policy.state_dict(), given[POLICY], exact_match)
        agent.policy.load_state_dict(weights, strict=False)
        agent.policy.release()
    if OPTIMIZER in given:
        try:
            agent.policy_optimizer.load_state_dict(copy.deepcopy(given[OPTIMIZER]))
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"set_parameters: {OPTIMIZER!r} does not fit: {first_line(error)}") from error


def _checked(own: Mapping[str, torch.Tensor], given: Mapping[str, Any], exact_match: bool) -> dict[str, torch.Tensor]:
    """Return the given weights if they fit the policy's own; nothing has been changed if they do not."""
    wrong = [name for name in given if name not in own or not isinstance(given[name], torch.Tensor)]
    wrong += [name for name in own if exact_match and name not in given]
    wrong += [name for name in own if name in given and name not in wrong and given[name].shape != own[name].shape]
    if wrong:
        raise ValueError(
            f"set_parameters: {wrong[0]!r} does not fit the policy: give the weights that get_parameters returns, or "
            "some of them with exact_match=False"
        )
    return dict(given)


def _of_checkpoint(agent: Any, path: Path) -> dict[str, Any]:
    """Return the parameters in a checkpoint of an agent with the same kind of policy."""
    saved = read_checkpoint(path)
    if saved.facts["policy_kind"] != agent.policy.kind:
        raise ValueError(
            f"{str(path)!r} holds a policy of kind {saved.facts['policy_kind']!r}, not a {agent.policy.kind!r}"
        )
    policy = saved.policy.load(agent.env.single_observation_space, agent.env.single_action_space)
    return {POLICY: policy.state_dict(), OPTIMIZER: saved.training()["optimizer"]}


def _check_whole(agent: Any, what: str) -> None:
    if agent.policy.sharded:
        raise ValueError(f"{what} needs all weights in one process; with shard, use save and load")
