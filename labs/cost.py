"""What do REINFORCE, RLOO, GRPO and PPO cost in memory and time on the same model, and what does a critic add?

docs/labs/cost.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agents import GRPO, PPO, RLOO, Agent, Reinforce, Rollout
from verifiers import Problem, Verdict, Verifier

from .base import Check, Finding
from .training import make_agent, sample

LENGTH = 16
EPISODES = 64
TURNS = 7
HEAD, SEPARATE = "PPO, critic head", "PPO, separate critic"
AGENTS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "REINFORCE": (Reinforce, {}),
    "RLOO": (RLOO, {}),
    "GRPO": (GRPO, {}),
    "RLOO, anchored": (RLOO, {"kl_coef": 0.1}),
    HEAD: (PPO, {"num_minibatches": 1}),
    SEPARATE: (PPO, {"num_minibatches": 1, "policy_kwargs": {"critic": "separate"}}),
}


class Letters(Verifier):
    """Pays for the share of vowels; any letters will do."""

    alphabet = "abcdefgh?"
    prompt_length = 1
    answer_length = LENGTH - 1

    def sample(self, rng: random.Random) -> Problem:
        """Return the one question there is."""
        return Problem("?")

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Count the vowels."""
        return Verdict(sum(letter in "ae" for letter in completion) / LENGTH)


