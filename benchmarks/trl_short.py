"""An update on short answers: 32 sums x 8 answers of at most 5 tokens, 0.43 million parameters, warm-started."""

from __future__ import annotations

import copy
from typing import Any

from agents import Agent, find_agent

from .floors import update_floor
from .measure import Row
from .peers import SAME_LOSS, SAME_WORK, Turns, learned, require_trl, train_beside
from .worlds import GROUPS, K, arith_envs, greedy_success, warm_model

STEPS, RATE, SEEDS = 50, 3e-4, 5
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {  # benchmark: {row: TRL's settings}
    "trl-grpo": {"GRPO, the same loss": SAME_LOSS, "GRPO, TRL's defaults": {}},
    "trl-rloo": {
        "RLOO, the same loss": SAME_WORK | {"normalize_advantages": False},
        "RLOO, TRL's defaults (with a reference pass)": {},
    },
}


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each of TRL's configurations."""
    require_trl()
    return [_compare(name, label, settings, pairs) for label, settings in SETTINGS[name].items()]


def _compare(name: str, label: str, settings: dict[str, Any], pairs: int) -> Row:
    """Time pairs with the first seed; with the same loss, train further seeds to compare success."""
    turns, start = pairs + 1, warm_model()  # the first turn is for warming up
    agent, times, after = _train(name, start, settings, 0, STEPS, turns)
    known: dict[str, Any] = {"floor": update_floor(agent)}
    quality = "timed only: TRL's settings differ from ours"
    if settings:
        seeds = [after, *(_train(name, start, settings, s, STEPS * turns, 1)[2] for s in range(1, min(SEEDS, pairs)))]
        before, ours, theirs = greedy_success(start), *([each[side] for each in seeds] for side in (0, 1))
        known |= {"success_before": before, "success": ours, "peer_success": theirs}
        quality = learned("success", STEPS * turns, [before], ours, theirs)
    return Row.of(label, times.ours[1:], times.theirs[1:], "s/update", quality, **known)


def _train(
    name: str, start: Any, settings: dict[str, Any], seed: int, steps: int, turns: int
) -> tuple[Agent, Turns, list[float]]:
    """Train ours and TRL from the same weights, in turn; return our agent, the times, and both sides' success."""
    trainer = name.removeprefix("trl-")
    agent = our_agent(trainer, start, seed)

    def reward(completions: list[str], answer: list[str], **rest: Any) -> list[float]:
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    times, _, theirs = train_beside(trainer.upper(), agent, start, reward, steps, turns, **settings)
    policy: Any = agent.policy
    return agent, times, [greedy_success(trained) for trained in (policy.model, theirs)]


def our_agent(name: str, model: Any, seed: int = 0) -> Agent:
    """Return our agent with these weights and the settings of both sides."""
    envs = arith_envs(GROUPS * K, group_size=K)
    return find_agent(name)(
        copy.deepcopy(model), envs, learning_rate=RATE, lr_schedule="constant",
        episodes_per_update=GROUPS * K, group_size=K, seed=seed, device="cpu",
    )  # fmt: skip
