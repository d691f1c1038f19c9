"""How often the host waits for the device, by phase; `python tests/support/synchronizations.py --lines` prints it."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from typing import Any

import torch
from pretend_device import PretendDevice, pretend_device

import rlenv  # noqa: F401
from agents import AGENTS, Agent
from agents.training.metrics import rollout_metrics

Counts = Counter[tuple[str, str]]
TEXT = {"episodes_per_update": 64, "num_envs": 32, "group_size": 4, "env_kwargs": {"verifier": "arith"}}
CONTROL = {"episodes_per_update": 8, "num_envs": 4}


def trained(name: str, env: str, **settings: Any) -> Agent:
    """Return an agent on the device after an update, so that everything is captured and set up."""
    policy = "tiny" if env == "TextGen-v0" else "MlpPolicy"
    agent = AGENTS[name](policy, env, device="cuda", **settings)
    return agent.learn(total_episodes=agent.episodes_per_update)


def of_collecting(agent: Agent, device: PretendDevice) -> dict[str, list[Counts]]:
    """Return the synchronizations of every step of a rollout, by what happened in it, and those of putting it together.

    A step goes from one step of the environment to the next. In a quiet one no episode ends or starts.
    """
    kinds: dict[str, list[Counts]] = {"reset": [], "quiet": [], "ends": [], "restart": [], "both": [], "rollout": []}
    last, restarted = device.synchronizations.copy(), True
    restart = agent.collector.slots.restart

    def on_step(taken: int, local: dict[str, Any]) -> bool:
        nonlocal last
        ended = bool(local["dones"].any())
        kind = {(0, 0): "quiet", (1, 0): "ends", (0, 1): "restart", (1, 1): "both"}[ended, restarted]
        first = not any(kinds.values())
        kinds["reset" if first else kind].append(device.synchronizations - last)
        last = device.synchronizations.copy()
        return True

    def watched(*args: Any) -> Any:
        nonlocal restarted
        begun = restart(*args)
        restarted = bool(begun[1].any())
        return begun

    agent.collector.slots.restart = watched  # type: ignore[method-assign]
    agent.collector.collect(agent.policy, agent.own_episodes, agent.generator, on_step=on_step)
    agent.collector.slots.restart = restart  # type: ignore[method-assign]
    kinds["rollout"].append(device.synchronizations - last)
    return kinds


def of_update(agent: Agent, device: PretendDevice) -> tuple[Counts, int]:
    """Return the synchronizations of an update and all its metrics, and its optimizer steps."""
    rollout = agent.collector.collect(agent.policy, agent.own_episodes, agent.generator)
    steps, take = [], agent.policy_optimizer.step
    agent.policy_optimizer.step = lambda *args, **kwargs: (steps.append(1), take(*args, **kwargs))[1]  # type: ignore
    with device.counted() as found:
        rollout_metrics(rollout) | agent.update(rollout)
        agent.failure_watch.add(agent.collector.statuses, "")
    agent.policy_optimizer.step = take  # type: ignore[method-assign]
    return found, len(steps)


def main(lines: bool) -> None:
    """Print the counts, and with `lines` where they come from."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with pretend_device() as device:
        agent = trained("grpo", "TextGen-v0", **TEXT)
        for kind, counts in of_collecting(agent, device).items():
            show(f"text, {kind}", counts, lines)
        show("text, an update of GRPO", [of_update(agent, device)[0]], lines)
        plain = trained("grpo", "TextGen-v0", **TEXT, policy_kwargs={"cuda_graphs": False})
        show("text, quiet, without captured graphs", of_collecting(plain, device)["quiet"], lines)
        found, steps = of_update(trained("ppo", "TextGen-v0", **TEXT), device)
        show(f"text, an update of PPO ({steps} optimizer steps)", [found], lines)
        agent = trained("ppo", "CartPole-v1", **CONTROL)
        for kind, counts in of_collecting(agent, device).items():
            show(f"CartPole, {kind}", counts, lines)
        found, steps = of_update(agent, device)
        show(f"CartPole, an update of PPO ({steps} optimizer steps)", [found], lines)


def show(title: str, counts: list[Counts], lines: bool) -> None:
    if counts:
        totals = [sum(each.values()) for each in counts]
        print(f"{title}: {min(totals)} to {max(totals)}")
        worst = max(counts, key=lambda each: sum(each.values()))
        for (line, why), count in sorted(worst.items(), key=lambda item: -item[1]) if lines else ():
            print(f"    {count:4d}  {line}  ({why})")


if __name__ == "__main__":
    main("--lines" in sys.argv)
