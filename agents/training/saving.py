"""An agent as a checkpoint; `loading.py` makes an agent of one, and `checkpoint.py` writes and reads the folder.

The state is nested: every part of an agent says for itself what it carries from update to update.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import processes
from ..fsdp import has_part, unsharded
from ..policies.base import weights_digest
from ..settings import functions_of
from ..stateful import DictState, Stateful
from .checkpoint import COUNTERS, write_checkpoint
from .generators import GeneratorState
from .saved_spaces import described


def parts_of(agent: Any) -> dict[str, Stateful]:
    """Return the parts that are saved as they are now, by their name in a checkpoint; the same in all processes."""
    return {
        "optimizer": agent.policy_optimizer,
        "order": GeneratorState(agent.generators.order),
        "reward_scale": agent.reward_scale,
        "unwritten": agent.unwritten,
        "extra": DictState(agent, "extra_state"),
        **({} if agent.teaching is None else {"teaching": agent.teaching}),
        **{f"carried/{name}": part for name, part in agent.carried.items()},
    }


def own_parts_of(agent: Any) -> dict[str, Stateful]:
    """Return the parts that change while a rollout is collected, by their name in a checkpoint; one per process."""
    return {
        "actions": GeneratorState(agent.generators.actions),
        "envs": agent.collector,
        "failures": agent.failure_watch,
        "stability": agent.stability_watch,
        "start": agent.start_watch,
        "metrics": DictState(agent, "last_metrics"),
    }


def moment_of(agent: Any) -> dict[str, Any]:
    """Return the counters of an agent and the states of its own parts as they are now."""
    counters = {name: getattr(agent, name) for name in COUNTERS}
    before, parts = agent.player.moment, own_parts_of(agent)
    return {"counters": counters} | {name: before.get(name) or part.state_dict() for name, part in parts.items()}


def save(agent: Any, path: Path, previous: Path | None) -> None:
    """Write a checkpoint folder; see `Agent.save`."""
    if agent.updating:
        raise RuntimeError(
            f"update {agent.num_updates + 1} did not end: its weights and its optimizer do not fit together; "
            f"{str(path)!r} is left as it is: load the last checkpoint, or continue with learn()"
        )
    processes.on_all(agent.anchor.check_reference)
    if processes.size() > 1 and not has_part(agent.policy):
        processes.check_equal(weights_digest(agent.policy))
    moment = agent.moment or moment_of(agent)
    agent.collector.warn_of_loss()
    state = {name: part.state_dict() for name, part in parts_of(agent).items()}
    state["moments"] = processes.gather(moment)
    reference = None if agent.anchor.reference is agent.policy else agent.anchor.reference
    policy, reference, state = unsharded((agent.policy, reference, state))
    spaces = {"observation": agent.env.single_observation_space, "action": agent.env.single_action_space}
    facts = {  # how the agent is made again, for agent.json
        "agent": vars(type(agent)).get("name"),  # None for a class of your own, which loads its checkpoints itself
        "policy_kind": agent.policy.kind,
        "settings": agent.settings,
        "spaces": {name: described(space) for name, space in spaces.items()},
        "functions": functions_of(agent),
        **agent.origin,
        **moment["counters"],
    }
    processes.on_main(lambda: write_checkpoint(path, facts, policy, reference, state, previous))
