"""Each technique by itself: an update of 32 sums x 8 answers with it, and with it switched off.

The first rows switch one technique on where all others are off; the last compares all of them with none.
"""

from __future__ import annotations

from typing import Any

from agents import Agent

from .measure import Row, alternate, clock
from .trl_short import our_agent
from .worlds import GROUPS, K, greedy_success, warm_model

STEPS = 10
OFF: dict[str, bool] = {"skip_idle_rows": False, "merge_rows": False, "share_prefixes": False, "share_contexts": False}
PREDICTED = {  # from the research this project started with, for a whole update
    "skip_idle_rows": "1.3 to 4 on training alone", "merge_rows": "1.3 to 3 on training alone",
    "share_prefixes": "1.5 to 1.9 on training alone", "share_contexts": "2.8 on the rollout alone",
    "all four": "2.8 and more",
}  # fmt: skip


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each technique, and one for all of them."""
    rows = [_compare(technique, OFF | {technique: True}, OFF, pairs) for technique in OFF]
    return [*rows, _compare("all four", dict.fromkeys(OFF, True), OFF, pairs)]


def _compare(label: str, on: dict[str, bool], off: dict[str, bool], pairs: int) -> Row:
    model = warm_model()
    agents = [_agent(model, switches) for switches in (on, off)]
    parts: list[dict[str, float]] = [{"rollout": 0.0, "training": 0.0} for _ in agents]
    with_it, without = (_turn(agent, part) for agent, part in zip(agents, parts, strict=True))
    taken = alternate(with_it, without, pairs)
    rewards = [agent.last_metrics["rollout/ep_rew_mean"] for agent in agents]
    success = [greedy_success(agent.policy.model, 500) for agent in agents]
    quality = f"last reward {rewards[0]:.3f} and {rewards[1]:.3f}, success {success[0]:.3f} and {success[1]:.3f}"
    factors: dict[str, Any] = {name: round(parts[1][name] / parts[0][name], 2) for name in parts[0]}
    return Row.of(label, *taken, "s/update", quality, predicted=PREDICTED[label], **factors)


def _agent(model: Any, switches: dict[str, bool]) -> Agent:
    agent = our_agent("rloo", model)
    agent.skip_idle_rows = switches["skip_idle_rows"]
    for name in ("merge_rows", "share_prefixes", "share_contexts"):
        setattr(agent.policy, name, switches[name])
    return agent


def _turn(agent: Agent, part: dict[str, float]) -> Any:
    update = agent.update

    def timed(rollout: Any) -> dict[str, float]:
        with clock() as seconds:
            figures = update(rollout)
        part["training"] += seconds()
        return figures

    agent.update = timed  # type: ignore[method-assign]

    def turn() -> float:
        before = part["training"]
        with clock() as seconds:
            agent.learn(total_episodes=GROUPS * K * STEPS, reset_num_timesteps=False)
        part["rollout"] += seconds() - (part["training"] - before)
        return seconds() / STEPS

    return turn
