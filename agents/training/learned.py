"""Modules that an algorithm learns beside the policy: attributes of the agent, such as a value head.

They are trained by the policy's optimizer, unless an optimizer among the attributes holds their parameters, and they
are saved, as frozen ones, optimizers and their schedulers are. `setup` is where an algorithm makes them.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rlenv._settings import declared_by

from .. import processes


def learned_by(agent: Any) -> dict[str, nn.Module | Optimizer | LRScheduler]:
    """Return modules, optimizers and schedulers among an agent's attributes by name, a parameter as a module around it.

    Parts of the policy, and modules around the whole of it, such as a compiled one, are left out.
    """
    found: dict[str, nn.Module | Optimizer | LRScheduler] = {}
    of_policy = set(map(id, agent.policy.parameters()))
    for name, value in vars(agent).items():
        if name in ("policy", "env") or name in declared_by(type(agent)):
            continue
        module = nn.ParameterList([value]) if isinstance(value, nn.Parameter) else value
        if isinstance(module, nn.Module):
            parameters = set(map(id, module.parameters()))
            if not parameters or parameters - of_policy:
                found[name] = module
        elif isinstance(module, (Optimizer, LRScheduler)):
            found[name] = module
    return found


def train_too(agent: Any) -> None:
    """Train the agent's modules with the policy, on its device; a frozen one stays where it is.

    Raises:
        ValueError: for an optimizer of the agent's in several processes, which would not add up their gradients, and
            for weights that the policy got, or that were unfrozen, after its optimizer was made.
    """
    names = {parameter: name for name, parameter in agent.policy.named_parameters() if parameter.requires_grad}
    for parameter in agent.policy_optimizer.weights.lacking(names)[:1]:
        raise ValueError(
            f"{names[parameter]} of the policy would not be trained: add or unfreeze it before the agent is made; "
            "modules that setup makes are attributes of the agent"
        )
    found = learned_by(agent).values()
    others = [one for one in found if isinstance(one, Optimizer)]
    if others and processes.size() > 1:
        raise ValueError(
            f"{type(agent).__name__} has another optimizer, whose gradients {processes.size()} processes do not "
            "add up; leave its parameters to the policy's optimizer, or use one process"
        )
    elsewhere = {id(p) for one in others for group in one.param_groups for p in group["params"]}
    for module in found:
        if isinstance(module, nn.Module):
            parameters = list(module.parameters())
            trained = [p for p in parameters if p.requires_grad]
            if trained or not parameters:
                module.to(agent.device)
            agent.policy_optimizer.add(p for p in trained if id(p) not in elsewhere)
            processes.same_start(module)