def nbytes(tensors: Any) -> int:
    """Return the bytes of these tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_bytes(agent: Agent) -> dict[str, int]:
    """Return the bytes that the agent keeps between updates: weights, gradients, Adam's moments, frozen weights."""
    parameters = list(agent.policy.parameters())
    moments = [
        value for state in agent.optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    frozen = [] if agent.anchor.reference is None else list(agent.anchor.reference.parameters())
    return {
        "weights": nbytes(parameters),
        "gradients": nbytes(p.grad for p in parameters if p.grad is not None),
        "moments": nbytes(moments),
        "frozen": nbytes(frozen),
    }


@contextmanager
def count_saved(policy: torch.nn.Module) -> Iterator[dict[int, int]]:
    """Collect the storages that autograd saves inside: bytes by address; the policy's own weights do not count."""
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


def activation_bytes(agent: Agent, rollout: Rollout) -> int:
    """Return what one pass over a whole rollout keeps for its backward pass."""
    prepared = agent.prepare(rollout)
    with count_saved(agent.policy) as saved:
        loss, _ = agent.loss(prepared)
        total = sum(saved.values())
    del loss
    return total


def make_all(seed: int) -> dict[str, Agent]:
    """Return the agents to compare; none leaves rows out."""
    settings: dict[str, Any] = {"episodes_per_update": EPISODES, "skip_idle_rows": False, "group_size": 4}
    agents = {name: make_agent(cls, "tiny", Letters(), seed, **settings, **own) for name, (cls, own) in AGENTS.items()}
    for agent in agents.values():
        agent.anchor.freeze_reference(agent.policy)
    return agents


def take_turns(agents: dict[str, Agent]) -> list[dict[str, Any]]:
    """Let every agent make an update in turn, once to warm up and `TURNS` times; return the seconds of each."""
    rows = []
    for turn in range(TURNS + 1):
        for name, agent in agents.items():
            started = time.perf_counter()
            rollout = sample(agent, EPISODES)
            collected = time.perf_counter()
            agent.update(rollout)
            finished = time.perf_counter()
            if turn:
                seconds = {"collect": collected - started, "update": finished - collected}
                rows.append({"agent": name, "turn": turn, **seconds, "passes": getattr(agent, "num_epochs", 1)})
    return rows


def costs_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the least times and the bytes of each agent."""
    costs = {}
    for name in dict.fromkeys(row["agent"] for row in rows):
        own = [row for row in rows if row["agent"] == name]
        state = own[0]["weights"] + own[0]["gradients"] + own[0]["moments"] + own[0]["frozen"]
        times = {part: min(row[part] for row in own) for part in ("collect", "update")}
        costs[name] = {**times, "state": state, "activations": own[0]["activations"]}
    return costs


def checks_of(costs: dict[str, dict[str, float]]) -> list[Check]:
    """Return what the claim says, against each agent's costs."""

    def ratio(column: str, name: str, to: str = "RLOO") -> float:
        return costs[name][column] / costs[to][column]

    free = max(abs(ratio("state", name) - 1) for name in ("REINFORCE", "GRPO"))
    state, saved = ratio("state", "RLOO", SEPARATE), ratio("activations", SEPARATE)
    return [
        Check(
            f"RLOO, GRPO and REINFORCE keep the same state to the byte ({costs['RLOO']['state'] / 1e6:.2f} MB)",
            free == 0,
        ),
        Check(
            f"without a critic, state is half of that with a separate critic (0.45 to 0.55; {state:.3f})",
            0.45 < state < 0.55,
        ),
        Check(
            f"a critic head adds less than a twentieth to state (x{ratio('state', HEAD):.3f}) and to activations "
            f"(x{ratio('activations', HEAD):.3f})",
            max(ratio("state", HEAD), ratio("activations", HEAD)) < 1.05,
        ),
        Check(f"a separate critic adds at least half to activations (x{saved:.2f})", saved > 1.5),
        Check(
            f"the anchor adds a quarter to state, the frozen weights (x{ratio('state', 'RLOO, anchored'):.3f})",
            abs(ratio("state", "RLOO, anchored") - 1.25) < 0.01,
        ),
        Check(
            f"an update of PPO takes at least 1.3 times RLOO's (critic head: x{ratio('update', HEAD):.1f}, separate: "
            f"x{ratio('update', SEPARATE):.1f})",
            min(ratio("update", HEAD), ratio("update", SEPARATE)) > 1.3,
        ),
        Check(
            f"and with a separate critic longer than with a head (x{ratio('update', SEPARATE, HEAD):.2f})",
            ratio("update", SEPARATE, HEAD) > 1,
        ),
    ]


def draw_costs(rows: list[dict[str, Any]], figure: Any) -> None:
    """Draw state, activations and seconds of each agent."""
    axes = figure.subplots(1, 3, sharey=True)
    costs = costs_of(rows)
    places = np.arange(len(costs))
    stacks = [
        (axes[0], ("weights", "gradients", "moments", "frozen"), 1e6, "state (MB)"),
        (axes[1], ("activations",), 1e6, "activations of a pass (MB)"),
        (axes[2], ("collect", "update"), 1.0, "seconds per update (fastest)"),
    ]
    for axis, parts, unit, title in stacks:
        left = np.zeros(len(costs))
        for part in parts:
            values = [min(row[part] for row in rows if row["agent"] == name) / unit for name in costs]
            axis.barh(places, values, left=left, label=part)
            left += values
        axis.set_title(title, fontsize=10)
        axis.set_xlim(0, 1.08 * left.max())
        if len(parts) > 1:
            axis.legend(fontsize=8)
    axes[0].set_yticks(places, list(costs))
    axes[0].invert_yaxis()


def run(seed: int) -> Finding:
    """Count bytes and take times."""
    agents = make_all(seed)
    rows = take_turns(agents)
    rollout = sample(agents["RLOO"], EPISODES)
    bytes_of = {
        name: state_bytes(agent) | {"activations": activation_bytes(agent, rollout)} for name, agent in agents.items()
    }
    rows = [row | bytes_of[row["agent"]] for row in rows]
    costs = costs_of(rows)
    return Finding(
        claim="A separate critic doubles the memory between updates; a head costs next to nothing. PPO's time goes "
        "into its passes.",
        checks=checks_of(costs),
        rows=rows,
        figures={
            f"{column}, {name}": round(figure, 4) if isinstance(figure, float) else figure
            for name, own in costs.items()
            for column, figure in own.items()
        },
        draw=lambda figure: draw_costs(rows, figure),
    )
