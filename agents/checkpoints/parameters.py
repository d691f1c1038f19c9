"""Weights and optimizer state by name, as stable-baselines3's `get_parameters` and `set_parameters` have them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Space

from ..checks import first_line
from ..fsdp import check_whole
from ..policies import Policy
from ..stateful import Stateful
from .checkpoint import read_checkpoint

POLICY, OPTIMIZER = "policy", "policy.optimizer"


def get(policy: Policy, optimizer: Stateful) -> dict[str, dict[str, Any]]:
    """Return copies; see `Agent.get_parameters`."""
    check_whole(policy, "get_parameters")
    return copy.deepcopy({POLICY: dict(policy.state_dict()), OPTIMIZER: optimizer.state_dict()})


def put(policy: Policy, optimizer: Stateful, given: Mapping[str, Any], exact_match: bool) -> None:
    """Replace them; see `Agent.set_parameters`."""
    check_whole(policy, "set_parameters")
    known = {POLICY, OPTIMIZER}
    if given.keys() - known or (exact_match and given.keys() != known):
        raise ValueError(
            f"set_parameters takes {POLICY!r} and {OPTIMIZER!r}, as get_parameters returns them, or one of them with "
            f"exact_match=False; got {', '.join(map(repr, given)) or 'nothing'}"
        )
    if POLICY in given:
        weights = _checked(policy.state_dict(), given[POLICY], exact_match)
        policy.load_state_dict(weights, strict=False)
    if OPTIMIZER in given:
        try:
            optimizer.load_state_dict(copy.deepcopy(given[OPTIMIZER]))
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


def of_checkpoint(path: Path, kind: str, observation_space: Space, action_space: Space) -> dict[str, Any]:
    """Return the parameters in a checkpoint of an agent with this kind of policy.

    Raises:
        ValueError: if it has another kind.
    """
    saved = read_checkpoint(path)
    if saved.policy.kind != kind:
        raise ValueError(f"{str(path)!r} holds a policy of kind {saved.policy.kind!r}, not a {kind!r}")
    policy = saved.policy.load(observation_space, action_space)
    return {POLICY: policy.state_dict(), OPTIMIZER: saved.training()["optimizer"]}
