"""Each technique alone, then all together, against none: an update of 32 sums x 8 answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents import Agent
from agents.policies.language.decoding.step import GeneralStep, make_step

from .measure import Row, alternate, clock
from .trl_short import our_agent
from .worlds import GROUPS, K, greedy_success, warm_model

STEPS = 10


def _of_the_policy(name: str) -> Callable[[Agent, bool], None]:
    return lambda agent, on: setattr(agent.policy, name, on)


def _written_out_step(agent: Agent, on: bool) -> None:
    policy: Any = agent.policy
    policy._step = make_step(policy.model, policy.max_length) if on else GeneralStep(policy.model)


TECHNIQUES: dict[str, Callable[[Agent, bool], None]] = {
    "skip_idle_rows": lambda agent, on: setattr(agent, "skip_idle_rows", on),
    "merge_rows": _of_the_policy("merge_rows"),
    "share_prefixes": _of_the_policy("share_prefixes"),
    "share_contexts": _of_the_policy("share_contexts"),
    "the decode step written out": _written_out_step,
}


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each technique, and one for all of them."""
    rows = [_compare(each, [each], pairs) for each in TECHNIQUES]
    return [*rows, _compare("all of them", list(TECHNIQUES), pairs)]


def _compare(label: str, used: list[str], pairs: int) -> Row:
    model = warm_model()
    agents = [_agent(model, names) for names in (used, [])]
    parts: list[dict[str, float]] = [{"acting": 0.0, "training": 0.0} for _ in agents]
    with_it, without = (_turn(agent, part) for agent, part in zip(agents, parts, strict=True))
    taken = alternate(with_it, without, pairs)
    success = [greedy_success(agent.policy.model, 1000) for agent in agents]
    factors = {name: round(parts[1][name] / parts[0][name], 2) for name in parts[0]}
    quality = (
        f"acting {factors['acting']}x, training {factors['training']}x; "
        f"success {success[0]:.3f} with, {success[1]:.3f} without"
    )
    return Row.of(label, *taken, "s/update", quality)


def _agent(model: Any, used: list[str]) -> Agent:
    agent = our_agent("rloo", model)
    for name, switch in TECHNIQUES.items():
        switch(agent, name in used)
    return agent


def _turn(agent: Agent, part: dict[str, float]) -> Callable[[], float]:
    """Return a function that trains for `STEPS` updates and adds the seconds of acting and training to `part`."""
    update = agent.update

    def timed(rollout: Any) -> dict[str, float]:
        with clock() as seconds:
            figures = update(rollout)
        part["training"] += seconds()
        return figures

    agent.update = timed  # type: ignore[method-assign]

    def turn() -> float:
        trained = part["training"]
        with clock() as seconds:
            agent.learn(total_episodes=GROUPS * K * STEPS, reset_num_timesteps=False)
        part["acting"] += seconds() - (part["training"] - trained)
        return seconds() / STEPS

    return turn
